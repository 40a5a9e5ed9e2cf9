"""What a kubelet may: its own pods and what they use (`plugin/pkg/auth/authorizer/node`).

The original keeps a graph from nodes over pods to secrets, claims and the rest. Here the same questions are answered by
walking the node's pods, which an index by node name makes short.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from drakkar.cluster.store import Store

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.authorization import Attributes

_READ: Final = ("get", "list", "watch")
_POD_KINDS: Final = {
    "secrets": "secret",
    "configmaps": "configmap",
    "persistentvolumeclaims": "pvc",
    "resourceclaims": "claim",
}

# What system:node may do without a look at the object (the rules of that ClusterRole that are not restricted).
_RULES: Final[tuple[tuple[str, str, str, tuple[str, ...]], ...]] = (
    ("authentication.k8s.io", "tokenreviews", "", ("create",)),
    ("authorization.k8s.io", "subjectaccessreviews", "", ("create",)),
    ("authorization.k8s.io", "localsubjectaccessreviews", "", ("create",)),
    ("", "services", "", _READ),
    ("", "nodes", "", ("create", *_READ, "update", "patch")),
    ("", "nodes", "status", ("update", "patch")),
    ("", "pods", "", (*_READ, "create", "delete")),
    ("", "pods", "status", ("update", "patch")),
    ("", "pods", "eviction", ("create",)),
    ("", "events", "", ("create", "update", "patch")),
    ("events.k8s.io", "events", "", ("create", "update", "patch")),
    ("certificates.k8s.io", "certificatesigningrequests", "", ("create", *_READ)),
    ("coordination.k8s.io", "leases", "", ("get", "create", "update", "patch", "delete")),
    ("storage.k8s.io", "volumeattachments", "", ("get",)),
    ("storage.k8s.io", "csidrivers", "", _READ),
    ("storage.k8s.io", "csinodes", "", ("get", "create", "update", "patch", "delete")),
    ("node.k8s.io", "runtimeclasses", "", _READ),
)


class NodeAuthorizer:
    """`decide(node, attributes)`; a refusal's reason is the original's text, "" when it has none."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decide(self, node: str, asked: Attributes) -> tuple[bool, str]:
        """Whether the node may, and why not."""
        if asked.path:
            return False, ""
        if asked.group == "resource.k8s.io" and asked.resource == "resourceslices":
            return self._slice(node, asked)
        if asked.group == "coordination.k8s.io" and asked.resource == "leases":
            return self._lease(node, asked)
        if (asked.group, asked.resource) in (("", "secrets"), ("", "configmaps"), ("", "persistentvolumeclaims")) or (
            asked.group == "resource.k8s.io" and asked.resource == "resourceclaims"
        ):
            return self._used(node, asked)
        if asked.group == "" and asked.resource == "serviceaccounts" and asked.subresource == "token":
            return self._token(node, asked)
        if asked.group == "" and asked.resource == "pods" and asked.verb in _READ and not asked.subresource:
            return self._pod(node, asked)
        if asked.group == "" and asked.resource == "nodes" and asked.verb in ("list", "watch"):
            if asked.name == node or f"metadata.name={node}" in asked.field_selector.split(","):
                return True, ""
            return False, f"node '{node}' cannot read all nodes, only its own Node object"
        for group, resource, subresource, verbs in _RULES:
            if (group, resource, subresource) == (
                asked.group,
                asked.resource,
                asked.subresource,
            ) and asked.verb in verbs:
                if (resource, asked.verb) == ("nodes", "get") and asked.name != node:
                    return False, f"node '{node}' cannot read '{asked.name}', only its own Node object"
                return True, ""
        return False, ""

    def _pod(self, node: str, asked: Attributes) -> tuple[bool, str]:
        if asked.verb == "get":
            stored = self._store.collection("pods").get(f"{asked.namespace}/{asked.name}")
            if stored is not None and stored.value["spec"].get("nodeName") == node:
                return True, ""
            return False, _no_relation(node)
        if f"spec.nodeName={node}" in asked.field_selector.split(","):
            return True, ""
        if asked.name:
            stored = self._store.collection("pods").get(f"{asked.namespace}/{asked.name}")
            if stored is not None and stored.value["spec"].get("nodeName") == node:
                return True, ""
        return False, "can only list/watch pods with spec.nodeName field selector"

    def _slice(self, node: str, asked: Attributes) -> tuple[bool, str]:
        if asked.subresource:
            return False, "cannot authorize ResourceSlice subresources"
        if asked.verb == "create":
            return True, ""
        if asked.verb in ("get", "update", "patch", "delete"):
            stored = self._store.collection("resourceslices.resource.k8s.io").get(asked.name)
            if stored is not None and stored.value["spec"].get("nodeName") == node:
                return True, ""
            return False, _no_relation(node)
        if f"spec.nodeName={node}" in asked.field_selector.split(","):
            return True, ""
        return False, "can only list/watch/deletecollection resourceslices with nodeName field selector"

    def _lease(self, node: str, asked: Attributes) -> tuple[bool, str]:
        if asked.verb not in ("get", "create", "update", "patch", "delete"):
            return False, "can only get, create, update, patch, or delete a node lease"
        if asked.namespace != "kube-node-lease":
            return False, 'can only access leases in the "kube-node-lease" system namespace'
        if asked.verb != "create" and asked.name != node:
            return False, "can only access node lease with the same name as the requesting node"
        return True, ""

    def _used(self, node: str, asked: Attributes) -> tuple[bool, str]:
        if asked.resource in ("secrets", "configmaps"):
            if asked.verb not in _READ:
                return False, "can only read resources of this type"
        elif asked.verb != "get":
            return False, "can only get individual resources of this type"
        if asked.subresource:
            return False, "cannot get subresource"
        if not asked.name:
            return False, "can only read namespaced object of this type"
        kind = _POD_KINDS[asked.resource]
        for pod in self._pods(node):
            if pod["metadata"]["namespace"] == asked.namespace and asked.name in _references(pod, kind):
                return True, ""
        return False, _no_relation(node)

    def _token(self, node: str, asked: Attributes) -> tuple[bool, str]:
        if asked.verb != "create":
            return False, "can only create tokens for individual service accounts"
        for pod in self._pods(node):
            if pod["metadata"]["namespace"] == asked.namespace and pod["spec"].get("serviceAccountName") == asked.name:
                return True, ""
        return False, _no_relation(node)

    def _pods(self, node: str) -> Iterator[dict[str, Any]]:
        for stored in self._store.collection("pods").objects():
            if stored.value["spec"].get("nodeName") == node:
                yield stored.value


def _no_relation(node: str) -> str:
    return f"no relationship found between node '{node}' and this object"


def _references(pod: dict[str, Any], kind: str) -> Iterator[str]:
    """Names of the objects of one kind that a pod uses."""
    spec = pod["spec"]
    if kind == "claim":
        yield from _claims(pod)
        return
    if kind == "secret":
        yield from (one["name"] for one in spec.get("imagePullSecrets") or () if "name" in one)
    for volume in spec.get("volumes") or ():
        match kind:
            case "secret":
                yield (volume.get("secret") or {}).get("secretName", "")
            case "configmap":
                yield (volume.get("configMap") or {}).get("name", "")
            case "pvc":
                yield (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            part = source.get("secret" if kind == "secret" else "configMap") if kind != "pvc" else None
            yield (part or {}).get("name", "")
    if kind != "pvc":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            yield from _environment(container, "secret" if kind == "secret" else "configMap")


def _environment(container: dict[str, Any], word: str) -> Iterator[str]:
    for source in container.get("envFrom") or ():
        yield (source.get(f"{word}Ref") or {}).get("name", "")
    for variable in container.get("env") or ():
        yield ((variable.get("valueFrom") or {}).get(f"{word}KeyRef") or {}).get("name", "")


def _claims(pod: dict[str, Any]) -> Iterator[str]:
    for claim in pod["spec"].get("resourceClaims") or ():
        if claim.get("resourceClaimName"):
            yield claim["resourceClaimName"]
    status = pod.get("status") or {}
    for claim in status.get("resourceClaimStatuses") or ():
        if claim.get("resourceClaimName"):
            yield claim["resourceClaimName"]
    extended = status.get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        yield extended["resourceClaimName"]
