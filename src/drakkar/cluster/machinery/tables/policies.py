"""Rows of the small groups: roles, leases, priorities, budgets, classes, network, admission."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from drakkar.cluster.machinery.tables.words import NONE, age, joined, name, selector_text, spec, status

__all__ = ["CELLS"]

Json = Mapping[str, Any]


def _binding(obj: Json, now: datetime) -> list[Any]:
    reference = obj.get("roleRef") or {}
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        shown = subject.get("name") or ""
        if subject.get("kind") == "ServiceAccount" and subject.get("namespace"):
            shown = f"{subject['namespace']}/{shown}"
        by_kind.setdefault(subject.get("kind") or "", []).append(shown)
    listed = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name(obj), f"{reference.get('kind') or ''}/{reference.get('name') or ''}", age(obj, now), *listed]


def _lease(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), spec(obj).get("holderIdentity") or "", age(obj, now)]


def _priority(obj: Json, now: datetime) -> list[Any]:
    return [
        name(obj), obj.get("value") or 0, bool(obj.get("globalDefault")), age(obj, now),
        obj.get("preemptionPolicy") or "",
    ]  # fmt: skip


def _runtime_class(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), obj.get("handler") or "", age(obj, now)]


def _budget(obj: Json, now: datetime) -> list[Any]:
    wanted = [spec(obj).get(key) for key in ("minAvailable", "maxUnavailable")]
    shown = ["N/A" if value is None else str(value) for value in wanted]
    return [name(obj), *shown, status(obj).get("disruptionsAllowed") or 0, age(obj, now)]


def _storage_class(obj: Json, now: datetime) -> list[Any]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        name(obj) + (" (default)" if default else ""),
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "<unset>",
        bool(obj.get("allowVolumeExpansion")),
        age(obj, now),
    ]


def _csi_driver(obj: Json, now: datetime) -> list[Any]:
    inner = spec(obj)
    del now
    return [
        name(obj), inner.get("attachRequired", True), inner.get("podInfoOnMount", False),
        inner.get("storageCapacity", False),
    ]  # fmt: skip


def _csi_node(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), len(spec(obj).get("drivers") or ()), age(obj, now)]


def _network_policy(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), selector_text(spec(obj).get("podSelector") or {}), age(obj, now)]


def _ingress(obj: Json, now: datetime) -> list[Any]:
    inner = spec(obj)
    hosts = [rule["host"] for rule in inner.get("rules") or () if rule.get("host")]
    balanced = (status(obj).get("loadBalancer") or {}).get("ingress") or ()
    addresses = sorted({item.get("ip") or item.get("hostname") or "" for item in balanced} - {""})
    return [
        name(obj), inner.get("ingressClassName") or NONE, ",".join(hosts) or "*", ",".join(addresses),
        "80, 443" if inner.get("tls") else "80", age(obj, now),
    ]  # fmt: skip


def _ingress_class(obj: Json, now: datetime) -> list[Any]:
    parameters = spec(obj).get("parameters")
    shown = NONE
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        shown = f"{parameters.get('kind') or ''}{group}/{parameters.get('name') or ''}"
    return [name(obj), spec(obj).get("controller") or "", shown, age(obj, now)]


def _autoscaler(obj: Json, now: datetime) -> list[Any]:
    inner, target = spec(obj), spec(obj).get("scaleTargetRef") or {}
    low = inner.get("minReplicas")
    return [
        name(obj),
        f"{target.get('kind') or ''}/{target.get('name') or ''}",
        _metrics(inner),
        "<unset>" if low is None else str(low),
        inner.get("maxReplicas") or 0,
        status(obj).get("currentReplicas") or 0,
        age(obj, now),
    ]


def _metrics(inner: Json) -> str:
    shown = []
    for metric in inner.get("metrics") or ():
        source = metric.get("resource") or {}
        target = source.get("target") or {}
        wanted = (
            f"{target['averageUtilization']}%" if "averageUtilization" in target else target.get("averageValue", "")
        )
        shown.append(f"{source.get('name') or metric.get('type') or ''}: <unknown>/{wanted}")
    return joined(shown)


def _webhooks(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), len(obj.get("webhooks") or ()), age(obj, now)]


def _admission_policy(obj: Json, now: datetime) -> list[Any]:
    kind = spec(obj).get("paramKind")
    shown = f"{kind.get('apiVersion') or ''}/{kind.get('kind') or ''}" if kind else "<unset>"
    return [name(obj), len(spec(obj).get("validations") or ()), shown, age(obj, now)]


def _admission_binding(obj: Json, now: datetime) -> list[Any]:
    reference = spec(obj).get("paramRef") or {}
    shown = "<unset>"
    if reference.get("name"):
        shown = f"{reference.get('namespace') or '*'}/{reference['name']}"
    return [name(obj), spec(obj).get("policyName") or "", shown, age(obj, now)]


def _signing_request(obj: Json, now: datetime) -> list[Any]:
    inner = spec(obj)
    seconds = inner.get("expirationSeconds")
    from drakkar.cluster.machinery.tables.ages import human

    kinds = {condition.get("type") for condition in status(obj).get("conditions") or ()}
    words = [word for word in ("Denied", "Approved", "Failed") if word in kinds][:1] or ["Pending"]
    if status(obj).get("certificate"):
        words.append("Issued")
    return [
        name(obj), age(obj, now), inner.get("signerName") or NONE, inner.get("username") or "",
        human(seconds) if seconds is not None else NONE, ",".join(words),
    ]  # fmt: skip


CELLS: Final = {
    "CSIDriver": _csi_driver,
    "CSINode": _csi_node,
    "CertificateSigningRequest": _signing_request,
    "ClusterRoleBinding": _binding,
    "HorizontalPodAutoscaler": _autoscaler,
    "Ingress": _ingress,
    "IngressClass": _ingress_class,
    "Lease": _lease,
    "MutatingWebhookConfiguration": _webhooks,
    "NetworkPolicy": _network_policy,
    "PodDisruptionBudget": _budget,
    "PriorityClass": _priority,
    "RoleBinding": _binding,
    "RuntimeClass": _runtime_class,
    "StorageClass": _storage_class,
    "ValidatingAdmissionPolicy": _admission_policy,
    "ValidatingAdmissionPolicyBinding": _admission_binding,
    "ValidatingWebhookConfiguration": _webhooks,
}
