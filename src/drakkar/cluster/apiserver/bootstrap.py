"""What a new cluster has before anybody asked for anything: namespaces, priority classes, default roles, a service.

The objects are data; they are put into the store directly, since a start in half a second has no time to send a hundred
requests to itself. What is there already (a durable store) stays as it is.
"""

from __future__ import annotations

from datetime import datetime
from importlib import resources
from typing import Any, Final

import msgspec

from drakkar.cluster.store import Store
from drakkar.kube.chance import Chance
from drakkar.kube.clock import rfc3339

Value = dict[str, Any]

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
SERVICE_ADDRESS: Final = "10.96.0.1"


def bootstrap(store: Store, now: datetime, chance: Chance) -> None:
    """Create what is missing."""
    born = rfc3339(now)
    for name in NAMESPACES:
        _ensure(store, "namespaces", _namespace(name), born, chance)
    data = msgspec.json.decode(resources.files(__package__).joinpath("data/bootstrap.json").read_bytes())
    for collection, objects in data.items():
        for obj in objects:
            _ensure(store, collection, obj, born, chance)
    _ensure(store, "services", _kubernetes_service(), born, chance)


def _ensure(store: Store, collection: str, obj: Value, born: str, chance: Chance) -> None:
    metadata = obj["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    key = f"{namespace}/{name}" if namespace else name
    if store.collection(collection).get(key) is None:
        full = {**metadata, "uid": chance.uid(collection, key), "creationTimestamp": born}
        store.create(collection, key, {**obj, "metadata": full})


def _namespace(name: str) -> Value:
    return {
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _kubernetes_service() -> Value:
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            "clusterIP": SERVICE_ADDRESS,
            "clusterIPs": [SERVICE_ADDRESS],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    }
