"""Names and paths of API resources, as data.

A `Resource` is what a client needs to address objects of one kind; the API server has descriptors of its own. Paths
follow the Kubernetes API conventions: ``/api/v1`` for the core group, ``/apis/<group>/<version>`` for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as one version of one group serves it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, an object or its subresource; `namespace` None means all namespaces."""
        parts = ["/apis/" + self.group if self.group else "/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod", True, ("po",))
NODES = Resource("", "v1", "nodes", "Node", False, ("no",))
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, ("ns",))
EVENTS = Resource("", "v1", "events", "Event", True, ("ev",))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, ("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",))
SERVICES = Resource("", "v1", "services", "Service", True, ("svc",))
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ("quota",))
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", True, ("limits",))
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, ("deploy",))
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, ("rs",))
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", True, ("sts",))
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",))
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", True, ("cj",))
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",))
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",))
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False)
DEVICE_TAINT_RULES = Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", False)

ALL: tuple[Resource, ...] = (
    PODS, NODES, NAMESPACES, EVENTS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, SERVICES, RESOURCE_QUOTAS, LIMIT_RANGES,
    LEASES, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, CONTROLLER_REVISIONS, JOBS, CRON_JOBS,
    PRIORITY_CLASSES, RUNTIME_CLASSES, POD_DISRUPTION_BUDGETS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, RESOURCE_SLICES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES, DEVICE_CLASSES, DEVICE_TAINT_RULES,
)  # fmt: skip


def by_name(word: str) -> Resource | None:
    """The resource that kubectl would take `word` for: plural, singular, kind or short name; None if unknown."""
    lowered = word.lower().partition(".")[0]
    for resource in ALL:
        if lowered in (resource.plural, resource.singular, *resource.short_names):
            return resource
    return None
