"""Defaults of the small groups: roles, priorities, network, storage, autoscaling, admission policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from drakkar.cluster.machinery.defaulting.filling import each, filled, part

__all__ = ["DEFAULTS"]

Json = dict[str, Any]
_RBAC: Final = "rbac.authorization.k8s.io"


def _binding(obj: Json) -> Json:
    def subject(value: Json) -> Json:
        return filled(value, {"apiGroup": _RBAC}) if value.get("kind") in ("User", "Group") else value

    obj = part(obj, "roleRef", lambda reference: filled(reference, {"apiGroup": _RBAC}, blank=True))
    return each(obj, "subjects", subject)


def _network_policy(obj: Json) -> Json:
    def change(spec: Json) -> Json:
        if not spec.get("policyTypes"):
            spec = {**spec, "policyTypes": ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]}
        for name in ("ingress", "egress"):
            spec = each(spec, name, lambda rule: each(rule, "ports", lambda port: filled(port, {"protocol": "TCP"})))
        return spec

    return part(obj, "spec", change)


def _ingress_class(obj: Json) -> Json:
    return part(
        obj, "spec", lambda spec: part(spec, "parameters", lambda reference: filled(reference, {"scope": "Cluster"}))
    )


def _storage_class(obj: Json) -> Json:
    return filled(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


def _csi_driver(obj: Json) -> Json:
    values = {
        "attachRequired": True, "podInfoOnMount": False, "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"], "requiresRepublish": False,
        "seLinuxMount": False,
    }  # fmt: skip
    return part(obj, "spec", lambda spec: filled(spec, values))


def _endpoint_slice(obj: Json) -> Json:
    return each(obj, "ports", lambda port: filled(port, {"name": "", "protocol": "TCP"}))


def _autoscaler(obj: Json) -> Json:
    return part(obj, "spec", lambda spec: filled(spec, {"minReplicas": 1}))


def _match(resources: Json) -> Json:
    resources = filled(resources, {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}})
    for name in ("resourceRules", "excludeResourceRules"):
        resources = each(resources, name, lambda rule: filled(rule, {"scope": "*"}))
    return resources


def _admission_policy(obj: Json) -> Json:
    return part(obj, "spec", lambda spec: part(filled(spec, {"failurePolicy": "Fail"}), "matchConstraints", _match))


def _admission_binding(obj: Json) -> Json:
    def change(spec: Json) -> Json:
        return part(spec, "matchResources", _match)

    return part(obj, "spec", change)


def _webhooks(obj: Json) -> Json:
    values: Json = {
        "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
        "timeoutSeconds": 10,
    }  # fmt: skip
    if obj.get("kind") == "MutatingWebhookConfiguration":
        values["reinvocationPolicy"] = "Never"

    def change(webhook: Json) -> Json:
        webhook = each(filled(webhook, values), "rules", lambda rule: filled(rule, {"scope": "*"}))
        return part(webhook, "clientConfig", _client)

    return each(obj, "webhooks", change)


def _client(config: Json) -> Json:
    return part(config, "service", lambda service: filled(service, {"port": 443}))


def _definition(obj: Json) -> Json:
    def change(spec: Json) -> Json:
        wanted = spec.get("names") or {}
        kind = wanted.get("kind") or ""
        if not wanted.get("singular") and kind:
            wanted = {**wanted, "singular": kind.lower()}
        if not wanted.get("listKind") and kind:
            wanted = {**wanted, "listKind": f"{kind}List"}
        return part(filled({**spec, "names": wanted}, {"conversion": {"strategy": "None"}}), "conversion", conversion)

    def conversion(value: Json) -> Json:
        return part(value, "webhook", lambda webhook: part(webhook, "clientConfig", _client))

    return part(obj, "spec", change)


DEFAULTS: Final[dict[str, Callable[[Json], Json]]] = {
    "CSIDriver": _csi_driver,
    "ClusterRoleBinding": _binding,
    "CustomResourceDefinition": _definition,
    "EndpointSlice": _endpoint_slice,
    "HorizontalPodAutoscaler": _autoscaler,
    "IngressClass": _ingress_class,
    "MutatingWebhookConfiguration": _webhooks,
    "NetworkPolicy": _network_policy,
    "PriorityClass": lambda obj: filled(obj, {"preemptionPolicy": "PreemptLowerPriority"}),
    "RoleBinding": _binding,
    "StorageClass": _storage_class,
    "ValidatingAdmissionPolicy": _admission_policy,
    "ValidatingAdmissionPolicyBinding": _admission_binding,
    "ValidatingWebhookConfiguration": _webhooks,
}
