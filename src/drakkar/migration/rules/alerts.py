"""Alerts and records that say something else than they measure, always fire, or fall silent when it matters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from drakkar.migration.alerts import Alert, alerts_of
from drakkar.migration.findings import Finding
from drakkar.migration.metrics import BORN_AT_ONE, STICKY
from drakkar.migration.promql import Binary, Call, Expression, Selector, walk
from drakkar.migration.review import Review
from drakkar.migration.rules import rule
from drakkar.migration.rules.series import exported
from drakkar.migration.rules.thresholds import comparisons, constant

_HEALTHY: Final = re.compile(
    r"health|(?:^|[^a-z])ok(?:[^a-z]|$)|clean|good|fine|no_?(?:xid|error|fault)", re.IGNORECASE
)
_SICK: Final = re.compile(r"un_?health|not_?health|missing|absent|no_?data", re.IGNORECASE)
_ERRORS: Final = re.compile(r"XID|ECC|ROW_REMAP|RETIRED|_ERRORS?(?:_|$)|errors_total")
_MEANINGS: Final = (
    (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        re.compile(r"sm_?(?:active|occupan|util|busy|idle|use)|warp|occupancy", re.IGNORECASE),
        "is the share of time the graphics or compute engine was busy; that an SM has a resident warp is"
        " DCGM_FI_PROF_SM_ACTIVE",
    ),
    (
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        re.compile(
            r"(?:mem(?:ory)?|fb|framebuffer|vram)_?(?:used|usage|full|occup|alloc|capacity|pressure)|oom", re.IGNORECASE
        ),
        "is the share of time memory was read or written; how full it is, is DCGM_FI_DEV_FB_USED",
    ),
    (
        "DCGM_FI_PROF_DRAM_ACTIVE",
        re.compile(
            r"(?:mem(?:ory)?|fb|framebuffer|vram)_?(?:used|usage|full|occup|alloc|capacity|pressure)|oom", re.IGNORECASE
        ),
        "is the share of time memory was read or written; how full it is, is DCGM_FI_DEV_FB_USED",
    ),
    (
        "DCGM_FI_PROF_SM_ACTIVE",
        re.compile(r"occupancy", re.IGNORECASE),
        "says whether SMs had work at all; how many warps were resident is DCGM_FI_PROF_SM_OCCUPANCY",
    ),
    (
        "DCGM_FI_DEV_GPU_UTIL",
        re.compile(r"occupancy|saturat|sm_?(?:active|util|busy)|warp", re.IGNORECASE),
        "is the share of time any kernel ran, not how full the GPU was; that is DCGM_FI_PROF_SM_ACTIVE or SM_OCCUPANCY",
    ),
    (
        "DCGM_FI_DEV_XID_ERRORS",
        re.compile(r"count|total|number|rate", re.IGNORECASE),
        "is the code of the last XID, not a count; that is DCGM_EXP_XID_ERRORS_TOTAL",
    ),
)
"""Metric, names that promise something else, and what it really is."""
_CONTROLLER: Final = re.compile(r"dra-driver(?:-nvidia-gpu)?(?:.*)-controller|nvidia-dra-driver-gpu-controller")
_SLICES: Final = re.compile(r"slice|inventory|publish", re.IGNORECASE)
_STATE: Final = "label_nvidia_com_mig_config_state"
_STUCK: Final = ("pending", "rebooting")
_PLUGIN_DEVICES: Final = "device_plugin_devices_total"


@rule("alerts")
def absence(review: Review) -> Iterator[Finding]:
    """A missing series that counts as health."""
    for alert in alerts_of(review):
        if not _HEALTHY.search(alert.name) or _SICK.search(alert.name):
            continue
        found = (_absent_metric(node) for node, _ in walk(alert.tree))
        metric = next((each for each in found if _ERRORS.search(each)), "")
        if metric:
            yield alert.finding(
                "rule-absence-as-health",
                f"a missing {metric} is taken for health, but some hardware reports 0 and a dead exporter reports"
                " nothing; compare the value, and alert on up == 0 or absent() apart from it",
            )


def _absent_metric(node: Expression) -> str:
    """The metric whose absence becomes a value: absent(X), or `X … or vector(n)`."""
    inner: Expression | None = None
    if isinstance(node, Call) and node.name in ("absent", "absent_over_time") and node.arguments:
        inner = node.arguments[0]
    elif isinstance(node, Binary) and node.operator in ("or", "unless"):
        if isinstance(node.right, Call) and node.right.name == "vector":
            value = constant(node.right.arguments[0]) if node.right.arguments else None
            inner = node.left if value else None
        elif node.operator == "unless" and isinstance(node.right, Selector) and not node.right.offset:
            inner = node.right
    return next((each.metric for each, _ in walk(inner) if isinstance(each, Selector)), "") if inner else ""


@rule("alerts")
def first_sample(review: Review) -> Iterator[Finding]:
    """increase() over series that are born with their first event."""
    known = exported(review)
    for alert in alerts_of(review):
        offset = {selector.metric for selector, _ in alert.selectors() if selector.offset}
        for selector, above in alert.selectors():
            grown = any(isinstance(up, Call) and up.name in ("increase", "rate", "irate", "delta") for up in above)
            missing = known is not None and selector.metric.startswith("DCGM_") and selector.metric not in known
            if selector.metric in BORN_AT_ONE and grown and selector.metric not in offset and not missing:
                metric = selector.metric
                yield alert.finding(
                    "rule-misses-first-sample",
                    f"the series of {metric} appears with its first event, at 1, where increase() sees nothing; write"
                    f" ({metric} > 0 unless {metric} offset 5m) or increase({metric}[5m]) > 0",
                )
                break


@rule("alerts")
def meaning(review: Review) -> Iterator[Finding]:
    """Names that promise something else."""
    for alert in alerts_of(review):
        for metric, promise, really in _MEANINGS:
            other = (metric in STICKY and not alert.record) or "bytes" in alert.name.lower()  # reported as that
            if metric in alert.metrics and promise.search(alert.name) and not other:
                yield alert.finding("rule-metric-meaning", f"{alert.name}: {metric} {really}")
                break


@rule("alerts")
def mig_states(review: Review) -> Iterator[Finding]:
    """Only `failed`, though other states can stick as well."""
    first: Alert | None = None
    covered: set[str] = set()
    for alert in alerts_of(review):
        for selector, _ in alert.selectors():
            for matcher in selector.matchers:
                if matcher.label == _STATE:
                    covered |= {state for state in _STUCK if matcher.matches(state)}
                    if matcher.matches("failed") and first is None:
                        first = alert
    missing = [state for state in _STUCK if state not in covered]
    if first is not None and missing:
        yield first.finding(
            "rule-mig-state-only-failed",
            f"{' and '.join(missing)} can stick as well (a MIG change that never ends); alert on"
            f' {_STATE}=~"pending|rebooting" for 5m, too',
        )


@rule("alerts")
def publisher(review: Review) -> Iterator[Finding]:
    """The controller taken for who publishes slices."""
    for alert in alerts_of(review):
        about = _SLICES.search(f"{alert.name} {alert.prose}")
        if about and any(_CONTROLLER.search(m.value) for each, _ in alert.selectors() for m in each.matchers):
            yield alert.finding(
                "slice-publisher-mistaken",
                "ResourceSlices are published by the kubelet-plugin DaemonSet on each node, not by the controller"
                " (which serves"
                " ComputeDomains); watch kube_daemonset_status_number_unavailable of"
                " dra-driver-nvidia-gpu-kubelet-plugin",
            )


@rule("alerts")
def always_fires(review: Review) -> Iterator[Finding]:
    """No devices of the device plugin, where there is no device plugin."""
    for alert in alerts_of(review):
        for left, operator, right, _ in comparisons(alert.tree):
            limit = constant(right)
            if (operator, limit) not in (("==", 0.0), ("<", 1.0), ("<=", 0.0)):
                continue
            for node, _ in walk(left):
                if isinstance(node, Selector) and _plugin_devices(node):
                    yield alert.finding(
                        "rule-always-fires",
                        f"{node.metric} is 0 on every node whose GPUs are served by the DRA driver, so the alert is"
                        " always"
                        " true there; count devices in ResourceSlices instead",
                    )


def _plugin_devices(selector: Selector) -> bool:
    if selector.metric.endswith(_PLUGIN_DEVICES):
        return True
    if selector.metric in ("kube_node_status_allocatable", "kube_node_status_capacity"):
        return any(
            m.label == "resource" and m.operator == "=" and m.value == "nvidia_com_gpu" for m in selector.matchers
        )
    return False


@rule("alerts")
def empty_numerator(review: Review) -> Iterator[Finding]:
    """A filtered count over a count: nothing instead of zero."""
    for alert in alerts_of(review):
        for node, _ in walk(alert.tree):
            if isinstance(node, Binary) and node.operator == "/" and _may_be_empty(node.left):
                yield alert.finding(
                    "rule-no-data-when-zero",
                    "when nothing passes the filter the numerator is empty, and the ratio has no data instead of 0;"
                    " write"
                    " (count(…) or vector(0)) / …",
                )
                break


def _may_be_empty(node: Expression) -> bool:
    """An aggregation over what a comparison leaves."""
    if not isinstance(node, Call) or node.name not in ("count", "sum") or not node.arguments:
        return False
    inner = node.arguments[-1]
    while isinstance(inner, Call) and inner.arguments and inner.name != "vector":
        inner = inner.arguments[-1]
    filters = ("==", "!=", "<", "<=", ">", ">=")
    return isinstance(inner, Binary) and inner.operator in filters and not inner.bool
