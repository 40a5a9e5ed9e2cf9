"""What the server serves, as data: one short row per kind.

A row names the kind and what differs between kinds in the generic way objects are stored, listed, replaced and deleted;
everything else (schema, defaults, validation, columns) belongs to `drakkar.cluster.machinery` and is found by the
kind's name. Custom resources add rows at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS: Final = ("get", "patch", "update")


class Subresource(msgspec.Struct, frozen=True):
    """A path below an object, with the kind it speaks (``""``: the parent's own kind)."""

    name: str
    verbs: tuple[str, ...] = STATUS_VERBS
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS: Final = Subresource("status")
SCALE: Final = Subresource("scale", STATUS_VERBS, "Scale", "autoscaling", "v1")


class ApiResource(msgspec.Struct, frozen=True):
    """One kind in one version.

    `storage` is the collection its objects live in (another version or group may share it); `put_creates`:
    AllowCreateOnUpdate; `deprecated` is told to everybody who asks for the kind; `orphans`: dependents are orphaned
    unless a delete says otherwise; `shows_deleted`: a delete answers the object rather than a Status; `ephemeral`:
    nothing is stored (reviews).
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    storage: str = ""
    put_creates: bool = False
    shows_deleted: bool = False
    orphans: bool = False
    ephemeral: bool = False
    singular_name: str = ""
    stored_as: tuple[str, str] | None = None
    custom: bool = False
    deprecated: str = ""
    columns: tuple[Mapping[str, Any], ...] = ()
    extra: dict[str, object] = msgspec.field(default_factory=dict)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @property
    def collection(self) -> str:
        return self.storage or (f"{self.plural}.{self.group}" if self.group else self.plural)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    def subresource(self, name: str) -> Subresource | None:
        return next((one for one in self.subresources if one.name == name), None)


def _namespaced(group: str, plural: str, kind: str, *, short: str = "", **more: object) -> ApiResource:
    short_names = tuple(short.split()) if short else ()
    return ApiResource(group, "v1", plural, kind, True, short_names, **more)  # type: ignore[arg-type]


def _cluster(group: str, plural: str, kind: str, *, short: str = "", **more: object) -> ApiResource:
    short_names = tuple(short.split()) if short else ()
    return ApiResource(group, "v1", plural, kind, False, short_names, **more)  # type: ignore[arg-type]


_ALL: Final = ("all",)
_CREATE: Final = ("create",)

_PROXY: Final = ("create", "delete", "get", "patch", "update")
_POD_SUBRESOURCES: Final = (
    Subresource("attach", ("create", "get"), "PodAttachOptions"),
    Subresource("binding", _CREATE, "Binding"),
    Subresource("ephemeralcontainers"),
    Subresource("eviction", _CREATE, "Eviction", "policy", "v1"),
    Subresource("exec", ("create", "get"), "PodExecOptions"),
    Subresource("log", ("get",)),
    Subresource("portforward", ("create", "get"), "PodPortForwardOptions"),
    Subresource("proxy", _PROXY, "PodProxyOptions"),
    Subresource("resize"),
    STATUS,
)

_CORE: Final = (
    _namespaced("", "bindings", "Binding", verbs=_CREATE, ephemeral=True),
    _namespaced("", "configmaps", "ConfigMap", short="cm"),
    _namespaced(
        "",
        "endpoints",
        "Endpoints",
        short="ep",
        put_creates=True,
        singular_name="endpoints",
        deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    _namespaced("", "events", "Event", short="ev", put_creates=True),
    _namespaced("", "limitranges", "LimitRange", short="limits", put_creates=True),
    _cluster(
        "",
        "namespaces",
        "Namespace",
        short="ns",
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        subresources=(Subresource("finalize", ("update",)), STATUS),
    ),
    _cluster(
        "",
        "nodes",
        "Node",
        short="no",
        subresources=(Subresource("proxy", _PROXY, "NodeProxyOptions"), STATUS),
    ),
    _namespaced(
        "",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short="pvc",
        subresources=(STATUS,),
        shows_deleted=True,
    ),
    _cluster("", "persistentvolumes", "PersistentVolume", short="pv", subresources=(STATUS,), shows_deleted=True),
    _namespaced(
        "",
        "pods",
        "Pod",
        short="po",
        categories=_ALL,
        subresources=_POD_SUBRESOURCES,
        shows_deleted=True,
    ),
    _namespaced("", "podtemplates", "PodTemplate", shows_deleted=True),
    _namespaced(
        "",
        "replicationcontrollers",
        "ReplicationController",
        short="rc",
        categories=_ALL,
        subresources=(SCALE, STATUS),
    ),
    _namespaced(
        "",
        "resourcequotas",
        "ResourceQuota",
        short="quota",
        subresources=(STATUS,),
        shows_deleted=True,
    ),
    _namespaced("", "secrets", "Secret"),
    _namespaced(
        "",
        "serviceaccounts",
        "ServiceAccount",
        short="sa",
        subresources=(Subresource("token", _CREATE, "TokenRequest", "authentication.k8s.io", "v1"),),
        shows_deleted=True,
    ),
    _namespaced(
        "",
        "services",
        "Service",
        short="svc",
        categories=_ALL,
        put_creates=True,
        subresources=(
            Subresource("proxy", _PROXY, "ServiceProxyOptions"),
            STATUS,
        ),
        shows_deleted=True,
    ),
)

_APPS: Final = (
    _namespaced("apps", "controllerrevisions", "ControllerRevision"),
    _namespaced("apps", "daemonsets", "DaemonSet", short="ds", categories=_ALL, subresources=(STATUS,)),
    _namespaced("apps", "deployments", "Deployment", short="deploy", categories=_ALL, subresources=(SCALE, STATUS)),
    _namespaced("apps", "replicasets", "ReplicaSet", short="rs", categories=_ALL, subresources=(SCALE, STATUS)),
    _namespaced("apps", "statefulsets", "StatefulSet", short="sts", categories=_ALL, subresources=(SCALE, STATUS)),
    _namespaced("batch", "cronjobs", "CronJob", short="cj", categories=_ALL, subresources=(STATUS,)),
    _namespaced("batch", "jobs", "Job", categories=_ALL, subresources=(STATUS,), orphans=True),
    _namespaced("policy", "poddisruptionbudgets", "PodDisruptionBudget", short="pdb", subresources=(STATUS,)),
    ApiResource(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        ("hpa",),
        _ALL,
        subresources=(STATUS,),
    ),
    ApiResource(
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        ("hpa",),
        _ALL,
        subresources=(STATUS,),
        stored_as=("autoscaling", "v2"),
    ),
)

_RESOURCE: Final = (
    _cluster("resource.k8s.io", "deviceclasses", "DeviceClass", shows_deleted=True),
    _cluster("resource.k8s.io", "devicetaintrules", "DeviceTaintRule", subresources=(STATUS,)),
    _namespaced("resource.k8s.io", "resourceclaims", "ResourceClaim", subresources=(STATUS,), shows_deleted=True),
    _namespaced("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", shows_deleted=True),
    _cluster("resource.k8s.io", "resourceslices", "ResourceSlice", shows_deleted=True),
)

_CLUSTER: Final = (
    _namespaced("coordination.k8s.io", "leases", "Lease", put_creates=True),
    ApiResource(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        True,
        ("ev",),
        storage="events",
        put_creates=True,
        stored_as=("", "v1"),
    ),
    _namespaced("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    _cluster("networking.k8s.io", "ingressclasses", "IngressClass"),
    _namespaced("networking.k8s.io", "ingresses", "Ingress", short="ing", subresources=(STATUS,)),
    _namespaced("networking.k8s.io", "networkpolicies", "NetworkPolicy", short="netpol"),
    _cluster("node.k8s.io", "runtimeclasses", "RuntimeClass", put_creates=True),
    _cluster("scheduling.k8s.io", "priorityclasses", "PriorityClass", short="pc"),
    _cluster("storage.k8s.io", "storageclasses", "StorageClass", short="sc", shows_deleted=True),
    _cluster("storage.k8s.io", "csidrivers", "CSIDriver", shows_deleted=True),
    _cluster("storage.k8s.io", "csinodes", "CSINode", shows_deleted=True),
    _cluster("storage.k8s.io", "volumeattachments", "VolumeAttachment", subresources=(STATUS,), shows_deleted=True),
    _cluster("storagemigration.k8s.io", "storageversionmigrations", "StorageVersionMigration", subresources=(STATUS,)),
    _namespaced("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", shows_deleted=True),
    _cluster(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        short="crd crds",
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    _cluster(
        "apiregistration.k8s.io",
        "apiservices",
        "APIService",
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    _cluster(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        categories=("api-extensions",),
    ),
    _cluster(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        categories=("api-extensions",),
        subresources=(STATUS,),
    ),
    _cluster(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        categories=("api-extensions",),
    ),
    _cluster(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        categories=("api-extensions",),
    ),
    _cluster("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", short="csr"),
    _cluster("flowcontrol.apiserver.k8s.io", "flowschemas", "FlowSchema", subresources=(STATUS,)),
    _cluster(
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        subresources=(STATUS,),
    ),
)

_RBAC: Final = (
    _cluster("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", put_creates=True),
    _cluster("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", put_creates=True),
    _namespaced("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", put_creates=True),
    _namespaced("rbac.authorization.k8s.io", "roles", "Role", put_creates=True),
)


def _review(group: str, plural: str, kind: str, namespaced: bool = False) -> ApiResource:
    return ApiResource(group, "v1", plural, kind, namespaced, verbs=_CREATE, ephemeral=True)


_REVIEWS: Final = (
    _review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    _review("authentication.k8s.io", "tokenreviews", "TokenReview"),
    _review("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", True),
    _review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    _review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
)

BUILT_IN: Final = (*_CORE, *_APPS, *_RESOURCE, *_CLUSTER, *_RBAC, *_REVIEWS)

GROUP_ORDER: Final = (
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)
"""Discovery lists groups in this order, others after them by name."""

RESOURCE_BETAS: Final = ("v1beta2", "v1beta1")


class Registry:
    """The rows by group, version and plural. Rows may come and go (custom resources)."""

    def __init__(self, rows: Iterable[ApiResource] = BUILT_IN, *, resource_betas: bool = False) -> None:
        self._rows: dict[tuple[str, str, str], ApiResource] = {}
        self.generation = 0
        for row in rows:
            self.add(row)
        if resource_betas:
            for version in RESOURCE_BETAS:
                for row in _RESOURCE:
                    self.add(_in_version(row, version))

    def add(self, row: ApiResource) -> None:
        self._rows[row.group, row.version, row.plural] = row
        self.generation += 1

    def remove(self, row: ApiResource) -> None:
        self._rows.pop((row.group, row.version, row.plural), None)
        self.generation += 1

    def get(self, group: str, version: str, plural: str) -> ApiResource | None:
        return self._rows.get((group, version, plural))

    def rows(self) -> list[ApiResource]:
        return list(self._rows.values())

    def groups(self) -> dict[str, list[str]]:
        """Group to its versions, preferred first, in the order of discovery."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._rows:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        order = {group: number for number, group in enumerate(GROUP_ORDER)}
        return {group: found[group] for group in sorted(found, key=lambda name: (order.get(name, len(order)), name))}

    def serves(self, group: str, version: str) -> bool:
        return any(row.group == group and row.version == version for row in self._rows.values())


def _in_version(row: ApiResource, version: str) -> ApiResource:

    return msgspec.structs.replace(row, version=version, storage=row.collection, stored_as=(row.group, "v1"))
