"""HorizontalPodAutoscaler in its two versions: v2 is stored, v1 knows one metric and puts the rest into annotations.

What v1 cannot say is kept as JSON under names that Kubernetes has used since 1.6 (its `autoscaling/v1` conversions), so
that an object survives being read and written through v1.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

V1: Final = "autoscaling/v1"
V2: Final = "autoscaling/v2"
_PREFIX: Final = "autoscaling.alpha.kubernetes.io"
METRICS: Final = f"{_PREFIX}/metrics"
CURRENT: Final = f"{_PREFIX}/current-metrics"
CONDITIONS: Final = f"{_PREFIX}/conditions"
BEHAVIOR: Final = f"{_PREFIX}/behavior"

Value = dict[str, Any]
_SHARED_STATUS: Final = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_SHARED_SPEC: Final = ("scaleTargetRef", "minReplicas", "maxReplicas")
# For each type of metric: its part of a v2 metric, then what v1 calls the target's amounts (value, average,
# utilization) and the identity of the metric.
_RESOURCES: Final = {"Resource": "resource", "ContainerResource": "containerResource"}
_AMOUNTS: Final = {
    "resource": {"averageValue": "targetAverageValue", "averageUtilization": "targetAverageUtilization"},
    "containerResource": {"averageValue": "targetAverageValue", "averageUtilization": "targetAverageUtilization"},
    "pods": {"averageValue": "targetAverageValue"},
    "object": {"value": "targetValue", "averageValue": "averageValue"},
    "external": {"value": "targetValue", "averageValue": "targetAverageValue"},
}
_NOW: Final = {
    "resource": {"averageValue": "currentAverageValue", "averageUtilization": "currentAverageUtilization"},
    "containerResource": {"averageValue": "currentAverageValue", "averageUtilization": "currentAverageUtilization"},
    "pods": {"averageValue": "currentAverageValue"},
    "object": {"value": "currentValue", "averageValue": "averageValue"},
    "external": {"value": "currentValue", "averageValue": "currentAverageValue"},
}
_SELECTORS: Final = {"external": "metricSelector"}


def to_v1(obj: Value) -> Value:
    """The v1 form of a stored autoscaler."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    notes = dict((obj.get("metadata") or {}).get("annotations") or {})
    cpu, others = _split(spec.get("metrics") or [], "target", "averageUtilization")
    current_cpu, current = _split(status.get("currentMetrics") or [], "current", "averageUtilization")
    kept = {
        METRICS: [_flat(one, "target", _AMOUNTS) for one in others],
        CURRENT: [_flat(one, "current", _NOW) for one in current],
        CONDITIONS: status.get("conditions"),
        BEHAVIOR: spec.get("behavior"),
    }
    notes |= {name: msgspec.json.encode(value).decode() for name, value in kept.items() if value}
    shown_spec = {name: spec[name] for name in _SHARED_SPEC if name in spec}
    if cpu is not None:
        shown_spec["targetCPUUtilizationPercentage"] = cpu
    shown_status = {name: status[name] for name in _SHARED_STATUS if name in status}
    if current_cpu is not None:
        shown_status["currentCPUUtilizationPercentage"] = current_cpu
    return {**_with_notes(obj, notes), "apiVersion": V1, "spec": shown_spec, "status": shown_status}


def from_v1(obj: Value) -> Value:
    """The stored form of a v1 autoscaler."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    notes = dict((obj.get("metadata") or {}).get("annotations") or {})
    kept = {name: _decoded(notes.pop(name, "")) for name in (METRICS, CURRENT, CONDITIONS, BEHAVIOR)}
    metrics = [_nested(one, "target", _AMOUNTS) for one in _objects(kept[METRICS])]
    cpu = spec.get("targetCPUUtilizationPercentage")
    if cpu is not None:
        metrics.append(_cpu("target", {"type": "Utilization", "averageUtilization": cpu}))
    stored_spec = {name: spec[name] for name in _SHARED_SPEC if name in spec}
    stored_spec |= {"metrics": metrics} if metrics else {}
    stored_spec |= {"behavior": kept[BEHAVIOR]} if isinstance(kept[BEHAVIOR], dict) else {}
    stored_status = {name: status[name] for name in _SHARED_STATUS if name in status}
    current = [_nested(one, "current", _NOW) for one in _objects(kept[CURRENT])]
    now = status.get("currentCPUUtilizationPercentage")
    if now is not None:
        current.append(_cpu("current", {"averageUtilization": now}))
    stored_status |= {"currentMetrics": current} if current else {}
    conditions = _objects(kept[CONDITIONS])
    stored_status |= {"conditions": conditions} if conditions else {}
    return {**_with_notes(obj, notes), "apiVersion": V2, "spec": stored_spec, "status": stored_status}


def _split(metrics: list[Value], side: str, amount: str) -> tuple[int | None, list[Value]]:
    """The processor's utilization, which v1 has a field for, and all other metrics."""
    cpu, others = None, []
    for metric in metrics:
        resource = metric.get("resource") or {}
        found = (resource.get(side) or {}).get(amount)
        if cpu is None and metric.get("type") == "Resource" and resource.get("name") == "cpu" and found is not None:
            cpu = found
        else:
            others.append(metric)
    return cpu, others


def _cpu(side: str, amounts: Value) -> Value:
    return {"type": "Resource", "resource": {"name": "cpu", side: amounts}}


def _part(metric: Value) -> str:
    kind = str(metric.get("type") or "")
    return _RESOURCES.get(kind, kind.lower())


def _flat(metric: Value, side: str, names: dict[str, dict[str, str]]) -> Value:
    """A v2 metric as v1's annotations have it: identity and amounts beside each other."""
    part = _part(metric)
    source = metric.get(part) or {}
    amounts = source.get(side) or {}
    flat = {name: source[name] for name in ("name", "container") if name in source}
    named = source.get("metric") or {}
    flat |= {"metricName": named["name"]} if "name" in named else {}
    flat |= {_SELECTORS.get(part, "selector"): named["selector"]} if "selector" in named else {}
    flat |= {"target": source["describedObject"]} if "describedObject" in source else {}
    flat |= {old: amounts[new] for new, old in names.get(part, {}).items() if new in amounts}
    return {"type": metric.get("type"), part: flat}


def _nested(metric: Value, side: str, names: dict[str, dict[str, str]]) -> Value:
    """The way back."""
    part = _part(metric)
    flat = metric.get(part)
    flat = flat if isinstance(flat, dict) else {}
    amounts = {new: flat[old] for new, old in names.get(part, {}).items() if old in flat}
    if side == "target":
        kinds = {"value": "Value", "averageValue": "AverageValue", "averageUtilization": "Utilization"}
        amounts = {"type": next((kinds[name] for name in amounts), ""), **amounts}
    source = {name: flat[name] for name in ("name", "container") if name in flat}
    if "metricName" in flat:
        selector = flat.get(_SELECTORS.get(part, "selector"))
        source["metric"] = {"name": flat["metricName"], **({"selector": selector} if selector else {})}
    if "target" in flat:
        source["describedObject"] = flat["target"]
    return {"type": metric.get("type"), part: {**source, side: amounts}}


def _with_notes(obj: Value, notes: Value) -> Value:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "annotations"}
    return {**obj, "metadata": {**metadata, "annotations": notes} if notes else metadata}


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None  # as in the original: an annotation that cannot be read says nothing


def _objects(value: Any) -> list[Value]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
