"""Comparisons that cannot mean what they say: counters without rate, sticky gauges, the wrong unit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from drakkar.migration.alerts import Alert, alerts_of
from drakkar.migration.findings import Finding
from drakkar.migration.metrics import STICKY, cumulative, fields
from drakkar.migration.promql import Binary, Call, Expression, Number, Selector, walk
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CHANGES: Final = frozenset({
    "rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets", "predict_linear", "timestamp",
    "absent", "absent_over_time", "count", "count_over_time", "present_over_time", "group",
})  # fmt: skip
_KEEPING_UNIT: Final = frozenset({
    "", "avg", "sum", "min", "max", "avg_over_time", "max_over_time", "min_over_time", "last_over_time", "quantile",
    "quantile_over_time", "topk", "bottomk", "abs", "floor", "ceil", "round", "sort", "sort_desc", "clamp_min",
    "clamp_max",
})  # fmt: skip
_LARGEST: Final = {"MiB": 1e6, "W": 5000.0, "Celsius": 200.0, "ratio 0 to 1": 1.0, "percent": 100.0}
"""More than any device can have: such a threshold is written in a smaller unit (or for ratios in percent)."""
_BYTES: Final = re.compile(r"bytes(?![a-z])", re.IGNORECASE)


def comparisons(tree: Expression) -> Iterator[tuple[Expression, str, Expression, tuple[Expression, ...]]]:
    """Compared side, operator, other side and what stands above; a number is always on the right."""
    for node, above in walk(tree):
        if isinstance(node, Binary) and node.operator in _COMPARISONS:
            left, operator, right = node.left, node.operator, node.right
            if isinstance(constant(left), float) and not isinstance(constant(right), float):
                left, operator, right = right, _MIRRORED.get(operator, operator), left
            yield left, operator, right, (*above, node)


def constant(node: Expression) -> float | None:
    """The value of an expression of numbers only."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Binary) and node.operator in _ARITHMETIC:
        left, right = constant(node.left), constant(node.right)
        if left is not None and right is not None:
            try:
                return _ARITHMETIC[node.operator](left, right)
            except (ArithmeticError, ValueError):
                return None
    return None


_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "^": lambda a, b: float(a**b),
}  # fmt: skip


@rule("thresholds")
def raw_counters(review: Review) -> Iterator[Finding]:
    """A cumulative counter compared as it is."""
    for alert in alerts_of(review):
        offset = {selector.metric for selector, _ in alert.selectors() if selector.offset}
        for metric in _compared(alert):
            if cumulative(metric) and metric not in offset:
                yield alert.finding(
                    "rule-counter-without-rate",
                    f"{metric} only grows, so the comparison stays true for ever once it is; compare"
                    f" rate({metric}[5m]) or"
                    f" increase({metric}[5m])",
                )


@rule("thresholds")
def sticky_gauges(review: Review) -> Iterator[Finding]:
    """The last XID, compared as it is."""
    for alert in alerts_of(review):
        for metric in _compared(alert, healthy=False):
            if metric in STICKY:
                yield alert.finding(
                    "rule-sticky-gauge",
                    f"{metric} keeps the code of the last XID until another comes, so the alert never clears; count"
                    " DCGM_EXP_XID_ERRORS_TOTAL (exporter from 4.8.3) or DCGM_EXP_XID_ERRORS_COUNT",
                )


def _compared(alert: Alert, *, healthy: bool = True) -> list[str]:
    """Metrics that are compared with something without a function that looks at changes."""
    found: dict[str, None] = {}
    for left, operator, right, _ in comparisons(alert.tree):
        if not healthy and operator in ("==", "<", "<=") and constant(right) == 0:
            continue
        for side in (left, right):
            for node, above in walk(side):
                if isinstance(node, Selector) and not any(isinstance(up, Call) and up.name in _CHANGES for up in above):
                    inside = any(isinstance(up, Binary) and up.operator in (*_COMPARISONS, "unless") for up in above)
                    if not inside:
                        found[node.metric] = None
    return list(found)


@rule("thresholds")
def units(review: Review) -> Iterator[Finding]:
    """Thresholds, divisors and names in another unit than the metric has; one finding per rule."""
    for alert in alerts_of(review):
        problem = _named_unit(alert) or _divisor(alert) or _threshold(alert)
        if problem:
            yield alert.finding("rule-unit", problem)


def _named_unit(alert: Alert) -> str:
    if not _BYTES.search(alert.name):
        return ""
    for metric in alert.metrics:
        field = fields().get(metric)
        if field is not None and field.unit in ("percent", "ratio 0 to 1", "MiB") and not _scaled(alert, metric):
            unit = "percent of the time memory is busy" if field.unit == "percent" else field.unit
            return f"{metric} is in {unit}, not in bytes as the name {alert.name} says"
    return ""


def _scaled(alert: Alert, metric: str) -> bool:
    """Whether the metric is multiplied or divided by a large number."""
    for node, _ in walk(alert.tree):
        if isinstance(node, Binary) and node.operator in ("*", "/"):
            factor = constant(node.right) or constant(node.left) or 0
            inside = any(isinstance(each, Selector) and each.metric == metric for each, _ in walk(node))
            if inside and factor >= 1000:
                return True
    return False


def _divisor(alert: Alert) -> str:
    """Throttling time divided as if it were microseconds or milliseconds."""
    for node, _ in walk(alert.tree):
        if not isinstance(node, Binary) or node.operator not in ("/", "*"):
            continue
        factor = constant(node.right)
        metric = next((each.metric for each, _ in walk(node.left) if isinstance(each, Selector)), "")
        field = fields().get(metric)
        if factor and field is not None and field.unit == "ns":
            divided = factor if node.operator == "/" else 1 / factor
            if any(abs(divided / wrong - 1) < 0.01 for wrong in (1e3, 1e6)):
                return f"{metric} counts nanoseconds (ns): divide rate() by 1e9 for a share of time, not by {divided:g}"
    return ""


def _threshold(alert: Alert) -> str:
    for left, operator, right, _ in comparisons(alert.tree):
        limit = constant(right)
        selected = _plain(left)
        if limit is None or selected is None:
            continue
        metric, rated = selected
        field = fields().get(metric)
        unit = field.unit if field is not None else ""
        if rated:
            if unit == "ns" and 0 < limit <= 1:
                return f"rate({metric}[…]) is in ns per second: divide it by 1e9 before comparing with {limit:g}"
            continue
        if unit in _LARGEST and limit > _LARGEST[unit]:
            return f"{metric} is in {unit}, so a comparison with {limit:g} is in another unit{_scale(unit)}"
        if unit == "percent" and 0 < limit < 1 and operator != "==":
            return f"{metric} is in percent (0 to 100), so a comparison with {limit:g} takes it for a ratio"
    return ""


def _scale(unit: str) -> str:
    return " (1 is all of the time)" if unit == "ratio 0 to 1" else ""


def _plain(node: Expression) -> tuple[str, bool] | None:
    """The metric of an expression that still has its unit, and whether it is a rate of it."""
    if isinstance(node, Selector):
        return node.metric, False
    if isinstance(node, Call) and node.arguments:
        selected = _plain(node.arguments[-1])
        if selected is None:
            return None
        if node.name in ("rate", "irate"):
            return selected[0], True
        return selected if node.name in _KEEPING_UNIT else None
    if isinstance(node, Binary) and node.operator in ("and", "unless", "or"):
        return _plain(node.left)
    return None
