"""Which version of the specification a file needs, and what an older one would lose.

Each row of the table is one feature with the version that brought it (SPEC.md, "Released versions"). The minimum
version of a file, the check of its declared version and the downgrade all read the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from .errors import CdiError
from .model import ContainerEdits, Device, Spec

__all__ = ["EARLIEST", "LATEST", "VERSIONS", "check_version", "downgrade", "minimum_version"]

VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
EARLIEST: Final = "0.3.0"
LATEST: Final = VERSIONS[-1]


class Feature(NamedTuple):
    """Something newer than 0.3.0: ``used`` tells whether edits, device or file have it, ``without`` takes it away.

    ``without`` is None where taking it away would change what the container gets, so that a downgrade must refuse.
    """

    name: str
    since: str
    scope: str  # "edits", "device" or "spec"
    used: Callable[[Any], bool]
    without: Callable[[Any], Any] | None = None


def _replace(**changes: Any) -> Callable[[Any], Any]:
    return lambda value: msgspec.structs.replace(value, **changes)


FEATURES: Final = (
    Feature("netDevices", "1.1.0", "edits", lambda e: bool(e.net_devices)),
    Feature(
        "intelRdt.schemata", "1.1.0", "edits", lambda e: e.intel_rdt is not None and e.intel_rdt.schemata is not None
    ),
    Feature(
        "intelRdt.enableMonitoring",
        "1.1.0",
        "edits",
        lambda e: e.intel_rdt is not None and e.intel_rdt.enable_monitoring,
        lambda e: msgspec.structs.replace(e, intel_rdt=msgspec.structs.replace(e.intel_rdt, enable_monitoring=False)),
    ),
    Feature("intelRdt", "0.7.0", "edits", lambda e: e.intel_rdt is not None),
    Feature(
        "additionalGids",
        "0.7.0",
        "edits",
        lambda e: bool(e.additional_gids),
        _replace(additional_gids=()),
    ),
    Feature("annotations", "0.6.0", "spec", lambda s: bool(s.annotations), _replace(annotations={})),
    Feature("annotations", "0.6.0", "device", lambda d: bool(d.annotations), _replace(annotations={})),
    Feature("a dot in the class", "0.6.0", "spec", lambda s: "." in s.kind.partition("/")[2]),
    Feature("a device name that begins with a digit", "0.5.0", "device", lambda d: "0" <= d.name[:1] <= "9"),
    Feature(
        "deviceNodes.hostPath",
        "0.5.0",
        "edits",
        lambda e: any(node is not None and node.host_path for node in e.device_nodes),
        lambda e: _without_host_paths(e),  # noqa: PLW0108 - defined below
    ),
    Feature(
        "mounts.type",
        "0.4.0",
        "edits",
        lambda e: any(mount is not None and mount.type for mount in e.mounts),
        lambda e: msgspec.structs.replace(
            e, mounts=tuple(msgspec.structs.replace(mount, type="") for mount in e.mounts)
        ),
    ),
)


def minimum_version(spec: Spec) -> str:
    """The oldest version of the specification that has everything the file uses."""
    owners = _owners(spec)
    for feature in FEATURES:  # newest first; asked for every claim that is prepared: no generator for each feature
        for owner in owners[feature.scope]:
            if feature.used(owner):
                return feature.since
    return EARLIEST


def check_version(spec: Spec) -> str:
    """What is wrong with the declared version, or "": it must be a released one and not below what is used."""
    declared = spec.cdi_version.removeprefix("v")
    if declared not in VERSIONS:
        return f'invalid version "{spec.cdi_version}"'
    minimum = minimum_version(spec)
    if VERSIONS.index(declared) < VERSIONS.index(minimum):
        return f"the spec version must be at least v{minimum}, it uses {_reason(spec, minimum)}"
    return ""


def downgrade(spec: Spec, maximum: str) -> Spec:
    """The file for consumers that know the specification only up to ``maximum``; declares the version it needs.

    Newer fields that only refine the result are dropped (annotations, additional groups, mount types, a host path
    equal to the path, monitoring); those without which the container would get something else are refused.

    Raises:
        CdiError: ``maximum`` is no version, or a feature cannot be dropped.
    """
    if maximum not in VERSIONS or VERSIONS.index(maximum) < VERSIONS.index(EARLIEST):
        raise CdiError(
            f"unknown CDI version {maximum!r}",
            reason="UnknownVersion",
            expected="one of " + ", ".join(VERSIONS[VERSIONS.index(EARLIEST) :]),
        )
    limit = VERSIONS.index(maximum)
    for feature in FEATURES:
        if VERSIONS.index(feature.since) > limit:
            spec = _drop(spec, feature, maximum)
    return msgspec.structs.replace(spec, cdi_version=minimum_version(spec))


def _drop(spec: Spec, feature: Feature, maximum: str) -> Spec:
    def dropped(owner: Any, place: str) -> Any:
        if not feature.used(owner):
            return owner
        result = feature.without(owner) if feature.without else owner
        if feature.used(result):
            raise CdiError(
                f"{feature.name} in {place} needs CDI {feature.since} and cannot be left out for {maximum}",
                reason="VersionTooLow",
                next_step=f"use --max-cdi-version {feature.since} or a newer consumer",
            )
        return result

    if feature.scope == "spec":
        result: Spec = dropped(spec, f"kind {spec.kind}")
        return result
    if feature.scope == "device":
        return msgspec.structs.replace(
            spec, devices=tuple(dropped(device, f"device {device.name}") for device in spec.devices)
        )
    return msgspec.structs.replace(
        spec,
        container_edits=dropped(spec.container_edits, "the edits of the file"),
        devices=tuple(
            msgspec.structs.replace(d, container_edits=dropped(d.container_edits, f"device {d.name}"))
            for d in spec.devices
        ),
    )


def _without_host_paths(edits: ContainerEdits) -> ContainerEdits:
    nodes = tuple(
        msgspec.structs.replace(node, host_path="") if node.host_path == node.path else node
        for node in edits.device_nodes
    )
    return msgspec.structs.replace(edits, device_nodes=nodes)


def _edits(spec: Spec) -> Iterator[ContainerEdits]:
    yield spec.container_edits
    for device in spec.devices:
        yield device.container_edits


def _owners(spec: Spec) -> dict[str, tuple[ContainerEdits | Device | Spec, ...]]:
    """By the scope of features what may have them."""
    return {"edits": tuple(_edits(spec)), "device": spec.devices, "spec": (spec,)}


def _reason(spec: Spec, minimum: str) -> str:
    owners = _owners(spec)
    used = (f.name for f in FEATURES if f.since == minimum and any(f.used(owner) for owner in owners[f.scope]))
    return next(used, "a newer field")
