"""Which requests an admission policy or a webhook looks at, and how the request is told to it.

Rules name groups, versions, resources, operations and scope, with `*` for all; namespaces and objects are chosen by
their labels. `matchPolicy: Equivalent`, the default, sees a kind whatever version of it was asked for. Source:
admissionregistration.k8s.io/v1.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from drakkar.cluster.apiserver.calls import Call
from drakkar.kube.selectors import LabelSelector

Value = dict[str, Any]


def matches(call: Call, operation: str, obj: Value | None, old: Value | None, constraints: Mapping[str, Any]) -> bool:
    """Whether the request is one that `constraints` (matchConstraints, matchResources, or a webhook) are about."""
    name = call.name or ((obj or old or {}).get("metadata") or {}).get("name", "")
    equivalent = constraints.get("matchPolicy") != "Exact"
    rules = constraints.get("resourceRules", constraints.get("rules"))
    if rules is not None and not any(_covers(call, operation, rule, name, equivalent) for rule in rules):
        return False
    if any(_covers(call, operation, rule, name, equivalent) for rule in constraints.get("excludeResourceRules") or ()):
        return False
    return _namespace_matches(call, obj or old, constraints.get("namespaceSelector")) and _object_matches(
        obj, old, constraints.get("objectSelector")
    )


def admission_request(call: Call, operation: str, obj: Value | None, old: Value | None) -> Value:
    """The request as policies see it: `admission.k8s.io/v1` AdmissionRequest without the objects.

    What is empty is there with its empty value: expressions may read it. (`has()` of it is false in Kubernetes.)
    """
    row = call.row
    kind = {"group": row.group, "version": row.version, "kind": row.kind}
    resource = {"group": row.group, "version": row.version, "resource": row.plural}
    request: Value = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": call.name or ((obj or old or {}).get("metadata") or {}).get("name", ""),
        "operation": operation,
        "userInfo": {"uid": "", "groups": [], "extra": {}, **call.user.info()},
        "dryRun": call.dry_run,
        "namespace": call.info.namespace if row.namespaced else "",
    }
    request["subResource"] = request["requestSubResource"] = call.subresource.name if call.subresource else ""
    return request


def _covers(call: Call, operation: str, rule: Mapping[str, Any], name: str, equivalent: bool) -> bool:
    row = call.row
    names = rule.get("resourceNames")
    return (
        _in(operation, rule.get("operations"))
        and _in(row.group, rule.get("apiGroups"))
        and (equivalent or _in(row.version, rule.get("apiVersions")))
        and _resource_in(row.plural, call.subresource.name if call.subresource else "", rule.get("resources") or ())
        and rule.get("scope", "*") in ("*", "Namespaced" if row.namespaced else "Cluster")
        and (not names or name in names)
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


def _namespace_matches(call: Call, obj: Value | None, selector: Mapping[str, Any] | None) -> bool:
    """Namespaces are chosen by their labels, namespaces themselves by their own; other cluster objects always are."""
    if not selector:
        return True
    if call.row.namespaced:
        stored = call.server.store.collection("namespaces").get(call.info.namespace)
        labels = (stored.value["metadata"].get("labels") or {}) if stored is not None else {}
    elif call.row.collection == "namespaces":
        labels = ((obj or {}).get("metadata") or {}).get("labels") or {}
    else:
        return True
    return LabelSelector.from_object(dict(selector)).matches(labels)


def _object_matches(obj: Value | None, old: Value | None, selector: Mapping[str, Any] | None) -> bool:
    """One of both objects must be chosen, so that nothing escapes by losing its label."""
    if not selector:
        return True
    chosen = LabelSelector.from_object(dict(selector))
    return any(chosen.matches((one.get("metadata") or {}).get("labels") or {}) for one in (obj, old) if one is not None)
