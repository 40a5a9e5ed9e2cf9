"""What a CDI specification says, as small frozen values.

The names and the order are those of the specification (container-device-interface SPEC.md 1.1.0). Fields that the
wire format leaves out when empty have an empty default; ``None`` stays apart from "empty" only where the specification
gives the difference a meaning (``fileMode``, ``uid``, ``gid``, ``timeout``, ``intelRdt``, ``schemata``). An element
may be ``None`` only before validation: a null in the text.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

__all__ = [
    "ContainerEdits",
    "Device",
    "DeviceNode",
    "Hook",
    "IntelRdt",
    "Mount",
    "NetDevice",
    "Spec",
    "plain",
    "plain_value",
]

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class _Value(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all values here: immutable, camelCase on the wire, unknown keys refused."""


class DeviceNode(_Value, frozen=True):
    """A device node to create; what is missing is read from the host at injection."""

    path: str = msgspec.field()
    host_path: str = ""
    type: str = ""
    major: Int64 = 0
    minor: Int64 = 0
    file_mode: Uint32 | None = None
    permissions: str = ""
    uid: Uint32 | None = None
    gid: Uint32 | None = None


class Mount(_Value, frozen=True):
    """A host path to mount into the container."""

    host_path: str = msgspec.field()
    container_path: str = msgspec.field()
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Value, frozen=True):
    """An OCI hook; ``timeout`` in seconds."""

    hook_name: str = msgspec.field()
    path: str = msgspec.field()
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: Int64 | None = None


class NetDevice(_Value, frozen=True):
    """A network interface of the host to move into the container."""

    host_interface_name: str = msgspec.field()
    name: str = msgspec.field()


class IntelRdt(_Value, frozen=True):
    """Intel Resource Director settings; replace those of the container as a whole."""

    clos_id: str = msgspec.field(default="", name="closID")
    l3_cache_schema: str = msgspec.field(default="", name="l3CacheSchema")
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] | None = None
    enable_monitoring: bool = False


class ContainerEdits(_Value, frozen=True):
    """Changes of an OCI configuration, for one device or for every container that gets a device of the file."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[Uint32, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing would change; ``intelRdt: {}`` and gids ``[0]`` count as content."""
        return not (
            self.env
            or self.device_nodes
            or self.net_devices
            or self.hooks
            or self.mounts
            or self.additional_gids
            or self.intel_rdt is not None
        )


NO_EDITS = ContainerEdits()


class Device(_Value, frozen=True):
    """A named device and its edits."""

    name: str = msgspec.field()
    annotations: dict[str, str] = {}
    container_edits: ContainerEdits = NO_EDITS


class Spec(_Value, frozen=True, kw_only=True):
    """One specification file."""

    cdi_version: str = msgspec.field()
    kind: str = msgspec.field()
    annotations: dict[str, str] = {}
    devices: tuple[Device, ...] = msgspec.field()
    container_edits: ContainerEdits = NO_EDITS


def plain(spec: Spec) -> dict[str, Any]:
    """The specification as plain JSON: empty optional fields left out, ``containerEdits`` always there."""
    tree: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec))
    for owner in (tree, *tree["devices"]):
        edits = owner.setdefault("containerEdits", {})
        rdt = edits.get("intelRdt")
        if rdt and not rdt.get("schemata", True):
            del rdt["schemata"]
    return tree


def plain_value(value: Any) -> Any:
    """Any part of a specification as plain JSON, empty optional fields left out."""
    return msgspec.to_builtins(value)
