"""What a specification says, held against the machine on which containers would start.

Mounts are not checked at injection and stored device numbers are believed there, so that a driver update shows only as
a container that does not start, or as a program that finds no GPU. Nothing here is known of any vendor: who knows more
of a node passes an :data:`Inspector`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .edit import HostNode
from .host import lstat_node
from .model import ContainerEdits, DeviceNode, Mount

__all__ = ["ERROR", "WARNING", "Finding", "HostView", "Inspector", "RealHost", "edit_findings", "unversioned"]

ERROR: Final = "error"  # the device does not resolve, or the container would not start
WARNING: Final = "warning"  # it works, but not as somebody thinks
_SELINUX_SWITCHES: Final = ("container_use_devices", "container_use_xserver_devices")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. ``code`` is stable; ``subject`` is a device, file, directory or host path."""

    code: str
    level: str
    subject: str
    message: str
    fix: str
    file: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON, without empty fields."""
        fields = {
            "code": self.code,
            "level": self.level,
            "subject": self.subject,
            "message": self.message,
            "fix": self.fix,
            "file": self.file,
        }
        return {key: value for key, value in fields.items() if value}


class HostView(Protocol):
    """What the doctor may ask about a host; None means that nobody knows."""

    def node(self, path: str) -> HostNode | None:
        """The device node there; raises OSError where it is missing or something else."""
        ...

    def exists(self, path: str) -> bool | None:
        """Whether anything is there, links followed."""
        ...

    def executable(self, path: str) -> bool | None:
        """Whether it is a file that may be run."""
        ...

    def similar(self, path: str) -> list[str]:
        """Files in the same directory that differ only in their version."""
        ...

    def text(self, path: str) -> str | None:
        """The content of a small file, None where there is none."""
        ...

    def label(self, path: str) -> str:
        """The SELinux type of a file, "" if it has none that we can read."""
        ...


Inspector = Callable[[DeviceNode, HostView], tuple[str, str] | None]
"""What a vendor knows of a device node: why it is useless although it is there, and the fix; None if it is not."""


class RealHost:
    """This machine, or a directory that stands for one."""

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")

    def node(self, path: str) -> HostNode | None:
        return lstat_node(self._root + path)

    def exists(self, path: str) -> bool | None:
        return os.path.exists(self._root + path)  # noqa: PTH110

    def executable(self, path: str) -> bool | None:
        return os.path.isfile(self._root + path) and os.access(self._root + path, os.X_OK)  # noqa: PTH113

    def similar(self, path: str) -> list[str]:
        directory, _, name = path.rpartition("/")
        stem = unversioned(name)
        try:
            names = os.listdir(self._root + directory)  # noqa: PTH208
        except OSError:
            return []
        return sorted(f"{directory}/{other}" for other in names if other != name and unversioned(other) == stem)

    def text(self, path: str) -> str | None:
        try:
            with open(self._root + path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                return file.read(1 << 20)
        except OSError:
            return None

    def matching(self, pattern: str) -> list[str]:
        """Files of the machine that match a pattern, sorted."""
        import glob

        found = glob.glob(glob.escape(self._root) + pattern)  # noqa: PTH207
        return sorted(path[len(self._root) :] for path in found)

    def label(self, path: str) -> str:
        try:
            context = os.getxattr(self._root + path, "security.selinux", follow_symlinks=False)
        except OSError:
            return ""
        return context.rstrip(b"\0").decode("utf-8", "replace").split(":")[2:3][0] if context.count(b":") >= 2 else ""


def unversioned(name: str) -> str:
    """A library's name without its version: ``libcuda.so.580.95.05`` and ``libcuda.so.570.1`` are the same."""
    return re.sub(r"(\.so)(\.\d+)*$", r"\1", name)


def edit_findings(
    edits: ContainerEdits,
    path: str,
    subject: str,
    host: HostView,
    *,
    driver_root: str = "",
    inspectors: Sequence[Inspector] = (),
) -> Iterator[Finding]:
    """What is wrong with one block of edits of the file ``path``; ``subject`` is who has it, for messages."""
    for node in edits.device_nodes:
        yield from _node(node, path, subject, host)
        for inspect in inspectors:
            found = inspect(node, host)
            if found is not None:
                reason, fix = found
                yield Finding("device-gone", ERROR, node.host_path or node.path, f"{subject}: {reason}", fix, path)
    for mount in edits.mounts:
        if host.exists(mount.host_path) is False:
            yield _missing_mount(mount, path, subject, host, driver_root)
    for hook in edits.hooks:
        if host.executable(hook.path) is False:
            yield Finding(
                "hook-missing",
                ERROR,
                hook.path,
                f"hook {hook.path} of {subject} is not there or may not be run: the container would not start",
                "install the hook's package, or generate the file with the right --hook-path",
                path,
            )
        if hook.timeout == 0:
            yield Finding(
                "hook-timeout", ERROR, hook.path, f"hook {hook.path} has timeout 0: runc ends it at once",
                "leave timeout out, or give seconds", path,
            )  # fmt: skip


def _node(node: DeviceNode, path: str, subject: str, host: HostView) -> Iterator[Finding]:
    host_path = node.host_path or node.path
    complete = bool(node.type) and (node.major != 0 or node.type == "p")
    try:
        there = host.node(host_path)
    except OSError as error:
        text = (error.strerror or str(error)).lower()
        yield Finding(
            "node-missing",
            WARNING if complete else ERROR,
            host_path,
            f"{host_path}, which {subject} needs, is not a device node of the host: {text}",
            "load the driver (nvidia-modprobe makes nodes), then generate the specification again",
            path,
        )
        return
    if there is None:
        return
    kind = "c" if node.type == "u" else node.type
    if kind and kind != there.type:
        yield Finding(
            "node-type",
            WARNING if complete else ERROR,
            host_path,
            f"{host_path} is of type {there.type}, {subject} says {kind}",
            "generate the specification again",
            path,
        )
    elif node.major and (node.major, node.minor) != (there.major, there.minor):
        yield Finding(
            "number-stale",
            ERROR,
            host_path,
            f"{host_path} has numbers {there.major}:{there.minor}, {subject} says {node.major}:{node.minor}: the"
            " container would get a node without a driver behind it",
            "generate the specification again, best without device numbers",
            path,
        )
    else:
        yield from _selinux(host_path, path, subject, host)


def _missing_mount(mount: Mount, path: str, subject: str, host: HostView, driver_root: str) -> Finding:
    missing = f"{mount.host_path}, which {subject} mounts, does not exist"
    others = host.similar(mount.host_path)
    if others:
        message, fix = f"{missing}; {others[-1]} is there: the driver was updated since", "generate the file again"
        return Finding("library-stale", ERROR, mount.host_path, message, fix, path)
    elsewhere = driver_root.rstrip("/") + mount.container_path
    if driver_root.strip("/") and host.exists(elsewhere):
        message = f"{missing}; {elsewhere} does: the driver's root is {driver_root} now"
        fix = f"generate the file again with --driver-root {driver_root}"
        return Finding("driver-root-moved", ERROR, mount.host_path, message, fix, path)
    fix = "install what brings it, or generate the file again"
    return Finding("mount-missing", ERROR, mount.host_path, missing, fix, path)


def _selinux(host_path: str, path: str, subject: str, host: HostView) -> Iterator[Finding]:
    """An enforcing host denies containers every node but those labelled for them, unless a switch allows devices."""
    if (host.text("/sys/fs/selinux/enforce") or "").strip() != "1":
        return
    label = host.label(host_path)
    if label.startswith("container_"):
        return
    switches = _SELINUX_SWITCHES if label == "xserver_misc_device_t" else _SELINUX_SWITCHES[:1]
    for switch in switches:
        if (host.text(f"/sys/fs/selinux/booleans/{switch}") or "").startswith("1"):
            return
    shown = f" (type {label})" if label else ""
    yield Finding(
        "selinux-denies",
        WARNING,
        host_path,
        f"SELinux enforces and keeps containers away from {host_path}{shown}, which {subject} needs",
        f"setsebool -P {switches[-1]} on, or label the node container_file_t",
        path,
    )
