"""What is wrong with deployments, replica sets, stateful sets and daemon sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.api import metadata, shared
from drakkar.api.fields import FieldError, forbidden, invalid, not_supported, required
from drakkar.cluster.machinery.validation import pods, values

__all__ = ["CREATE", "UPDATE", "check_selected_template"]

Json = Mapping[str, Any]
Found = list[FieldError]


def check_selected_template(spec: Json, path: str, kind: str) -> Found:
    """The template of a workload: its labels fit the selector, its pods restart always."""
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    found: Found = []
    if selector is None or not values.selector_matches(selector, labels):
        found.append(_mismatch(labels, path))
    found += pods.check_template(template, path)
    inner = template.get("spec") or {}
    policy = inner.get("restartPolicy")
    if policy != "Always":
        found.append(not_supported(f"{path}.spec.restartPolicy", policy, ("Always",)))
    if inner.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        found.append(forbidden(f"{path}.spec.activeDeadlineSeconds", detail))
    return found


def _mismatch(labels: Json, path: str) -> FieldError:
    detail = "`selector` does not match template `labels`"
    return invalid(f"{path}.metadata.labels", labels or None, detail)


def _check_selector(spec: Json, kind: str) -> Found:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    found = values.check_label_selector(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        found.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    return found


def _numbers(spec: Json, *names: str) -> Found:
    return [error for name in names for error in values.check_non_negative(spec, name, "spec")]


def _deployment(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    found = _numbers(spec, "replicas")
    found += _check_selector(spec, "deployment")
    found += check_selected_template(spec, "spec.template", "ReplicaSet")
    found += _check_strategy(spec.get("strategy") or {}, "spec.strategy")
    found += _numbers(spec, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        found.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return found


def _check_strategy(strategy: Json, path: str) -> Found:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden(f"{path}.rollingUpdate", detail)]
    if kind != "RollingUpdate":
        return [not_supported(path, _go_strategy(strategy), ("Recreate", "RollingUpdate"))]
    rolling = rolling or {}
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    place = f"{path}.rollingUpdate"
    found = values.check_percentage(unavailable, f"{place}.maxUnavailable")
    found += values.check_percentage(surge, f"{place}.maxSurge")
    if values.number_of(unavailable) == 0 and values.number_of(surge) == 0:
        found.append(invalid(f"{place}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return found + values.check_at_most_100_percent(unavailable, f"{place}.maxUnavailable")


def _go_strategy(strategy: Json) -> Json:
    """A strategy as the Go struct behind it is printed."""
    return {"Type": strategy.get("type") or "", "RollingUpdate": strategy.get("rollingUpdate")}


def _replica_set(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    found = _numbers(spec, "replicas", "minReadySeconds")
    found += _check_selector(spec, "deployment")
    return found + check_selected_template(spec, "spec.template", "ReplicaSet")


def _stateful_set(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    found: Found = []
    policy = spec.get("podManagementPolicy") or ""
    if policy not in ("OrderedReady", "Parallel"):
        found.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "OnDelete" and rolling is not None:
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        found.append(invalid("spec.updateStrategy.rollingUpdate", rolling, detail))
    elif kind == "RollingUpdate":
        found += values.check_non_negative(rolling or {}, "partition", "spec.updateStrategy.rollingUpdate")
    elif kind != "OnDelete":
        found.append(invalid("spec.updateStrategy", dict(strategy), "must be 'RollingUpdate' or 'OnDelete'"))
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        if retention.get(name) not in (None, *_RETENTION):
            path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            found.append(not_supported(path, retention[name], _RETENTION))
    found += _numbers(spec, "replicas", "minReadySeconds")
    found += values.check_non_negative(spec.get("ordinals") or {}, "start", "spec.ordinals")
    if spec.get("serviceName"):
        found += shared.check_label(spec["serviceName"], "spec.serviceName")
    found += _check_selector(spec, "statefulset")
    return found + check_selected_template(spec, "spec.template", "StatefulSet")


_RETENTION: Final = ("Retain", "Delete")


def _daemon_set(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    found = values.check_label_selector(selector, "spec.selector")
    if selector is None or not values.selector_matches(selector, labels):
        found.append(_mismatch(labels, "spec.template"))
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        found.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
    found += pods.check_template(template, "spec.template")
    inner = template.get("spec") or {}
    if inner.get("restartPolicy") != "Always":
        found.append(not_supported("spec.template.spec.restartPolicy", inner.get("restartPolicy"), ("Always",)))
    if inner.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in DaemonSet is not Supported"
        found.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))
    found += _numbers(spec, "minReadySeconds")
    found += _check_daemon_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy")
    return found + _numbers(spec, "revisionHistoryLimit")


def _check_daemon_strategy(strategy: Json, path: str) -> Found:
    if strategy.get("type") == "OnDelete":
        return []
    if strategy.get("type") != "RollingUpdate":
        return [not_supported(path, _go_strategy(strategy), ("RollingUpdate", "OnDelete"))]
    rolling = strategy.get("rollingUpdate")
    if rolling is None:
        return [required(f"{path}.rollingUpdate")]
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    places = f"{path}.rollingUpdate.maxUnavailable", f"{path}.rollingUpdate.maxSurge"
    found = values.check_percentage(unavailable, places[0]) + values.check_percentage(surge, places[1])
    found += values.check_at_most_100_percent(unavailable, places[0]) + values.check_at_most_100_percent(
        surge, places[1]
    )
    has_unavailable, has_surge = values.number_of(unavailable) != 0, values.number_of(surge) != 0
    if has_unavailable and has_surge:
        found.append(invalid(places[1], surge, "may not be set when maxUnavailable is non-zero"))
    elif not has_unavailable and not has_surge:
        found.append(required(places[0], "cannot be 0 when maxSurge is 0"))
    return found


def _with_immutable_selector(check: Callable[[Json], Found]) -> Callable[[Json, Json], Found]:
    def checked(new: Json, old: Json) -> Found:
        selector, former = (new.get("spec") or {}).get("selector"), (old.get("spec") or {}).get("selector")
        return check(new) + metadata.check_immutable(selector, former, "spec.selector")

    return checked


def _stateful_set_update(new: Json, old: Json) -> Found:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    found = _stateful_set(new)
    for name in ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"):
        found += metadata.check_immutable(spec.get(name), before.get(name), f"spec.{name}")
    return found


def _daemon_set_update(new: Json, old: Json) -> Found:
    selector, former = (new.get("spec") or {}).get("selector"), (old.get("spec") or {}).get("selector")
    return metadata.check_immutable(selector, former, "spec.selector") + _daemon_set(new)


_REPLICAS: Final = "cannot be greater than status.replicas"


def _status(*counts: str) -> Callable[[Json, Json], Found]:
    def checked(new: Json, _: Json) -> Found:
        status = new.get("status") or {}
        found = [
            error
            for name in ("observedGeneration", "replicas", *counts, "collisionCount")
            for error in values.check_non_negative(status, name, "status")
        ]
        replicas = status.get("replicas") or 0
        for name in counts:
            count = status.get(name) or 0
            if name not in ("unavailableReplicas", "currentReplicas") and count > replicas:
                found.append(invalid(f"status.{name}", count, _REPLICAS))
        ready, available = status.get("readyReplicas") or 0, status.get("availableReplicas") or 0
        if available > ready:
            found.append(invalid("status.availableReplicas", available, "cannot be greater than readyReplicas"))
        return found

    return checked


CREATE: Final[dict[str, Callable[[Json], Found]]] = {
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
}
UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("DaemonSet", ""): _daemon_set_update,
    ("Deployment", ""): _with_immutable_selector(_deployment),
    ("ReplicaSet", ""): _with_immutable_selector(_replica_set),
    ("StatefulSet", ""): _stateful_set_update,
    ("Deployment", "status"): _status("updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"),
    ("ReplicaSet", "status"): _status("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
}
