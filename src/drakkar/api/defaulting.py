"""Defaults of resource.k8s.io objects, filled in before anything else looks at them.

Claims: allocation mode ExactCount with count 1, toleration operator Equal; taints: the time they were added. The
clock is an argument, `now` as RFC 3339 with whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drakkar.api.conversion import convert

__all__ = ["default"]

Json = dict[str, Any]


def default(obj: Json, *, now: str) -> Json:
    """The object with defaults; the same object if there is nothing to fill in."""
    if obj.get("apiVersion") == "resource.k8s.io/v1beta1":
        return convert(default(convert(obj, "v1"), now=now), "v1beta1")
    kind = obj.get("kind")
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    if kind == "ResourceClaim":
        changed = _claim_spec(spec)
    elif kind == "ResourceClaimTemplate":
        inner = _claim_spec(spec.get("spec") or {})
        changed = spec if inner is spec.get("spec") else {**spec, "spec": inner}
    elif kind == "ResourceSlice":
        changed = _each(spec, "devices", lambda device: _each(device, "taints", lambda taint: _taint(taint, now)))
    elif kind == "DeviceTaintRule" and isinstance(spec.get("taint"), dict):
        taint = _taint(spec["taint"], now)
        changed = spec if taint is spec["taint"] else {**spec, "taint": taint}
    else:
        return obj
    if kind == "ResourceClaim" and isinstance(obj.get("status"), dict):
        obj = _with(obj, "status", _claim_status(obj["status"]))
    return _with(obj, "spec", changed)


def _with(obj: Json, name: str, value: Any) -> Json:
    return obj if obj.get(name) is value else {**obj, name: value}


def _each(obj: Json, name: str, change: Any) -> Json:
    """The object with every item of a list changed; the same object if none changes."""
    items = obj.get(name)
    if not items:
        return obj
    changed = [change(item) for item in items]
    return obj if all(new is old for new, old in zip(changed, items, strict=True)) else {**obj, name: changed}


def _claim_spec(spec: Json) -> Json:
    devices = spec.get("devices")
    if not devices:
        return spec
    changed = _each(devices, "requests", _request)
    return spec if changed is devices else {**spec, "devices": changed}


def _request(request: Json) -> Json:
    exactly = request.get("exactly")
    if exactly is not None:
        request = _with(request, "exactly", _details(exactly))
    return _each(request, "firstAvailable", _details)


def _details(request: Json) -> Json:
    mode = request.get("allocationMode") or "ExactCount"
    filled: dict[str, Any] = {}
    if not request.get("allocationMode"):
        filled["allocationMode"] = mode
    if mode == "ExactCount" and not request.get("count"):
        filled["count"] = 1
    changed = {**request, **filled} if filled else request
    return _each(changed, "tolerations", _toleration)


def _toleration(toleration: Json) -> Json:
    return toleration if toleration.get("operator") else {**toleration, "operator": "Equal"}


def _taint(taint: Json, now: str) -> Json:
    return taint if taint.get("timeAdded") else {**taint, "timeAdded": now}


def _claim_status(status: Json) -> Json:
    allocation = status.get("allocation")
    devices: Mapping[str, Any] = (allocation or {}).get("devices") or {}
    changed = _each(dict(devices), "results", lambda result: _each(result, "tolerations", _toleration))
    if changed == devices:
        return status
    return {**status, "allocation": {**(allocation or {}), "devices": changed}}
