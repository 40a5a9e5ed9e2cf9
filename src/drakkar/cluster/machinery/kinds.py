"""A built-in kind as the API server needs it: decode, default, prepare, validate, in that order, by one small object.

What differs between kinds is in tables and in modules per family (`defaulting`, `validation`, `lifecycle`;
resource.k8s.io in `drakkar.api`); modules are imported when a kind of theirs is first used. Kinds that Kubernetes
does not have (custom resources) are not here: `kind_of` answers None.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from drakkar.api import fields
from drakkar.cluster.machinery import recall, strictness
from drakkar.cluster.machinery.schemas import Struct, struct_of
from drakkar.cluster.machinery.strictness import Decoded, DecodeError

__all__ = ["DecodeError", "Decoded", "Kind", "Rules", "kind_of", "rules_of"]

Json = dict[str, Any]
FieldErrors = list[fields.FieldError]
DRA: Final = "resource.k8s.io"


class Rules(NamedTuple):
    """What is regular about a kind.

    `name`: the rule for names (a function of `drakkar.kube.names`). `status`: there is a status that only its
    subresource writes. `generation`: metadata.generation counts changes of the spec. `unconditional`: updates without a
    resourceVersion are accepted.
    """

    namespaced: bool = True
    name: str = "dns_subdomain"
    status: bool = False
    generation: bool = False
    unconditional: bool = True


_WORKLOAD: Final = Rules(status=True, generation=True)
_CLUSTER: Final = Rules(namespaced=False)
_RULES: Final[dict[tuple[str, str], Rules]] = {
    ("", "ConfigMap"): Rules(),
    ("", "Endpoints"): Rules(),
    ("", "Event"): Rules(),
    ("", "LimitRange"): Rules(),
    ("", "Namespace"): Rules(namespaced=False, name="dns_label", status=True),
    ("", "Node"): Rules(namespaced=False, status=True),
    ("", "PersistentVolume"): Rules(namespaced=False, status=True),
    ("", "PersistentVolumeClaim"): Rules(status=True),
    ("", "Pod"): Rules(status=True, generation=True),
    ("", "PodTemplate"): Rules(generation=True),
    ("", "ReplicationController"): Rules(status=True, generation=True),
    ("", "ResourceQuota"): Rules(status=True),
    ("", "Secret"): Rules(),
    ("", "Service"): Rules(name="dns_label", status=True),
    ("", "ServiceAccount"): Rules(),
    ("apps", "ControllerRevision"): Rules(),
    ("apps", "DaemonSet"): _WORKLOAD,
    ("apps", "Deployment"): _WORKLOAD,
    ("apps", "ReplicaSet"): _WORKLOAD,
    ("apps", "StatefulSet"): _WORKLOAD,
    ("batch", "CronJob"): _WORKLOAD,
    ("batch", "Job"): _WORKLOAD,
    ("autoscaling", "HorizontalPodAutoscaler"): Rules(status=True),
    ("policy", "PodDisruptionBudget"): Rules(name="path_segment", status=True, generation=True, unconditional=False),
    ("coordination.k8s.io", "Lease"): Rules(unconditional=False),
    ("discovery.k8s.io", "EndpointSlice"): Rules(generation=True),
    ("events.k8s.io", "Event"): Rules(),
    ("networking.k8s.io", "NetworkPolicy"): Rules(generation=True),
    ("networking.k8s.io", "Ingress"): Rules(status=True, generation=True),
    ("networking.k8s.io", "IngressClass"): Rules(namespaced=False, generation=True),
    ("node.k8s.io", "RuntimeClass"): Rules(namespaced=False, unconditional=False),
    ("rbac.authorization.k8s.io", "Role"): Rules(name="path_segment"),
    ("rbac.authorization.k8s.io", "RoleBinding"): Rules(name="path_segment"),
    ("rbac.authorization.k8s.io", "ClusterRole"): Rules(namespaced=False, name="path_segment"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): Rules(namespaced=False, name="path_segment"),
    ("scheduling.k8s.io", "PriorityClass"): Rules(namespaced=False, generation=True),
    ("storage.k8s.io", "StorageClass"): _CLUSTER,
    ("storage.k8s.io", "CSIDriver"): Rules(namespaced=False, unconditional=False),
    ("storage.k8s.io", "CSINode"): Rules(namespaced=False, unconditional=False),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Rules(
        namespaced=False, status=True, generation=True, unconditional=False
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): Rules(
        namespaced=False, status=True, generation=True, unconditional=False
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): Rules(
        namespaced=False, generation=True, unconditional=False
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): Rules(
        namespaced=False, generation=True, unconditional=False
    ),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): Rules(
        namespaced=False, generation=True, unconditional=False
    ),
    ("apiregistration.k8s.io", "APIService"): Rules(namespaced=False, status=True, unconditional=False),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): Rules(namespaced=False, status=True, generation=True),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): Rules(
        namespaced=False, status=True, generation=True
    ),
    ("storagemigration.k8s.io", "StorageVersionMigration"): Rules(namespaced=False, status=True, generation=True),
    ("storage.k8s.io", "VolumeAttachment"): Rules(namespaced=False, status=True, unconditional=False),
    ("storage.k8s.io", "CSIStorageCapacity"): Rules(unconditional=False),
    ("certificates.k8s.io", "CertificateSigningRequest"): Rules(namespaced=False, status=True),
    (DRA, "DeviceClass"): Rules(namespaced=False, generation=True),
    (DRA, "DeviceTaintRule"): Rules(namespaced=False, status=True, generation=True, unconditional=False),
    (DRA, "ResourceClaim"): Rules(status=True),
    (DRA, "ResourceClaimTemplate"): Rules(),
    (DRA, "ResourceSlice"): Rules(namespaced=False, generation=True),
}


def rules_of(group: str, kind: str) -> Rules:
    """The regular part of a kind's behaviour."""
    return _RULES.get((group, kind), Rules())


class Kind:
    """One kind in one version. All methods are pure; what they return may share parts with what they were given."""

    __slots__ = ("_struct", "group", "group_version", "kind", "rules", "version")

    def __init__(self, group: str, version: str, kind: str, struct: Struct) -> None:
        self.group = group
        self.version = version
        self.kind = kind
        self.group_version = f"{group}/{version}" if group else version
        self.rules = rules_of(group, kind)
        self._struct = struct

    def __repr__(self) -> str:
        return f"Kind({self.group_version}, {self.kind})"

    @property
    def schema(self) -> Struct:
        """The Go struct behind the kind."""
        return self._struct

    def decode(self, body: bytes, content_type: str = strictness.JSON, field_validation: str = "Warn") -> Decoded:
        """The object in a request body, typed. Raises `DecodeError`."""
        return strictness.decode(body, content_type, self.group_version, self.kind, self._struct, field_validation)

    def shape(
        self, obj: Json, field_validation: str = "Warn", *, source: str = "json", known: Json | None = None
    ) -> Decoded:
        """An already parsed body, typed; it stays the caller's. Raises `DecodeError`.

        `known` is the stored object of this kind, if there is one: parts of the body that are the very parts of it are
        neither read nor copied.
        """
        strictness.check_type_meta(obj, self.group_version, self.kind)
        return strictness.shape_checked(
            obj,
            self.group_version,
            self.kind,
            self._struct,
            field_validation,
            yaml=source == "yaml",
            borrowed=True,
            known=known,
        )

    def default(self, obj: Json, *, now: str, known: Json | None = None) -> Json:
        """The object with defaults; `now` is RFC 3339 with whole seconds. Parts of `known` have theirs."""
        if self.group == DRA:
            from drakkar.api import defaulting as dra

            if known is not None and _same_parts(obj, known):
                return obj
            spec = obj.get("spec")
            if self.kind == "ResourceClaim" and isinstance(spec, dict) and not obj.get("status"):
                kept = {"kind": self.kind, "apiVersion": self.group_version, "spec": spec}
                filled = recall.made_once(spec, "defaults", lambda: dra.default(kept, now=now)["spec"])
                return obj if filled is spec else {**obj, "spec": filled}
            return dra.default(obj, now=now)
        from drakkar.cluster.machinery import defaulting

        return defaulting.default(self.group, self.kind, obj, known)

    def prepare_create(self, obj: Json) -> Json:
        """The object as it is created: status and what the server owns reset."""
        if self.group == DRA:
            from drakkar.api import lifecycle as dra

            return dra.prepare_create(obj)
        from drakkar.cluster.machinery import lifecycle

        return lifecycle.prepare_create(self, obj)

    def prepare_update(self, new: Json, old: Json, subresource: str = "") -> Json:
        """The object as it is stored: only what the path may write differs from `old`."""
        if self.group == DRA:
            from drakkar.api import lifecycle as dra

            return dra.prepare_update(new, old, subresource)
        from drakkar.cluster.machinery import lifecycle

        return lifecycle.prepare_update(self, new, old, subresource)

    def validate_create(self, obj: Json) -> FieldErrors:
        """What is wrong with a new object."""
        if self.group == DRA:
            from drakkar.api import validation as dra

            spec = obj.get("spec")
            if self.kind == "ResourceClaim" and recall.keeps(spec):
                faults = recall.once(spec, "faults", lambda: dra.validate_create({**_SOME_CLAIM, "spec": spec}))
                return dra.validate_create(obj if faults else {**obj, "spec": {}})
            return dra.validate_create(obj)
        from drakkar.cluster.machinery import validation

        return validation.validate_create(self, obj)

    def validate_update(self, new: Json, old: Json, subresource: str = "") -> FieldErrors:
        """What is wrong with a changed object."""
        if self.group == DRA:
            from drakkar.api import validation as dra

            return dra.validate_update(new, old, subresource)
        from drakkar.cluster.machinery import validation

        return validation.validate_update(self, new, old, subresource)

    def invalid_status(self, obj: Json, errors: FieldErrors) -> Json:
        """The 422 Status for what validation found."""
        return fields.invalid_status(self.group, self.kind, (obj.get("metadata") or {}).get("name") or "", errors)

    def warnings(self, new: Json, old: Json | None = None) -> list[str]:
        """Texts for Warning headers about a created (`old` is None) or changed object."""
        if self.group == DRA:
            from drakkar.api import lifecycle as dra

            return dra.warnings(new)
        from drakkar.cluster.machinery import advice

        return advice.warnings(self.group, self.kind, new, old)


def _same_parts(obj: Json, known: Json) -> bool:
    """Whether nothing but metadata differs, told by identity."""
    return all(part is known.get(name) or name in _META for name, part in obj.items())


_META: Final = frozenset(("metadata", "kind", "apiVersion"))
_SOME_CLAIM: Final[Json] = {
    "kind": "ResourceClaim", "apiVersion": f"{DRA}/v1", "metadata": {"name": "some", "namespace": "some"},
}  # fmt: skip


@cache
def kind_of(group: str, version: str, kind: str) -> Kind | None:
    """The built-in kind, or None for kinds that Kubernetes does not have."""
    struct = struct_of(f"{group}/{version}" if group else version, kind)
    return Kind(group, version, kind, struct) if struct else None
