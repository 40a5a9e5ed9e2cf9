"""Which requests an admission policy or a webhook looks at.

Rules name groups, versions, resources, operations and scope, with `*` for all; namespaces and objects are chosen by
their labels. `matchPolicy: Equivalent`, the default, sees a kind whatever version of it was asked for. Source:
admissionregistration.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.admission.asked import Asked, equivalents
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.kube.selectors import LabelSelector

__all__ = ["matched", "matches"]


def matched(asked: Asked, constraints: Mapping[str, Any]) -> ApiResource | None:
    """The row in whose version `constraints` (matchConstraints, or a webhook) want to see the request; None if they
    are not about it. Raises `StatusError` 404 if the namespace that has to be looked at is gone."""
    try:
        chosen = _namespace_matches(asked, constraints.get("namespaceSelector"))
        missing = None
    except statuses.StatusError as error:
        chosen, missing = True, error
    if not chosen or not _object_matches(asked, constraints.get("objectSelector")):
        return None
    rules = constraints.get("resourceRules", constraints.get("rules"))
    row = asked.row if rules is None else _covered(asked, rules, constraints)
    if row is None:
        return None
    if _covered(asked, constraints.get("excludeResourceRules") or (), constraints) is not None:
        return None
    if missing is not None:
        raise missing
    return row


def matches(asked: Asked, constraints: Mapping[str, Any]) -> bool:
    """Whether the request is one that `constraints` (matchResources of a binding) are about."""
    if "resourceRules" in constraints and not constraints["resourceRules"]:
        constraints = {name: part for name, part in constraints.items() if name != "resourceRules"}
    return matched(asked, constraints) is not None


def _covered(asked: Asked, rules: Sequence[Mapping[str, Any]], constraints: Mapping[str, Any]) -> ApiResource | None:
    own = asked.row
    if any(_covers(asked, rule, own) for rule in rules):
        return own
    if constraints.get("matchPolicy") == "Exact":
        return None
    others = list(equivalents(asked.call))
    return next((row for rule in rules for row in others if _covers(asked, rule, row)), None)


def _covers(asked: Asked, rule: Mapping[str, Any], row: ApiResource) -> bool:
    names = rule.get("resourceNames")
    scope = rule.get("scope", "*")
    return (
        _in(asked.operation, rule.get("operations"))
        and _in(row.group, rule.get("apiGroups"))
        and _in(row.version, rule.get("apiVersions"))
        and _resource_in(row.plural, asked.subresource, rule.get("resources") or ())
        and scope in ("*", "Namespaced" if row.namespaced else "Cluster")
        and (not names or asked.object_name in names)
    )


def _in(value: str, among: Iterable[str] | None) -> bool:
    allowed = among or ()
    return "*" in allowed or value in allowed


def _resource_in(plural: str, subresource: str, among: Iterable[str]) -> bool:
    for one in among:
        wanted, _, part = one.partition("/")
        if wanted in ("*", plural) and part in (subresource, "*"):
            return True
    return False


def _namespace_matches(asked: Asked, selector: Mapping[str, Any] | None) -> bool:
    """Namespaces are chosen by their labels, namespaces themselves by their own; other cluster objects always are."""
    if not selector:
        return True
    row = asked.row
    own = row.plural == "namespaces" and not row.group
    if not row.namespaced and not own:
        return True
    if own and not asked.subresource and asked.obj is not None:
        labels = (asked.obj.get("metadata") or {}).get("labels") or {}
    else:
        stored = asked.call.server.store.collection("namespaces").get(asked.namespace)
        if stored is None:
            raise statuses.not_found("", "namespaces", asked.namespace)
        labels = stored.value["metadata"].get("labels") or {}
    return _selector(selector).matches(labels)


def _object_matches(asked: Asked, selector: Mapping[str, Any] | None) -> bool:
    """One of both objects must be chosen, so that nothing escapes by losing its label."""
    if not selector:
        return True
    chosen = _selector(selector)
    return any(
        chosen.matches((one.get("metadata") or {}).get("labels") or {})
        for one in (asked.obj, asked.old)
        if one is not None
    )


def _selector(selector: Mapping[str, Any]) -> LabelSelector:
    return _parsed(msgspec.json.encode(selector))


@lru_cache(maxsize=512)
def _parsed(text: bytes) -> LabelSelector:
    return LabelSelector.from_object(msgspec.json.decode(text))
