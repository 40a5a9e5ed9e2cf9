"""Takes a snapshot of a running cluster through a client; the cluster may be ours or anybody's.

Kinds that the server does not have, or that the caller may not read, are noted in ``Snapshot.unread`` and no error: a
diagnosis of what can be seen is better than none. Everything else that fails is raised as it came: a wrong token, a
server that does not answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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

__all__ = ["RIGHTS_KINDS", "pods_worth_logs", "take", "with_logs"]

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
#: Who may do what: for an audit, and for bundles of one.
RIGHTS_KINDS: Final = (
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
)
#: Custom resources: a server without them has none of what they are about, which is nothing to note.
OPTIONAL_KINDS: Final = (
    Resource("resource.nvidia.com", "v1beta1", "computedomains", "ComputeDomain"),
    Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule"),
)
_FORBIDDEN: Final = 403
_TOLERATED: Final = frozenset({_FORBIDDEN, 404})
_ABSENT: Final = "not served: "
_LOG_LINES: Final = 200
_LOGGED_PODS: Final = 64
_LOGS_AT_ONCE: Final = 8


async def take(
    client: Client,
    *,
    captures: Mapping[str, NodeCapture] | None = None,
    logs_of: Sequence[tuple[str, str]] | None = None,
    namespace: str = "",
    now: datetime | None = None,
    more: Sequence[Resource] = (),
) -> Snapshot:
    """Everything a diagnosis reads, from all namespaces: devices held elsewhere matter too.

    Args:
        captures: what is known from nodes, by node name.
        logs_of: (namespace, pod) pairs whose container logs are taken as well, since a container that names its
            device is the proof of injection; by default operands and pods that use claims, at most 64.
        namespace: what to read alone where the caller may not read all namespaces.
        now: the time to note; the real one by default.
        more: further kinds to list.

    Raises:
        ApiError: the server refuses the caller or fails.
        UnreachableError: no answer came.
    """
    kinds = (*CLUSTER_KINDS, *NAMESPACED_KINDS, *OPTIONAL_KINDS, *more)
    lists = await asyncio.gather(*(_list(client, kind, namespace) for kind in kinds))
    objects: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    unread: list[str] = []
    for kind, (items, problem) in zip(kinds, lists, strict=True):
        if problem and (kind not in OPTIONAL_KINDS or not problem.startswith(_ABSENT)):
            unread.append(problem.removeprefix(_ABSENT))
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
    wanted = pods_worth_logs(snapshot, limit=_LOGGED_PODS) if logs_of is None else list(logs_of)
    return await with_logs(client, snapshot, wanted) if wanted else snapshot


async def with_logs(
    client: Client, snapshot: Snapshot, pods: Sequence[tuple[str, str]], *, lines: int = _LOG_LINES
) -> Snapshot:
    """The snapshot with the newest log lines of some pods' containers, and of the instance before if it restarted."""
    wanted = [
        key
        for namespace, name in pods
        if (pod := snapshot.get("Pod", name, namespace)) is not None
        for key in _log_keys(pod)
    ]
    gate = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def one(key: LogKey) -> str | None:
        async with gate:
            return await _log(client, key, lines)

    texts = await asyncio.gather(*map(one, wanted))
    logs = {key: text for key, text in zip(wanted, texts, strict=True) if text is not None}
    return replace(snapshot, logs={**snapshot.logs, **logs})


def _log_keys(pod: Mapping[str, Any]) -> Iterator[LogKey]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    restarted = {state.get("name") for state in states if state.get("restartCount")}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        key = LogKey(namespace_of(pod), name_of(pod), container["name"])
        yield key
        if container["name"] in restarted:
            yield key._replace(previous=True)


def pods_worth_logs(snapshot: Snapshot, *, limit: int = 500) -> list[tuple[str, str]]:
    """(namespace, pod) of what tells most, at most `limit`: operands, pods with claims that do not run, then others."""
    operands: list[tuple[str, str]] = []
    waiting: list[tuple[str, str]] = []
    running: list[tuple[str, str]] = []
    for pod in snapshot.all("Pod"):
        spec, name = pod.get("spec") or {}, (namespace_of(pod), name_of(pod))
        if not spec.get("nodeName"):
            continue
        if _OPERAND.search(name_of(pod)):
            operands.append(name)
        elif spec.get("resourceClaims") or (pod.get("status") or {}).get("extendedResourceClaimStatus"):
            (running if (pod.get("status") or {}).get("phase") == "Running" else waiting).append(name)
    return [*operands, *waiting, *running][:limit]


_OPERAND: Final = re.compile(
    r"kubelet-plugin|dra-driver|driver-daemonset|driver-manager|mig-manager|container-toolkit|device-plugin|"
    r"dcgm-exporter|compute-domain|imex|mps-control"
)


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
    absent = "" if problem.status == _FORBIDDEN else _ABSENT
    return [], f"{absent}{kind.group_resource}: {problem.message}"


async def _log(client: Client, key: LogKey, lines: int) -> str | None:
    path = resources.PODS.path(key.namespace, key.pod, "log")
    query = {"container": key.container, "tailLines": str(lines)}
    if key.previous:
        query["previous"] = "true"
    try:
        answer = await client.transport.send(ApiRequest("GET", path, query, {}, None))
    except (DrakkarError, OSError):
        return None
    if answer.status != 200:
        return None
    body: Any = answer.body
    if hasattr(body, "__aiter__"):  # a client in the server's own process gets the stream itself
        body = b"".join([chunk async for chunk in body])
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
