"""Edits worked out as far as they do not depend on the container: entries to copy into an OCI configuration.

A runtime injects the same devices again and again. The names of variables, the depth of mount points, the entries for
devices, rules, mounts and hooks are the same every time; what remains per container is to copy them and ask the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .model import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from .paths import clean, depth

__all__ = ["Block", "PreparedMount", "PreparedNode", "prepare"]


class PreparedNode(NamedTuple):
    """A device node: its entry with what the specification gives, and its cgroup rule if that is all there is to know.

    ``complete``: type and number are given, so that the host need not have the node.
    """

    host_path: str
    complete: bool
    device: dict[str, Any]
    permissions: str
    rule: dict[str, Any] | None

    def rule_for(self, kind: str, major: int, minor: int) -> dict[str, Any] | None:
        """The cgroup rule for a node of that type and number; None for what has no rules."""
        if kind not in ("b", "c"):
            return None
        rule = {"allow": True, "type": kind, "major": major, "minor": minor}
        if self.permissions != "none":
            rule["access"] = self.permissions or "rwm"
        return rule


class PreparedMount(NamedTuple):
    """A mount: its entry without options, the options with and without mapped ids, the depth of its path."""

    path: str
    depth: int
    covers_root: bool
    entry: dict[str, Any]
    options: list[str]
    mapped_options: list[str]


class Block(NamedTuple):
    """One block of edits."""

    env: list[tuple[str, str]]
    nodes: list[PreparedNode]
    net_devices: tuple[NetDevice, ...]
    mounts: list[PreparedMount]
    hooks: list[tuple[str, dict[str, Any]]]
    intel_rdt: dict[str, Any] | None
    gids: list[int]


def prepare(edits: ContainerEdits) -> Block:
    """Works out a valid block of edits."""
    return Block(
        [(variable.partition("=")[0], variable) for variable in edits.env],
        [_node(node) for node in edits.device_nodes],
        edits.net_devices,
        [_mount(mount) for mount in edits.mounts],
        [(hook.hook_name, _hook(hook)) for hook in edits.hooks],
        None if edits.intel_rdt is None else _rdt(edits.intel_rdt),
        [gid for gid in edits.additional_gids if gid],
    )


def _node(node: DeviceNode) -> PreparedNode:
    complete = bool(node.type) and (node.major != 0 or node.type == "p")
    device: dict[str, Any] = {"path": node.path, "type": node.type, "major": node.major, "minor": node.minor}
    for key, value in (("fileMode", node.file_mode), ("uid", node.uid), ("gid", node.gid)):
        if value is not None:
            device[key] = value
    prepared = PreparedNode(node.host_path or node.path, complete, device, node.permissions, None)
    return prepared._replace(rule=prepared.rule_for(node.type, node.major, node.minor))


def _mount(mount: Mount) -> PreparedMount:
    entry: dict[str, Any] = {"destination": mount.container_path}
    if mount.type:
        entry["type"] = mount.type
    entry["source"] = mount.host_path
    options = list(mount.options)
    mapped = list(options)
    if "idmap" not in options and "ridmap" not in options:
        option = "idmap" if mount.type == "bind" else ""
        for word in options:
            option = {"bind": "idmap", "rbind": "ridmap"}.get(word, option)
        if option:
            mapped.append(option)
    path = mount.container_path
    return PreparedMount(path, depth(path), clean(path) == "/", entry, options, mapped)


def _hook(hook: Hook) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": hook.path}
    if hook.args:
        entry["args"] = list(hook.args)
    if hook.env:
        entry["env"] = list(hook.env)
    if hook.timeout is not None:
        entry["timeout"] = hook.timeout
    return entry


def _rdt(rdt: IntelRdt) -> dict[str, Any]:
    fields = {
        "closID": rdt.clos_id,
        "l3CacheSchema": rdt.l3_cache_schema,
        "memBwSchema": rdt.mem_bw_schema,
        "schemata": list(rdt.schemata or ()),
        "enableMonitoring": rdt.enable_monitoring,
    }
    return {key: value for key, value in fields.items() if value}
