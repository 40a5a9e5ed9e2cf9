"""TaintNodesByCondition: a new node takes no pods until the node controller has seen it ready."""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.apiserver.calls import Call

NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def taint_until_ready(call: Call, operation: str, obj: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    """Add the not-ready taint to a node that is created."""
    del call, old
    if operation != "CREATE":
        return obj
    spec = {**(obj.get("spec") or {})}
    taints = spec.get("taints") or []
    if not any(taint.get("key") == NOT_READY["key"] and taint.get("effect") == "NoSchedule" for taint in taints):
        spec["taints"] = [*taints, dict(NOT_READY)]
    return {**obj, "spec": spec}
