"""Edits applied to an OCI runtime configuration, on a copy: the caller gets a whole result or an error, never a half.

Order and results are those of the reference library 1.1.2: environment, device nodes with their cgroup rules, network
devices, mounts (sorted by depth), hooks, resource director, additional groups. The host is asked through one function,
so that the same code runs on a machine and on a table in a test. Only the parts that change are copied; everything
else is shared with the input, which stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .errors import CdiError, Problem
from .model import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from .paths import clean, depth

__all__ = ["HostNode", "Injection", "Lstat", "apply"]

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


def _apply(oci: _Copy, blocks: Sequence[ContainerEdits], net_devices: Sequence[NetDevice], lstat: Lstat) -> Injection:
    warnings: list[str] = []
    _edit_env(oci, [variable for block in blocks for variable in block.env], warnings)
    nodes = [node for block in blocks for node in block.device_nodes]
    if nodes:
        _edit_nodes(oci, nodes, lstat, warnings)
    for device in net_devices:
        oci.object_at(("linux", "netDevices"))[device.host_interface_name] = {"name": device.name}
    mounts = [mount for block in blocks for mount in block.mounts]
    if mounts:
        _edit_mounts(oci, mounts, warnings)
    for block in blocks:
        for hook in block.hooks:
            oci.list_at(("hooks", hook.hook_name)).append(_oci_hook(hook))
    for block in blocks:
        if block.intel_rdt is not None:
            oci.object_at(("linux",))["intelRdt"] = _oci_rdt(block.intel_rdt)
    _edit_groups(oci, (gid for block in blocks for gid in block.additional_gids if gid))
    return Injection(oci.root, warnings)


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


def _edit_env(oci: _Copy, variables: list[str], warnings: list[str]) -> None:
    if not variables:
        return
    env = oci.list_at(("process", "env"))
    places = {str(variable).partition("=")[0]: index for index, variable in enumerate(env)}
    given: dict[str, str] = {}
    for variable in variables:
        name = variable.partition("=")[0]
        place = places.get(name)
        if place is None:
            places[name] = len(env)
            env.append(variable)
        else:
            env[place] = variable
        if given.setdefault(name, variable) != variable:
            warnings.append(f"environment variable {name} is set more than once, {variable} replaces {given[name]}")
            given[name] = variable


def _edit_nodes(oci: _Copy, nodes: Sequence[DeviceNode], lstat: Lstat, warnings: list[str]) -> None:
    process = oci.root.get("process") or {}
    user = process.get("user") or {}
    owner = {key: user[key] for key in ("uid", "gid") if user.get(key, 0) > 0}
    devices = oci.list_at(("linux", "devices"))
    paths = {entry.get("path") for entry in devices}
    rules: list[Any] | None = None
    for node in nodes:
        device = _oci_device(node, lstat, warnings)
        for key, value in owner.items():
            device.setdefault(key, value)
        if node.path in paths:
            _replace_device(devices, device)
        else:
            paths.add(node.path)
            devices.append(device)
        kind = device["type"]
        if kind in ("b", "c"):
            rule = {"allow": True, "type": kind, "major": device["major"], "minor": device["minor"]}
            if node.permissions != "none":
                rule["access"] = node.permissions or "rwm"
            if rules is None:
                rules = oci.list_at(("linux", "resources", "devices"))
            rules.append(rule)


def _replace_device(devices: list[dict[str, Any]], device: dict[str, Any]) -> None:
    """The first entry of the path goes; a second one is replaced in place, else the new one is appended."""
    places = [index for index, entry in enumerate(devices) if entry.get("path") == device["path"]]
    if len(places) > 1:
        devices[places[1]] = device
    else:
        devices.append(device)
    del devices[places[0]]


def _oci_device(node: DeviceNode, lstat: Lstat, warnings: list[str]) -> dict[str, Any]:
    kind, major, minor, mode = node.type, node.major, node.minor, node.file_mode
    complete = bool(kind) and (major != 0 or kind == "p")
    host_path = node.host_path or node.path
    try:
        host = lstat(host_path)
    except (OSError, ValueError) as error:
        if not complete:
            text = getattr(error, "strerror", None) or str(error)
            raise CdiError(
                f'failed to inject devices: failed to stat CDI host device "{host_path}": {text.lower()}',
                reason="HostDeviceMissing",
                next_step=f"ls -l {host_path}",
            ) from None
    else:
        if mode is None:
            mode = host.mode
        if complete:
            _compare(node, host, host_path, warnings)
        else:
            kind = kind or host.type
            if kind != host.type:
                raise CdiError(
                    f'failed to inject devices: CDI device ("{node.path}", "{host_path}"), host type mismatch'
                    f" ({kind}, {host.type})",
                    reason="HostDeviceMismatch",
                )
            if kind != "p":
                if major == 0:
                    major, minor = host.major, host.minor
                else:
                    _compare(node, host, host_path, warnings)
    device: dict[str, Any] = {"path": node.path, "type": kind, "major": major, "minor": minor}
    if mode is not None:
        device["fileMode"] = mode
    if node.uid is not None:
        device["uid"] = node.uid
    if node.gid is not None:
        device["gid"] = node.gid
    return device


def _compare(node: DeviceNode, host: HostNode, host_path: str, warnings: list[str]) -> None:
    """Notes where stored facts and the host differ; the stored ones are used, as the specification says."""
    kind = "c" if node.type == "u" else node.type or host.type
    if kind != host.type:
        warnings.append(f"device {node.path}: type {kind} is stored but {host_path} is of type {host.type}")
    elif kind != "p" and (node.major, node.minor) != (host.major, host.minor):
        part = "major" if node.major != host.major else "minor"
        warnings.append(
            f"device {node.path}: {part} number is stale: {node.major}:{node.minor} is stored but {host_path} has"
            f" {host.major}:{host.minor}"
        )


def _edit_mounts(oci: _Copy, mounts: list[Mount], warnings: list[str]) -> None:
    target = oci.list_at(("mounts",))
    mapped = _maps_ids(oci.root.get("linux"))
    destinations = {entry.get("destination") for entry in target}
    for mount in mounts:
        path = mount.container_path
        if path in destinations:
            del target[next(index for index, entry in enumerate(target) if entry.get("destination") == path)]
        destinations.add(path)
        target.append(_oci_mount(mount, mapped))
    target.sort(key=lambda entry: depth(entry.get("destination", "")))
    for mount in mounts:
        if clean(mount.container_path) == "/":
            warnings.append(f"mount of {mount.host_path} at / hides the mounts made before it, e.g. /proc")


def _maps_ids(linux: dict[str, Any] | None) -> bool:
    if not linux or not linux.get("uidMappings") or not linux.get("gidMappings"):
        return False
    return any(namespace.get("type") == "user" for namespace in linux.get("namespaces") or ())


def _oci_mount(mount: Mount, mapped: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"destination": mount.container_path}
    if mount.type:
        entry["type"] = mount.type
    entry["source"] = mount.host_path
    options = list(mount.options)
    if mapped and "idmap" not in options and "ridmap" not in options:
        option = "idmap" if mount.type == "bind" else ""
        for word in options:
            option = {"bind": "idmap", "rbind": "ridmap"}.get(word, option)
        if option:
            options.append(option)
    if options:
        entry["options"] = options
    return entry


def _oci_hook(hook: Hook) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": hook.path}
    if hook.args:
        entry["args"] = list(hook.args)
    if hook.env:
        entry["env"] = list(hook.env)
    if hook.timeout is not None:
        entry["timeout"] = hook.timeout
    return entry


def _oci_rdt(rdt: IntelRdt) -> dict[str, Any]:
    fields = {
        "closID": rdt.clos_id,
        "l3CacheSchema": rdt.l3_cache_schema,
        "memBwSchema": rdt.mem_bw_schema,
        "schemata": list(rdt.schemata or ()),
        "enableMonitoring": rdt.enable_monitoring,
    }
    return {key: value for key, value in fields.items() if value}


def _edit_groups(oci: _Copy, gids: Iterable[int]) -> None:
    wanted = list(gids)
    if not wanted:
        return
    groups = oci.list_at(("process", "user", "additionalGids"))
    for gid in wanted:
        if gid not in groups:
            groups.append(gid)
