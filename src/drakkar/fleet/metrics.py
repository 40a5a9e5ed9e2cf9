"""The fleet as Prometheus metrics. Every number is a gauge of one snapshot; a series per device would be too many.

Labels are bounded by nodes × products × states, classes × states, and namespaces × states or causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drakkar.evidence.snapshot import namespace_of, uid_of
from drakkar.fleet.classes import classes_of_devices
from drakkar.fleet.devices import STATES, Fleet
from drakkar.fleet.tallies import SIZES, tallies
from drakkar.fleet.workloads import claims_by_state, pending_pods, stated_cause
from drakkar.kube.exposition import Family

__all__ = ["families"]


def families(fleet: Fleet, causes: Mapping[str, str] | None = None) -> Iterator[Family]:
    """Every metric of the fleet.

    Args:
        causes: by pod UID, why a pod is pending, as a diagnosis found it; without one, the reason the pod states.
    """
    yield _devices(fleet)
    yield _by_class(fleet)
    yield from _fits(fleet)
    yield _claims(fleet)
    yield _pending(fleet, causes or {})
    yield from _snapshot(fleet)


def _devices(fleet: Fleet) -> Family:
    family = Family("drakkar_devices", "Published devices by state: held, tainted, stranded or free.")
    counts: dict[tuple[str, str, str, str], dict[str, int]] = {}
    for device in fleet.devices:
        key = (device.key.driver, device.node, device.product, device.kind)
        states = counts.setdefault(key, dict.fromkeys(STATES, 0))
        states[device.state] += 1
    for (driver, node, product, kind), states in sorted(counts.items()):
        for state, count in states.items():
            family.add(count, driver=driver, node=node, product=product, type=kind, state=state)
    return family


def _by_class(fleet: Fleet) -> Family:
    family = Family(
        "drakkar_class_devices", "Devices that a DeviceClass selects, by state; a device may be in several."
    )
    for name, devices in classes_of_devices(fleet.snapshot.all("DeviceClass"), fleet.devices).items():
        for state in STATES:
            family.add(sum(device.state == state for device in devices), deviceclass=name, state=state)
    return family


def _fits(fleet: Fleet) -> Iterator[Family]:
    fits = Family(
        "drakkar_fitting_requests", "How many requests for this many devices on one node could be served at once."
    )
    fragmentation = Family(
        "drakkar_fragmentation_ratio", "The part of the free devices that requests of this size leave over."
    )
    for tally in tallies(fleet, "product"):
        for size in SIZES:
            labels = {"driver": tally.driver, "product": tally.group, "type": tally.kind, "size": str(size)}
            fits.add(tally.fits(size), **labels)
            fragmentation.add(tally.fragmentation(size), **labels)
    yield fits
    yield fragmentation


def _claims(fleet: Fleet) -> Family:
    family = Family("drakkar_claims", "ResourceClaims by state; allocated: holds devices and serves nobody.")
    for (namespace, state), count in sorted(claims_by_state(fleet.snapshot).items()):
        family.add(count, namespace=namespace, state=state)
    return family


def _pending(fleet: Fleet, causes: Mapping[str, str]) -> Family:
    family = Family("drakkar_pending_pods", "Pending pods that ask for devices, by cause.")
    counts: dict[tuple[str, str], int] = {}
    for pod in pending_pods(fleet.snapshot):
        key = (namespace_of(pod), causes.get(uid_of(pod)) or stated_cause(pod))
        counts[key] = counts.get(key, 0) + 1
    for (namespace, cause), count in sorted(counts.items()):
        family.add(count, namespace=namespace, cause=cause)
    return family


def _snapshot(fleet: Fleet) -> Iterator[Family]:
    taken = Family("drakkar_snapshot_timestamp_seconds", "When the numbers were true, in seconds since 1970.")
    if fleet.snapshot.captured_at is not None:
        taken.add(fleet.snapshot.captured_at.timestamp())
    yield taken
    unread = Family(
        "drakkar_snapshot_unread_resources", "Kinds of objects that could not be read; numbers may be too small."
    )
    unread.add(len(fleet.snapshot.unread))
    yield unread
