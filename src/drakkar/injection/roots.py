"""Moving a specification to another root: paths that begin with one root get another in its place.

A generator in a container, or one that looks at a driver container's root, sees the host's files elsewhere than the
runtime will. Relative to the host, the paths are those that the runtime opens (host paths of nodes and mounts, hook
executables, arguments of hooks that run on the host); relative to the container, those that the process sees. Pure.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Literal

import msgspec

from .model import ContainerEdits, DeviceNode, Hook, Spec
from .versions import VERSIONS, minimum_version

__all__ = ["transform_root"]

#: Hooks that run with the container's file system as theirs, and those whose arguments are paths in it.
_IN_CONTAINER = ("startContainer",)
_CONTAINER_PATHS = ("createContainer", "startContainer")


def transform_root(spec: Spec, old: str, new: str, *, relative_to: Literal["host", "container"] = "host") -> Spec:
    """The specification with `new` where its paths begin with the root `old`; other paths stay.

    It declares the version that it declared, or a later one where host paths became necessary.
    """
    move = _mover(old, new)
    change = _host_edits if relative_to == "host" else _container_edits
    moved = msgspec.structs.replace(
        spec,
        container_edits=change(spec.container_edits, move),
        devices=tuple(
            msgspec.structs.replace(device, container_edits=change(device.container_edits, move))
            for device in spec.devices
        ),
    )
    needed, declared = minimum_version(moved), spec.cdi_version.removeprefix("v")
    if declared in VERSIONS and VERSIONS.index(declared) >= VERSIONS.index(needed):
        return moved
    return msgspec.structs.replace(moved, cdi_version=needed)


Move = Callable[[str], str]


def _mover(old: str, new: str) -> Move:
    root = "/" if old in ("", "/") else old.rstrip("/")

    def move(path: str) -> str:
        if root == "/":
            return _joined(new, path) if path.startswith("/") else path
        below = path == root or path.startswith(root + "/")  # whole names: /run/driver is not below /run/dri
        return _joined(new, path[len(root) :]) if below else path

    return move


def _joined(root: str, path: str) -> str:
    joined = posixpath.normpath(f"{root}/{path}")
    return "/" + joined.lstrip("/") if root.startswith("/") or not root else joined


def _host_edits(edits: ContainerEdits, move: Move) -> ContainerEdits:
    return msgspec.structs.replace(
        edits,
        device_nodes=tuple(_host_node(node, move) for node in edits.device_nodes),
        mounts=tuple(msgspec.structs.replace(one, host_path=move(one.host_path)) for one in edits.mounts),
        hooks=tuple(
            _hook(hook, move, path=hook.hook_name not in _IN_CONTAINER, args=hook.hook_name not in _CONTAINER_PATHS)
            for hook in edits.hooks
        ),
    )


def _container_edits(edits: ContainerEdits, move: Move) -> ContainerEdits:
    return msgspec.structs.replace(
        edits,
        device_nodes=tuple(msgspec.structs.replace(node, path=move(node.path)) for node in edits.device_nodes),
        mounts=tuple(msgspec.structs.replace(one, container_path=move(one.container_path)) for one in edits.mounts),
        hooks=tuple(
            _hook(hook, move, path=hook.hook_name in _IN_CONTAINER, args=hook.hook_name in _CONTAINER_PATHS)
            for hook in edits.hooks
        ),
    )


def _host_node(node: DeviceNode, move: Move) -> DeviceNode:
    """A node without a host path has its own there; what comes out equal to that is left out again."""
    host = move(node.host_path or node.path)
    return msgspec.structs.replace(node, host_path="" if host == node.path and not node.host_path else host)


def _hook(hook: Hook, move: Move, *, path: bool, args: bool) -> Hook:
    return msgspec.structs.replace(
        hook,
        path=move(hook.path) if path else hook.path,
        args=tuple("::".join(map(move, arg.split("::", 1))) for arg in hook.args) if args else hook.args,
    )
