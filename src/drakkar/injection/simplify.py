"""Tidying a specification that a generator put together: nothing twice, nothing per device that all get, a fixed order.

The rules are those of NVIDIA's toolkit, whose files people compare ours with: what the edits for every container hold
is taken out of the devices (unless a device would be left with nothing, which the specification forbids), devices are
sorted by name, nodes and mounts by depth and path. Pure.
"""

from __future__ import annotations

import posixpath

import msgspec

from .model import ContainerEdits, Device, Spec

__all__ = ["merged", "simplified", "with_merged_device"]

_FIELDS = ("env", "device_nodes", "hooks", "mounts")


def simplified(spec: Spec) -> Spec:
    """The same specification, tidy."""
    common = _tidy(spec.container_edits)
    taken = {field: frozenset(getattr(common, field)) for field in _FIELDS}
    devices = []
    for device in spec.devices:
        own = _tidy(device.container_edits)
        left = msgspec.structs.replace(
            own, **{field: tuple(one for one in getattr(own, field) if one not in taken[field]) for field in _FIELDS}
        )
        something = any(getattr(left, field) for field in _FIELDS)
        devices.append(msgspec.structs.replace(device, container_edits=left if something else own))
    devices.sort(key=lambda device: device.name)
    return msgspec.structs.replace(spec, container_edits=common, devices=tuple(devices))


def with_merged_device(spec: Spec, name: str = "all") -> Spec:
    """The specification with one more device that is all others together; as it is if it has one of that name."""
    if not spec.devices or any(device.name == name for device in spec.devices):
        return spec
    whole = Device(name=name, container_edits=merged([device.container_edits for device in spec.devices]))
    return simplified(msgspec.structs.replace(spec, devices=(*spec.devices, whole)))


def merged(edits: list[ContainerEdits]) -> ContainerEdits:
    """Several edits as one, in their order; of two Intel RDT settings the last counts."""
    rdt = [one.intel_rdt for one in edits if one.intel_rdt is not None]
    return ContainerEdits(
        env=tuple(value for one in edits for value in one.env),
        device_nodes=tuple(node for one in edits for node in one.device_nodes),
        net_devices=tuple(device for one in edits for device in one.net_devices),
        hooks=tuple(hook for one in edits for hook in one.hooks),
        mounts=tuple(mount for one in edits for mount in one.mounts),
        intel_rdt=rdt[-1] if rdt else None,
        additional_gids=tuple(gid for one in edits for gid in one.additional_gids),
    )


def _tidy(edits: ContainerEdits) -> ContainerEdits:
    """Each thing once; nodes and mounts in the order in which a runtime can make them: shallow paths first."""
    return msgspec.structs.replace(
        edits,
        env=tuple(dict.fromkeys(edits.env)),
        device_nodes=tuple(sorted(dict.fromkeys(edits.device_nodes), key=lambda node: _place(node.path))),
        hooks=tuple(dict.fromkeys(edits.hooks)),
        mounts=tuple(sorted(dict.fromkeys(edits.mounts), key=lambda mount: _place(mount.container_path))),
        additional_gids=tuple(sorted(set(edits.additional_gids))),
    )


def _place(path: str) -> tuple[int, str]:
    return posixpath.normpath(path).count("/"), path
