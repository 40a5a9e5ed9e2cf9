"""What is wrong with a pod's wishes about its node: affinity, tolerations, spreading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.api import shared
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from drakkar.cluster.machinery.validation import values
from drakkar.kube import names

__all__ = ["check_added_tolerations", "check_affinity", "check_spreading", "check_taints", "check_tolerations"]

Json = Mapping[str, Any]
Found = list[FieldError]
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_affinity(affinity: Json, path: str) -> Found:
    """Node affinity, pod affinity and pod anti-affinity."""
    found: Found = []
    node = affinity.get("nodeAffinity") or {}
    required_terms = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required_terms is not None:
        place = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        found += shared.check_node_selector(required_terms, place)
    for index, term in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        place = f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        found += _check_weight(term, place)
        found += shared.check_node_selector_term(term.get("preference") or {}, f"{place}.preference")
    for name in ("podAffinity", "podAntiAffinity"):
        found += _check_pod_affinity(affinity.get(name) or {}, f"{path}.{name}")
    return found


def _check_weight(term: Json, path: str) -> Found:
    weight = term.get("weight") or 0
    return [] if 1 <= weight <= 100 else [invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _check_pod_affinity(affinity: Json, path: str) -> Found:
    found: Found = []
    for index, term in enumerate(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
        found += _check_term(term, f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]")
    for index, weighted in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        place = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        found += _check_weight(weighted, place)
        found += _check_term(weighted.get("podAffinityTerm") or {}, f"{place}.podAffinityTerm")
    return found


def _check_term(term: Json, path: str) -> Found:
    found = values.check_label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    found += values.check_label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        found += [invalid(f"{path}.namespace", name, text) for text in names.dns_label(name)]
    key = term.get("topologyKey") or ""
    if not key:
        found.append(required(f"{path}.topologyKey", "can not be empty"))
    return found + shared.check_label_key(key, f"{path}.topologyKey")


def check_tolerations(tolerations: Sequence[Json], path: str) -> Found:
    """Tolerations of node taints."""
    found: Found = []
    for index, toleration in enumerate(tolerations):
        place = f"{path}[{index}]"
        key, value = toleration.get("key") or "", toleration.get("value") or ""
        operator, effect = toleration.get("operator") or "", toleration.get("effect") or ""
        if key:
            found += shared.check_label_key(key, f"{place}.key")
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(invalid(f"{place}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid(f"{place}.effect", effect, detail))
        if operator in ("", "Equal"):
            complaints = names.label_value(value)
            if complaints:
                found.append(invalid(f"{place}.operator", value, ";".join(complaints)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                found.append(invalid(f"{place}.operator", value, detail))
        elif operator in ("Lt", "Gt"):
            found.append(not_supported(f"{place}.operator", operator, ("Equal", "Exists", "Lt", "Gt")))
        else:
            found.append(not_supported(f"{place}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in EFFECTS:
            found.append(not_supported(f"{place}.effect", effect, EFFECTS))
    return found


def check_added_tolerations(new: Sequence[Json], old: Sequence[Json]) -> Found:
    """A pod's tolerations may only grow; the seconds of one may change."""
    for former in old:
        if not any({**former, "tolerationSeconds": None} == {**item, "tolerationSeconds": None} for item in new):
            return [
                forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
            ]
    return check_tolerations(new, "spec.tolerations")


def check_taints(taints: Sequence[Json], path: str) -> Found:
    """Taints of a node: valid, and unique by key and effect."""
    found: Found = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        place = f"{path}[{index}]"
        key, value, effect = taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        found += shared.check_label_key(key, f"{place}.key")
        complaints = names.label_value(value)
        if complaints:
            found.append(invalid(f"{place}.value", value, ";".join(complaints)))
        if not effect:
            found.append(required(f"{place}.effect"))
        elif effect not in EFFECTS:
            found.append(not_supported(f"{place}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            error = duplicate(place, dict(taint))
            error.detail = "taints must be unique by key and effect pair"
            found.append(error)
        seen.add((key, effect))
    return found


_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")


def check_spreading(constraints: Sequence[Json], path: str) -> Found:
    """Topology spread constraints."""
    found: Found = []
    for index, constraint in enumerate(constraints):
        place = f"{path}[{index}]"
        skew, key = constraint.get("maxSkew") or 0, constraint.get("topologyKey") or ""
        action = constraint.get("whenUnsatisfiable") or ""
        if skew <= 0:
            found.append(invalid(f"{place}.maxSkew", skew, "must be greater than zero"))
        if not key:
            found.append(required(f"{place}.topologyKey", "can not be empty"))
        else:
            found += shared.check_label_key(key, f"{place}.topologyKey")
        if action not in _UNSATISFIABLE:
            found.append(not_supported(f"{place}.whenUnsatisfiable", action, _UNSATISFIABLE))
        pairs = [(one.get("topologyKey") or "", one.get("whenUnsatisfiable") or "") for one in constraints[index + 1 :]]
        if (key, action) in pairs:
            found.append(duplicate(f"{place}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        least = constraint.get("minDomains")
        if least is not None and least <= 0:
            found.append(invalid(f"{place}.minDomains", least, "must be greater than zero"))
        elif least is not None and action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            found.append(invalid(f"{place}.minDomains", least, detail))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(name) not in (None, "Honor", "Ignore"):
                found.append(not_supported(f"{place}.{name}", constraint[name], ("Honor", "Ignore")))
        found += values.check_label_selector(constraint.get("labelSelector"), f"{place}.labelSelector")
    return found
