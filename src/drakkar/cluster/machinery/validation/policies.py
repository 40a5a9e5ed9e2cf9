"""What is wrong with the kinds of the small groups: leases, roles, priorities, budgets, runtime classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.api import metadata
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from drakkar.cluster.machinery.validation import placement, values
from drakkar.cluster.machinery.validation.containers import check_resources
from drakkar.cluster.machinery.validation.internal_types import internal
from drakkar.kube import names

__all__ = ["CREATE", "UPDATE"]

Json = Mapping[str, Any]
Found = list[FieldError]
RBAC: Final = "rbac.authorization.k8s.io"
HIGHEST_PRIORITY: Final = 1_000_000_000


def _lease(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    found: Found = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


def _role(obj: Json) -> Found:
    namespaced = obj.get("kind") == "Role"
    found: Found = []
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if rule.get("nonResourceURLs"):
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], detail))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], detail))
            continue
        if not rule.get("apiGroups"):
            found.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            found.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    found += _check_aggregation(obj.get("aggregationRule"), "aggregationRule.clusterRoleSelectors")
    # Declared: told after what is checked by hand.
    return found + [
        required(f"rules[{index}].verbs") for index, rule in enumerate(obj.get("rules") or ()) if not rule.get("verbs")
    ]


def _check_aggregation(aggregation: Json | None, path: str) -> Found:
    if aggregation is None:
        return []
    selectors = aggregation.get("clusterRoleSelectors") or []
    if not selectors:
        return [required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    found: Found = []
    for index, selector in enumerate(selectors):
        wrong = values.check_label_selector(selector, f"{path}[{index}]")
        found += wrong
        if wrong:
            found.append(invalid(f"{path}[{index}]", None, "invalid label selector."))
    return found


def _binding(obj: Json) -> Found:
    reference = obj.get("roleRef") or {}
    kinds = ("Role", "ClusterRole") if obj.get("kind") == "RoleBinding" else ("ClusterRole",)
    found: Found = []
    if reference.get("apiGroup") != RBAC:
        found.append(not_supported("roleRef.apiGroup", reference.get("apiGroup") or "", (RBAC,)))
    if reference.get("kind") not in kinds:
        found.append(not_supported("roleRef.kind", reference.get("kind") or "", kinds))
    if not reference.get("name"):
        found.append(required("roleRef.name"))
    else:
        found += [invalid("roleRef.name", reference["name"], text) for text in names.path_segment(reference["name"])]
    for index, subject in enumerate(obj.get("subjects") or ()):
        found += _check_subject(subject, f"subjects[{index}]", namespaced=obj.get("kind") == "RoleBinding")
    # Declared: told after what is checked by hand.
    nameless = [index for index, subject in enumerate(obj.get("subjects") or ()) if not subject.get("name")]
    return found + [required(f"subjects[{index}].name") for index in nameless]


def _check_subject(subject: Json, path: str, *, namespaced: bool) -> Found:
    name, kind, group = subject.get("name") or "", subject.get("kind") or "", subject.get("apiGroup") or ""
    found: Found = []
    if kind == "ServiceAccount":
        if name:
            found += [invalid(f"{path}.name", name, text) for text in names.dns_subdomain(name)]
        if group:
            found.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            found.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != RBAC:
            found.append(not_supported(f"{path}.apiGroup", group, (RBAC,)))
    else:
        found.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
    return found


def _binding_update(new: Json, old: Json) -> Found:
    found = _binding(new)
    if new.get("roleRef") != old.get("roleRef"):
        found.append(invalid("roleRef", internal(new.get("roleRef") or {}, "RoleRef"), "field is immutable"))
    return found


def _priority(obj: Json) -> Found:
    name = (obj.get("metadata") or {}).get("name") or ""
    value = obj.get("value") or 0
    found: Found = []
    if name.startswith("system-"):
        if name not in ("system-node-critical", "system-cluster-critical"):
            detail = "priority class names with 'system-' prefix are reserved for system use only. error:"
            found.append(forbidden("metadata.name", f"{detail} unknown system priority class {name}"))
    elif value > HIGHEST_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"
        found.append(forbidden("value", detail))
    policy = obj.get("preemptionPolicy")
    return found if policy is None else found + values.check_preemption_policy(policy, "preemptionPolicy")


def _priority_update(new: Json, old: Json) -> Found:
    found: Found = []
    if new.get("value") != old.get("value"):
        found.append(forbidden("value", "may not be changed in an update."))
    before = old.get("preemptionPolicy")
    return found + metadata.check_immutable(new.get("preemptionPolicy"), before, "preemptionPolicy")


def _budget(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    found: Found = []
    if low is not None and high is not None:
        shown = internal(spec, "PodDisruptionBudgetSpec")
        found.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name, value in (("minAvailable", low), ("maxUnavailable", high)):
        if value is not None:
            found += values.check_percentage(value, f"spec.{name}")
            found += values.check_at_most_100_percent(value, f"spec.{name}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        supported = ("AlwaysAllow", "IfHealthyBudget")
        found.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, supported))
    return found + values.check_label_selector(spec.get("selector"), "spec.selector")


def _runtime_class(obj: Json) -> Found:
    name, scheduling = obj.get("handler") or "", obj.get("scheduling") or {}
    found = check_resources({"limits": (obj.get("overhead") or {}).get("podFixed")}, (), "overhead")
    found += metadata.check_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or []
    found += placement.check_tolerations(tolerations, "scheduling.tolerations")
    seen: list[list[Any]] = []
    for index, toleration in enumerate(tolerations):
        key = [toleration.get(part) or "" for part in ("key", "operator", "value", "effect")]
        if key in seen:
            found.append(duplicate(f"scheduling.tolerations[{index}]", internal(toleration, "Toleration")))
        seen.append(key)
    # Declared: told after what is checked by hand.
    if not name:
        return [*found, required("handler")]
    return found + [invalid("handler", name, text) for text in names.dns_label(name, unit="bytes")]


def _runtime_class_update(new: Json, old: Json) -> Found:
    return metadata.check_immutable(new.get("handler"), old.get("handler"), "handler")


CREATE: Final[dict[str, Callable[[Json], Found]]] = {
    "ClusterRole": _role,
    "ClusterRoleBinding": _binding,
    "Lease": _lease,
    "PodDisruptionBudget": _budget,
    "PriorityClass": _priority,
    "Role": _role,
    "RoleBinding": _binding,
    "RuntimeClass": _runtime_class,
}
UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("ClusterRole", ""): lambda new, _: _role(new),
    ("ClusterRoleBinding", ""): _binding_update,
    ("Lease", ""): lambda new, _: _lease(new),
    ("PodDisruptionBudget", ""): lambda new, _: _budget(new),
    ("PriorityClass", ""): _priority_update,
    ("Role", ""): lambda new, _: _role(new),
    ("RoleBinding", ""): _binding_update,
    ("RuntimeClass", ""): _runtime_class_update,
}
