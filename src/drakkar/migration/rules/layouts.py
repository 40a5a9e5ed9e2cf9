"""MIG: who creates the devices, and who tells the driver after a change; driver reloads and who gets evicted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drakkar.kube.paths import value_at
from drakkar.migration.charts import Values
from drakkar.migration.context import release
from drakkar.migration.documents import items_at
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_CLIENT: Final = "nvidia.com/gpu.deploy.client"
_RESTARTS_FROM: Final = (0, 15)
_EVICTS_FROM: Final = (0, 12)
_VARIABLES: Final = ("NODE_LABEL_FOR_GPU_POD_EVICTION", "DRAIN_POD_SELECTOR_LABEL")


@rule("layouts")
def not_created(review: Review) -> Iterator[Finding]:
    """A request for MIG devices in a cluster whose values create none."""
    drivers, operators = review.chart("dra"), review.chart("operator")
    if not drivers or not operators:
        return
    if any(values.get("featureGates", "DynamicMIG") is True for values in drivers):
        return
    if any(values.get("migManager", "enabled") is not False for values in operators) or _recorded(review):
        return
    for _, request in review.iterate_requests():
        kinds = review.device_kinds(request.class_name)
        if len(kinds) == 1 and kinds[0].type == "mig":
            yield request.document.finding(
                "mig-not-created",
                (*request.steps, "deviceClassName"),
                "nothing in these values creates MIG devices (migManager is off, and so is the driver's gate"
                " DynamicMIG); a"
                " claim does not create them by itself: lay them out with the MIG manager, or enable DynamicMIG",
            )


def _recorded(review: Review) -> bool:
    for obj in review.recorded("ResourceSlice"):
        for device in items_at(obj, "spec", "devices"):
            if value_at(device, ("attributes", "type", "string")) == "mig":
                return True
    return False


@rule("layouts")
def stale_slices(review: Review) -> Iterator[Finding]:
    """MIG changes that do not restart the plugin which publishes the devices."""
    drivers = [values for values in review.chart("dra") if values.get("resources", "gpus", "enabled") is True]
    if not drivers or any(values.get("featureGates", "DynamicMIG") is True for values in drivers):
        return
    managers = [
        values
        for values in review.chart("operator")
        if values.mapping("migManager") and values.get("migManager", "enabled") is not False
    ]
    old = [values for values in managers if _older(values.get("migManager", "version"), _RESTARTS_FROM)]
    for values in old:
        yield values.finding(
            "stale-slices-after-mig-change",
            ("migManager", "version"),
            f"MIG manager {values.get('migManager', 'version')} restarts nothing after a change, so ResourceSlices go"
            " stale;"
            f" from 0.15 it restarts DaemonSets that select {_CLIENT}",
        )
    if old or not managers:
        return
    for values in drivers:
        selector = values.get("kubeletPlugin", "nodeSelector")
        if isinstance(selector, dict) and _CLIENT not in selector:
            yield values.finding(
                "stale-slices-after-mig-change",
                ("kubeletPlugin", "nodeSelector"),
                f"after a MIG change the manager restarts DaemonSets that select {_CLIENT}; this selector lacks it,"
                " so the"
                " plugin is not restarted and its slices go stale",
                f'{_CLIENT}: "true"',
            )


def _older(version: object, than: tuple[int, ...]) -> bool:
    found = release(version) if isinstance(version, str) else ()
    return bool(found) and found < than


@rule("layouts")
def empty_default(review: Review) -> Iterator[Finding]:
    """No default layout."""
    for values in review.chart("operator"):
        if values.get("migManager", "config", "default") == "" and values.get("migManager", "enabled") is not False:
            yield values.finding(
                "mig-default-empty",
                ("migManager", "config", "default"),
                "without a default the MIG manager leaves nodes without the label nvidia.com/mig.config alone",
                "all-disabled",
            )


@rule("layouts")
def eviction(review: Review) -> Iterator[Finding]:
    """A variable that is taken for the eviction of workloads with claims."""
    for values in review.chart("operator"):
        variables = values.get("driver", "manager", "env")
        if release(str(values.get("driver", "manager", "version") or "")) >= _EVICTS_FROM:
            continue
        for number, entry in enumerate(variables if isinstance(variables, list) else ()):
            if isinstance(entry, dict) and _selects_plugin(entry):
                yield _eviction(values, number, str(entry["name"]), str(entry.get("value", "")))


def _selects_plugin(entry: dict[str, object]) -> bool:
    return entry.get("name") == _VARIABLES[0] or (
        entry.get("name") == _VARIABLES[1] and "dra" in str(entry.get("value"))
    )


def _eviction(values: Values, number: int, name: str, value: str) -> Finding:
    return values.finding(
        "eviction-label-selects-plugin",
        ("driver", "manager", "env", number),
        f"{name}={value} makes the driver manager evict the DRA plugin's pods, not the workloads that hold GPUs through"
        " claims; those it evicts from driver-manager 0.12 on",
    )
