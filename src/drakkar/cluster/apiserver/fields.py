"""Field selectors: which fields of which kind may be selected by, and how to read them.

Data as in the registries of kube-apiserver (`AddFieldLabelConversionFunc` and the strategies' attributes): few kinds
have more than name and namespace, and three ways exist to refuse an unknown field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.kube.selectors import FieldSelector

Reader = Callable[[dict[str, Any]], str]


def _at(path: str, default: str = "") -> Reader:
    keys = path.split(".")

    def read(value: dict[str, Any]) -> str:
        found: Any = value
        for key in keys:
            if not isinstance(found, dict) or key not in found:
                return default
            found = found[key]
        if isinstance(found, bool):
            return "true" if found else "false"
        return default if found is None else str(found)

    return read


def _event_source(value: dict[str, Any]) -> str:
    source: str = (value.get("source") or {}).get("component") or value.get("reportingComponent") or ""
    return source


def _involved(prefix: str) -> dict[str, Reader]:
    names = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return {f"{prefix}.{name}": _at(f"involvedObject.{name}") for name in names}


# Pods can be asked for status.podIPs, but the attribute is never filled: nothing matches (recorded behaviour).
_FIELDS: Final[dict[str, dict[str, Reader]]] = {
    "Pod": {
        "spec.nodeName": _at("spec.nodeName"),
        "spec.restartPolicy": _at("spec.restartPolicy"),
        "spec.schedulerName": _at("spec.schedulerName"),
        "spec.serviceAccountName": _at("spec.serviceAccountName"),
        "spec.hostNetwork": _at("spec.hostNetwork", "false"),
        "status.phase": _at("status.phase"),
        "status.podIP": _at("status.podIP"),
        "status.podIPs": lambda _: "",
        "status.nominatedNodeName": _at("status.nominatedNodeName"),
    },
    "Event": {
        **_involved("involvedObject"),
        "reason": _at("reason"),
        "reportingComponent": _at("reportingComponent"),
        "source": _event_source,
        "type": _at("type"),
    },
    "events.k8s.io/Event": {
        **_involved("regarding"),
        "reason": _at("reason"),
        "reportingController": _at("reportingComponent"),
        "type": _at("type"),
    },
    "Node": {"spec.unschedulable": _at("spec.unschedulable", "false")},
    "Namespace": {"status.phase": _at("status.phase"), "name": _at("metadata.name")},
    "Secret": {"type": _at("type")},
    "Service": {"spec.clusterIP": _at("spec.clusterIP"), "spec.type": _at("spec.type")},
    "ReplicationController": {"status.replicas": _at("status.replicas", "0")},
    "ReplicaSet": {"status.replicas": _at("status.replicas", "0")},
    "Job": {"status.successful": _at("status.succeeded", "0")},
    "ResourceSlice": {
        "spec.nodeName": _at("spec.nodeName"),
        "spec.driver": _at("spec.driver"),
        "spec.pool.name": _at("spec.pool.name"),
    },
    "CertificateSigningRequest": {"spec.signerName": _at("spec.signerName")},
}
_ANSWER_BY_LABEL: Final = {
    "Pod",
    "Event",
    "events.k8s.io/Event",
    "Node",
    "Namespace",
    "Secret",
    "ReplicationController",
}
_CLUSTER_SCOPED_WITHOUT_NAMESPACE: Final = {"Node", "Namespace"}

_NAME: Final = _at("metadata.name")
_NAMESPACE: Final = _at("metadata.namespace")


def readers(row: ApiResource, selector: FieldSelector) -> dict[str, Reader]:
    """How to read each field that `selector` names; raises `StatusError` 400 for a field the kind does not have."""
    name = f"events.k8s.io/{row.kind}" if row.group == "events.k8s.io" else row.kind
    known = _FIELDS.get(name, {}) if not row.custom else _selectable(row)
    found: dict[str, Reader] = {}
    for path, _, _ in selector.requirements:
        if path in known:
            found[path] = known[path]
        elif path == "metadata.name":
            found[path] = _NAME
        elif path == "metadata.namespace" and name not in _CLUSTER_SCOPED_WITHOUT_NAMESPACE:
            found[path] = _NAMESPACE
        else:
            raise statuses.bad_request(_refusal(name, row.kind, path, known if row.custom else ()))
    return found


def _selectable(row: ApiResource) -> dict[str, Reader]:
    """The fields that a custom kind declares (KEP-4358)."""
    declared = row.extra.get("selectable")
    return {path: _at(path) for path in declared} if isinstance(declared, tuple) else {}


def _refusal(name: str, kind: str, path: str, custom: Iterable[str] = ()) -> str:
    if custom:
        return f"field label not supported: {path}"
    if name in _ANSWER_BY_LABEL:
        return f"field label not supported: {path}"
    if kind in _FIELDS:
        return f'field label "{path}" not supported for {kind}'
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def selected(value: dict[str, Any], selector: FieldSelector, found: Mapping[str, Reader]) -> bool:
    """Whether an object has what the selector asks for."""
    return all((found[path](value) == wanted) is equal for path, equal, wanted in selector.requirements)
