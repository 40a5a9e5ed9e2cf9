"""What a driver counts about its calls, as Prometheus metrics.

Names, labels and buckets are those of NVIDIA's driver 0.5 under the kind's `metrics_prefix`, so that dashboards and
alerts made for it keep working; as there, totals and durations count whole calls that succeeded, and series exist with
0 from the start. Under `drakkar_dra_` stands what is missing there: how long failed calls took, how long calls waited
for another one's device, how old and how large the published slices are, how healthy the devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drakkar.kube.exposition import Family, Histogram

if TYPE_CHECKING:
    from drakkar.drivers.kit.driver import NodeDriver

#: Seconds, as NVIDIA's driver has them; the finer ones are for what takes no time when all is well.
_CALL_BOUNDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
_FINE_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

OPERATIONS = ("prepare", "unprepare")
_ERROR_TYPES = {
    "prepare": ("lock_acquire", "prepare_devices", "publish_resources"),
    "unprepare": ("lock_acquire", "unprepare_devices", "publish_resources"),
}


class Call:
    """One call of the kubelet while it runs; `failed` is the number of its claims that got an error."""

    __slots__ = ("failed",)

    def __init__(self) -> None:
        self.failed = 0


class Figures:
    """Counts of one driver since it started."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.inflight = dict.fromkeys(OPERATIONS, 0)
        self.succeeded = {operation: Histogram(_CALL_BOUNDS) for operation in OPERATIONS}
        self.failed = {operation: Histogram(_CALL_BOUNDS) for operation in OPERATIONS}
        self.lock_waits = Histogram(_FINE_BOUNDS)
        self.errors = {(operation, kind): 0 for operation in OPERATIONS for kind in _ERROR_TYPES[operation]}

    @contextmanager
    def call(self, operation: str) -> Iterator[Call]:
        """Counts a call of `operation` (prepare, unprepare) with its duration; one that raises has failed."""
        call, begun = Call(), self._now()
        self.inflight[operation] += 1
        try:
            yield call
        except BaseException:
            call.failed = max(call.failed, 1)
            raise
        finally:
            self.inflight[operation] -= 1
            (self.failed if call.failed else self.succeeded)[operation].observe(self._now() - begun)
            self.errors[operation, f"{operation}_devices"] += call.failed


def families(driver: NodeDriver) -> list[Family]:
    """The metrics of `driver` now."""
    figures, name, prefix = driver.figures, driver.driver_name, driver.kind.metrics_prefix
    total = Family(f"{prefix}_requests_total", "Calls of the kubelet that succeeded.", "counter")
    duration = Family(f"{prefix}_request_duration_seconds", "How long calls took that succeeded.", "histogram")
    inflight = Family(f"{prefix}_requests_inflight", "Calls of the kubelet being served.")
    failing = Family("drakkar_dra_failed_request_duration_seconds", "How long calls took that failed.", "histogram")
    for operation in OPERATIONS:
        total.add(figures.succeeded[operation].count, driver=name, operation=operation)
        duration.add_histogram(figures.succeeded[operation], driver=name, operation=operation)
        inflight.add(figures.inflight[operation], driver=name, operation=operation)
        failing.add_histogram(figures.failed[operation], driver=name, operation=operation)
    errors = []
    for operation in OPERATIONS:
        family = Family(f"{prefix}_node_{operation}_errors_total", f"Claims that {operation} refused.", "counter")
        for (of, kind), count in figures.errors.items():
            if of == operation:
                family.add(count, driver=name, error_type=kind)
        errors.append(family)
    waits = Family("drakkar_dra_lock_wait_seconds", "How long a claim waited for its devices' turn.", "histogram")
    waits.add_histogram(figures.lock_waits, driver=name)
    return [total, duration, inflight, _prepared(driver, prefix), *errors, failing, waits, *_published(driver)]


def _prepared(driver: NodeDriver, prefix: str) -> Family:
    family = Family(f"{prefix}_prepared_devices", "Devices that are prepared for claims.")
    counts = dict.fromkeys(driver.kind.device_types, 0)
    for held in driver.claims.values():
        for device in held.prepared:
            kind = driver.kind.device_type(device.device_name)
            counts[kind] = counts.get(kind, 0) + 1
    for kind, count in counts.items():
        family.add(count, node=driver.node_name, driver=driver.driver_name, device_type=kind)
    return family


def _published(driver: NodeDriver) -> list[Family]:
    publisher = driver.publisher
    labels = {"node": driver.node_name, "driver": driver.driver_name}
    slices = Family("drakkar_dra_published_slices", "ResourceSlices of the pool.")
    devices = Family("drakkar_dra_published_devices", "Devices in the pool's ResourceSlices.")
    age = Family("drakkar_dra_slice_age_seconds", "Since the published slices were last brought to the hardware.")
    failures = Family("drakkar_dra_publish_failures_total", "Attempts to publish that failed.", "counter")
    slices.add(publisher.slice_count, **labels)
    devices.add(len(publisher.pool.devices) if publisher.pool else 0, **labels)
    failures.add(publisher.failures, **labels)
    if (seconds := publisher.age()) is not None:
        age.add(seconds, **labels)
    health = Family("drakkar_dra_device_health", "1 healthy, 0 unhealthy, -1 unknown.")
    values = {"HEALTHY": 1, "UNHEALTHY": 0}
    for one in driver.device_health:
        health.add(values.get(one.health, -1), **labels, pool=one.pool_name, device=one.device_name)
    return [slices, devices, age, failures, health]
