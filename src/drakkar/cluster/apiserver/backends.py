"""What is ready behind a service, as its EndpointSlices say: for webhooks and for `proxy`.

Pods share the network of the host here: whatever a pod's address in the cluster is, its ports are those of the
loopback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from drakkar.cluster.store import Store

__all__ = ["HOST", "Backend", "ready_backends"]

HOST: Final = "127.0.0.1"
"""Where pods listen."""


class Backend(NamedTuple):
    """An endpoint; `pod` is false for an address that somebody wrote by hand."""

    host: str
    port: int
    pod: bool


def ready_backends(store: Store, namespace: str, service: str, port: Mapping[str, Any]) -> Iterator[Backend]:
    """The ready endpoints for one of the service's ports."""
    for piece in store.collection("endpointslices.discovery.k8s.io").objects(f"{namespace}/"):
        labels = piece.value["metadata"].get("labels") or {}
        number = _number(piece.value, port) if labels.get("kubernetes.io/service-name") == service else 0
        for endpoint in (piece.value.get("endpoints") or ()) if number else ():
            if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("addresses"):
                pod = (endpoint.get("targetRef") or {}).get("kind") == "Pod"
                yield Backend(HOST if pod else endpoint["addresses"][0], number, pod)


def _number(piece: Mapping[str, Any], wanted: Mapping[str, Any]) -> int:
    """The number behind a port of the service, which has the same name; 0 if there is none."""
    name = wanted.get("name") or ""
    return next((int(one.get("port") or 0) for one in piece.get("ports") or () if (one.get("name") or "") == name), 0)
