"""Edits applied to an OCI runtime configuration, on a copy: the caller gets a whole result or an error, never a half.

Order and results are those of the reference library 1.1.2: environment, device nodes with their cgroup rules, network
devices, mounts (sorted by depth), hooks, resource director, additional groups. The host is asked through one function,
so that the same code runs on a machine and on a table in a test. Only the parts that change are copied; everything
else is shared with the input, which stays as it was. What of an edit does not depend on the configuration is worked out
once (:mod:`prepared`), since the same edits go into one container after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from .errors import CdiError, Problem
from .model import ContainerEdits, NetDevice
from .paths import depth
from .prepared import Block, PreparedMount, PreparedNode, prepare

__all__ = ["HostNode", "Injection", "Lstat", "apply", "apply_blocks"]

OciConfig = dict[str, Any]


class HostNode(NamedTuple):
    """A device node of the host: ``type`` is b, c or p; ``mode`` holds the permission bits."""

    type: str
    major: int
    minor: int
    mode: int


Lstat = Callable[[str], HostNode]
"""Looks at a host path without following links; raises OSError where it is missing or no device node."""


class Injection(NamedTuple):
    """The edited copy and what looked wrong on the way although it did not stop the injection."""

    config: OciConfig
    warnings: list[str]


def apply(config: OciConfig, blocks: Sequence[ContainerEdits], lstat: Lstat) -> Injection:
    """Applies blocks of edits, in order, to a copy of ``config``.

    Args:
        config: a parsed OCI runtime configuration (``config.json``); not changed.
        blocks: valid edits, global edits of a file before those of its first device.
        lstat: the host's device nodes.

    Raises:
        CdiError: a host node is missing or of another type, two devices move one network interface, or ``config``
            has the wrong shape.
    """
    return apply_blocks(config, [prepare(block) for block in blocks], lstat)


def apply_blocks(config: OciConfig, blocks: Sequence[Block], lstat: Lstat) -> Injection:
    """As :func:`apply`, for edits that are prepared already."""
    net_devices = [device for block in blocks for device in block.net_devices]
    if net_devices:
        from .rules import net_device_problems

        for problem in net_device_problems(net_devices):
            raise CdiError(f"failed to inject devices: {problem.message}", problems=[Problem(problem.message)])
    try:
        return _apply(_Copy(config), blocks, net_devices, lstat)
    except (AttributeError, TypeError, ValueError):
        raise CdiError(
            "can't inject devices, the OCI Spec has values of the wrong type", reason="InvalidOciConfig"
        ) from None


def _apply(oci: _Copy, blocks: Sequence[Block], net_devices: Sequence[NetDevice], lstat: Lstat) -> Injection:
    warnings: list[str] = []
    _edit_env(oci, blocks, warnings)
    nodes = [node for block in blocks for node in block.nodes]
    if nodes:
        _edit_nodes(oci, nodes, lstat, warnings)
    for device in net_devices:
        oci.object_at(("linux", "netDevices"))[device.host_interface_name] = {"name": device.name}
    mounts = [mount for block in blocks for mount in block.mounts]
    if mounts:
        _edit_mounts(oci, mounts, warnings)
    for block in blocks:
        for name, hook in block.hooks:
            oci.list_at(("hooks", name)).append({key: _fresh(value) for key, value in hook.items()})
    for block in blocks:
        if block.intel_rdt is not None:
            oci.object_at(("linux",))["intelRdt"] = {key: _fresh(value) for key, value in block.intel_rdt.items()}
    _edit_groups(oci, (gid for block in blocks for gid in block.gids))
    return Injection(oci.root, warnings)


def _fresh(value: Any) -> Any:
    """The value for a configuration of its own: whoever changes a list there must not change the next container's."""
    return value.copy() if isinstance(value, list) else value


class _Copy:
    """A copy of a configuration whose inner objects and lists are copied when first written to."""

    __slots__ = ("_own", "root")

    def __init__(self, config: OciConfig) -> None:
        if not isinstance(config, dict):
            raise CdiError("can't inject devices, the OCI Spec is not an object", reason="InvalidOciConfig")
        self.root: OciConfig = dict(config)
        self._own: dict[tuple[str, ...], Any] = {(): self.root}

    def object_at(self, path: tuple[str, ...]) -> dict[str, Any]:
        """The object at ``path``, to be changed; made where it is absent or null."""
        own: dict[str, Any] | None = self._own.get(path)
        if own is None:
            parent = self.object_at(path[:-1])
            found = parent.get(path[-1])
            if found is not None and not isinstance(found, dict):
                raise _wrong_shape(path, "an object")
            own = dict(found) if found is not None else _new_object(path)
            parent[path[-1]] = self._own[path] = own
        return own

    def list_at(self, path: tuple[str, ...]) -> list[Any]:
        """The list at ``path``, to be changed; made where it is absent or null."""
        own: list[Any] | None = self._own.get(path)
        if own is None:
            parent = self.object_at(path[:-1])
            found = parent.get(path[-1])
            if found is not None and not isinstance(found, list):
                raise _wrong_shape(path, "a list")
            own = list(found) if found is not None else []
            parent[path[-1]] = self._own[path] = own
        return own


def _new_object(path: tuple[str, ...]) -> dict[str, Any]:
    # OCI's process always has these; a runtime refuses one without cwd, but that is the caller's configuration.
    return {"user": {"uid": 0, "gid": 0}, "cwd": ""} if path == ("process",) else {}


def _wrong_shape(path: tuple[str, ...], wanted: str) -> CdiError:
    return CdiError(f"{'.'.join(path)} of the OCI Spec is not {wanted}", reason="InvalidOciConfig")


def _edit_env(oci: _Copy, blocks: Sequence[Block], warnings: list[str]) -> None:
    variables = [pair for block in blocks for pair in block.env]
    if not variables:
        return
    env = oci.list_at(("process", "env"))
    places = {str(variable).partition("=")[0]: index for index, variable in enumerate(env)}
    given: dict[str, str] = {}
    for name, variable in variables:
        place = places.get(name)
        if place is None:
            places[name] = len(env)
            env.append(variable)
        else:
            env[place] = variable
        if given.setdefault(name, variable) != variable:
            warnings.append(f"environment variable {name} is set more than once, {variable} replaces {given[name]}")
            given[name] = variable


def _edit_nodes(oci: _Copy, nodes: Sequence[PreparedNode], lstat: Lstat, warnings: list[str]) -> None:
    process = oci.root.get("process") or {}
    user = process.get("user") or {}
    owner = {key: user[key] for key in ("uid", "gid") if user.get(key, 0) > 0}
    devices = oci.list_at(("linux", "devices"))
    paths = {entry.get("path") for entry in devices}
    rules: list[Any] | None = None
    for node in nodes:
        device = node.device.copy()
        rule = node.rule
        try:
            host = lstat(node.host_path)
        except (OSError, ValueError) as error:
            if not node.complete:
                raise _missing(node, error) from None
        else:
            rule = _filled(node, device, host, warnings)
        for key, value in owner.items():
            device.setdefault(key, value)
        path = device["path"]
        if path in paths:
            _replace_device(devices, device)
        else:
            paths.add(path)
            devices.append(device)
        if rule is not None:
            if rules is None:
                rules = oci.list_at(("linux", "resources", "devices"))
            rules.append(rule.copy())


def _replace_device(devices: list[dict[str, Any]], device: dict[str, Any]) -> None:
    """The first entry of the path goes; a second one is replaced in place, else the new one is appended."""
    places = [index for index, entry in enumerate(devices) if entry.get("path") == device["path"]]
    if len(places) > 1:
        devices[places[1]] = device
    else:
        devices.append(device)
    del devices[places[0]]


def _missing(node: PreparedNode, error: OSError | ValueError) -> CdiError:
    text = getattr(error, "strerror", None) or str(error)
    return CdiError(
        f'failed to inject devices: failed to stat CDI host device "{node.host_path}": {text.lower()}',
        reason="HostDeviceMissing",
        next_step=f"ls -l {node.host_path}",
    )


def _filled(node: PreparedNode, device: dict[str, Any], host: HostNode, warnings: list[str]) -> dict[str, Any] | None:
    """Fills what the specification left to the host into ``device``; returns the cgroup rule, None for a fifo."""
    if "fileMode" not in device:
        device["fileMode"] = host.mode
        for key in ("uid", "gid"):  # they stand behind the mode
            if key in device:
                device[key] = device.pop(key)
    kind = device["type"]
    if node.complete:
        _compare(node, host, warnings)
        return node.rule
    if kind and kind != host.type:
        raise CdiError(
            f'failed to inject devices: CDI device ("{device["path"]}", "{node.host_path}"), host type mismatch'
            f" ({kind}, {host.type})",
            reason="HostDeviceMismatch",
        )
    device["type"] = host.type
    if host.type != "p":
        if node.device["major"] == 0:
            device["major"], device["minor"] = host.major, host.minor
        else:
            _compare(node, host, warnings)
    return node.rule_for(host.type, device["major"], device["minor"])


def _compare(node: PreparedNode, host: HostNode, warnings: list[str]) -> None:
    """Notes where stored facts and the host differ; the stored ones are used, as the specification says."""
    stored = node.device
    path, major, minor = stored["path"], stored["major"], stored["minor"]
    kind = "c" if stored["type"] == "u" else stored["type"] or host.type
    if kind != host.type:
        warnings.append(f"device {path}: type {kind} is stored but {node.host_path} is of type {host.type}")
    elif kind != "p" and (major, minor) != (host.major, host.minor):
        part = "major" if major != host.major else "minor"
        warnings.append(
            f"device {path}: {part} number is stale: {major}:{minor} is stored but {node.host_path} has"
            f" {host.major}:{host.minor}"
        )


def _edit_mounts(oci: _Copy, mounts: list[PreparedMount], warnings: list[str]) -> None:
    target = oci.list_at(("mounts",))
    mapped = _maps_ids(oci.root.get("linux"))
    destinations = {entry.get("destination") for entry in target}
    depths: list[tuple[int, int, dict[str, Any]]] = []  # of the new entries, with their place among them
    for number, mount in enumerate(mounts):
        path = mount.path
        if path in destinations:
            _remove_first(target, depths, path)
        destinations.add(path)
        depths.append((mount.depth, number, _oci_mount(mount, mapped)))
        if mount.covers_root:
            warnings.append(f"mount of {mount.entry['source']} at / hides the mounts made before it, e.g. /proc")
    first = len(target)
    ordered = [(depth(entry.get("destination", "")), number - first, entry) for number, entry in enumerate(target)]
    ordered += depths
    ordered.sort(key=_depth_and_number)
    target[:] = [entry for _, _, entry in ordered]


def _remove_first(target: list[dict[str, Any]], ours: list[tuple[int, int, dict[str, Any]]], path: str) -> None:
    """The first entry of the path goes, one of the configuration before one of ours; rare, so it is searched for."""
    for index, entry in enumerate(target):
        if entry.get("destination") == path:
            del target[index]
            return
    for index, (_, _, entry) in enumerate(ours):
        if entry["destination"] == path:
            del ours[index]
            return


_depth_and_number = itemgetter(0, 1)


def _maps_ids(linux: dict[str, Any] | None) -> bool:
    if not linux or not linux.get("uidMappings") or not linux.get("gidMappings"):
        return False
    return any(namespace.get("type") == "user" for namespace in linux.get("namespaces") or ())


def _oci_mount(mount: PreparedMount, mapped: bool) -> dict[str, Any]:
    entry = mount.entry.copy()
    options = mount.mapped_options if mapped else mount.options
    if options:
        entry["options"] = options.copy()
    return entry


def _edit_groups(oci: _Copy, gids: Iterable[int]) -> None:
    wanted = list(gids)
    if not wanted:
        return
    groups = oci.list_at(("process", "user", "additionalGids"))
    for gid in wanted:
        if gid not in groups:
            groups.append(gid)
