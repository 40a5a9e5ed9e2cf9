"""Takes a snapshot of a running cluster through a client; the cluster may be ours or anybody's.

Kinds that the server does not have, or that the caller may not read, are noted in ``Snapshot.unread`` and no error: a
diagnosis of what can be seen is better than none. Everything else that fails is raised as it came: a wrong token, a
server that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.snapshot import LogKey, Snapshot, name_of, namespace_of
from drakkar.kube import resources
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.resources import Resource
from drakkar.kube.transport import ApiRequest

__all__ = ["take", "with_logs"]

CLUSTER_KINDS: Final = (
    resources.NODES,
    resources.NAMESPACES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_CLASSES,
    resources.DEVICE_TAINT_RULES,
)
NAMESPACED_KINDS: Final = (
    resources.PODS,
    resources.EVENTS,
    resources.RESOURCE_CLAIMS,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.RESOURCE_QUOTAS,
    resources.DEPLOYMENTS,
    resources.REPLICA_SETS,
    resources.STATEFUL_SETS,
    resources.DAEMON_SETS,
    resources.JOBS,
)
_FORBIDDEN: Final = 403
_TOLERATED: Final = frozenset({_FORBIDDEN, 404})
_LOG_LINES: Final = 200
_LOGGED_PODS: Final = 64


async def take(
    client: Client,
    *,
    captures: Mapping[str, NodeCapture] | None = None,
    logs_of: Sequence[tuple[str, str]] | None = None,
    namespace: str = "",
    now: datetime | None = None,
) -> Snapshot:
    """Everything a diagnosis reads, from all namespaces: devices held elsewhere matter too.

    Args:
        captures: what is known from nodes, by node name.
        logs_of: (namespace, pod) pairs whose container logs are taken as well, since a container that names its
            device is the proof of injection; by default the pods that use claims, if they are few.
        namespace: what to read alone where the caller may not read all namespaces.
        now: the time to note; the real one by default.

    Raises:
        ApiError: the server refuses the caller or fails.
        UnreachableError: no answer came.
    """
    kinds = (*CLUSTER_KINDS, *NAMESPACED_KINDS)
    lists = await asyncio.gather(*(_list(client, kind, namespace) for kind in kinds))
    objects: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    unread: list[str] = []
    for kind, (items, problem) in zip(kinds, lists, strict=True):
        if problem:
            unread.append(problem)
        target = events if kind is resources.EVENTS else objects
        # Items of a list carry no kind; a shallow copy gets one.
        target.extend({**item, "apiVersion": kind.api_version, "kind": kind.kind} for item in items)
    snapshot = Snapshot(
        objects=tuple(objects),
        events=tuple(events),
        nodes=dict(captures or {}),
        captured_at=now or datetime.now(UTC),
        kubernetes_version=await _version(client),
        unread=tuple(unread),
    )
    wanted = _pods_with_claims(snapshot) if logs_of is None else list(logs_of)
    return await with_logs(client, snapshot, wanted) if wanted else snapshot


async def with_logs(client: Client, snapshot: Snapshot, pods: Sequence[tuple[str, str]]) -> Snapshot:
    """The snapshot with the newest log lines of some pods' containers."""
    wanted = [
        LogKey(namespace_of(pod), name_of(pod), container["name"])
        for namespace, name in pods
        if (pod := snapshot.get("Pod", name, namespace)) is not None
        for container in (pod.get("spec") or {}).get("containers") or ()
    ]
    texts = await asyncio.gather(*(_log(client, key) for key in wanted))
    logs = {key: text for key, text in zip(wanted, texts, strict=True) if text is not None}
    return Snapshot(
        objects=snapshot.objects,
        events=snapshot.events,
        nodes=snapshot.nodes,
        logs={**snapshot.logs, **logs},
        metrics=snapshot.metrics,
        manifests=snapshot.manifests,
        captured_at=snapshot.captured_at,
        kubernetes_version=snapshot.kubernetes_version,
        notes=snapshot.notes,
        unread=snapshot.unread,
    )


def _pods_with_claims(snapshot: Snapshot) -> list[tuple[str, str]]:
    pods = [
        (namespace_of(pod), name_of(pod))
        for pod in snapshot.all("Pod")
        if (pod.get("spec") or {}).get("resourceClaims") and (pod.get("spec") or {}).get("nodeName")
    ]
    return pods if len(pods) <= _LOGGED_PODS else []


async def _list(client: Client, kind: Resource, namespace: str) -> tuple[list[dict[str, Any]], str]:
    try:
        return (await client.list(kind)).items, ""
    except ApiError as error:
        if error.status not in _TOLERATED:
            raise
        problem = error
    if problem.status == _FORBIDDEN and kind.namespaced and namespace:
        try:
            items = (await client.list(kind, namespace)).items
        except ApiError as error:
            if error.status not in _TOLERATED:
                raise
        else:
            return items, f"{kind.group_resource} outside of namespace {namespace}: {problem.message}"
    return [], f"{kind.group_resource}: {problem.message}"


async def _log(client: Client, key: LogKey) -> str | None:
    path = resources.PODS.path(key.namespace, key.pod, "log")
    query = {"container": key.container, "tailLines": str(_LOG_LINES)}
    try:
        answer = await client.transport.send(ApiRequest("GET", path, query, {}, None))
    except (DrakkarError, OSError):
        return None
    if answer.status != 200:
        return None
    body = answer.body
    if isinstance(body, bytes):
        return body.decode("utf-8", "replace")
    return body if isinstance(body, str) else None


async def _version(client: Client) -> str:
    try:
        answer = await client.transport.send(ApiRequest("GET", "/version", {}, {}, None))
    except (DrakkarError, OSError):
        return ""
    body = answer.body if isinstance(answer.body, dict) else {}
    return str(body.get("gitVersion") or "").removeprefix("v")
