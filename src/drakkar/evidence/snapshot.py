"""Everything known about a cluster at one moment, as a value: objects, events, logs, and what was captured on nodes.

A diagnosis must be reproducible, so it never asks a cluster: it reads a `Snapshot`, taken through a client
(:mod:`drakkar.evidence.take`) or loaded from a bundle folder (:mod:`drakkar.evidence.bundle`). Objects are plain
parsed JSON and are not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from drakkar.evidence.captures import NodeCapture
from drakkar.kube.objects import name_of, namespace_of, reference, uid_of

if TYPE_CHECKING:
    from drakkar.kube.client import Client

__all__ = ["LogKey", "Manifest", "Snapshot", "name_of", "namespace_of", "parse_time", "reference", "take", "uid_of"]

Object = dict[str, Any]


class LogKey(NamedTuple):
    """A container's log; `previous` is that of the instance before."""

    namespace: str
    pod: str
    container: str
    previous: bool = False


class Manifest(NamedTuple):
    """An object that somebody is about to apply: it is not in the cluster."""

    file: str
    line: int
    object: Object


@dataclass(frozen=True, repr=False)
class Snapshot:
    """Objects by kind; events, logs and captures beside them.

    Attributes:
        objects: every object except events.
        events: core/v1 Events.
        nodes: what was captured on a node, by node name.
        logs: container logs.
        metrics: scrapes in Prometheus text format, by file name.
        manifests: what is about to be applied.
        captured_at: when; None if unknown.
        kubernetes_version: e.g. ``1.37.2``.
        notes: what people wrote about the capture.
        unread: what should be here and could not be read, each ``what: reason``; what is a resource with its group
            (``resourceslices.resource.k8s.io``) or a file.
    """

    objects: tuple[Object, ...] = ()
    events: tuple[Object, ...] = ()
    nodes: Mapping[str, NodeCapture] = field(default_factory=dict)
    logs: Mapping[LogKey, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    manifests: tuple[Manifest, ...] = ()
    captured_at: datetime | None = None
    kubernetes_version: str = ""
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Snapshot: {summary(self)}>"  # an event loop writes its tasks' results into texts nobody reads

    def all(self, kind: str, namespace: str | None = None) -> list[Object]:
        """Objects of a kind, of one namespace or of all."""
        found = self._by_kind.get(kind, ())
        return [obj for obj in found if namespace is None or namespace_of(obj) == namespace]

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """One object; None if the snapshot has none of that name."""
        return self._by_name.get((kind, namespace, name))

    def why_unread(self, resource: str) -> str:
        """Why nothing of a resource could be read (``pods``, ``resourceslices.resource.k8s.io``); "" if it was."""
        start = f"{resource}: "
        return next((text.removeprefix(start) for text in self.unread if text.startswith(start)), "")

    def by_uid(self, uid: str) -> Object | None:
        """The object with that UID."""
        return self._by_uid.get(uid)

    def owned_by(self, owner: Object, kind: str = "") -> list[Object]:
        """Objects that name `owner` as their controller or owner."""
        return [obj for obj in self._by_owner.get(uid_of(owner), ()) if not kind or obj.get("kind") == kind]

    def events_of(self, obj: Object, *reasons: str) -> list[Object]:
        """Events about an object, oldest first, with one of the `reasons` or any."""
        uid = uid_of(obj)
        found = self._events_by_uid.get(uid, ()) if uid else ()
        return [event for event in found if not reasons or event.get("reason") in reasons]

    def logs_of(self, pod: Object) -> Iterator[tuple[LogKey, str]]:
        """Logs of a pod's containers, the current ones first."""
        for key in self._logs_by_pod.get((namespace_of(pod), name_of(pod)), ()):
            yield key, self.logs[key]

    def pods_on(self, node: str) -> list[Object]:
        """Pods bound to a node."""
        return self._pods_by_node.get(node, [])

    @cached_property
    def _pods_by_node(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for pod in self.all("Pod"):
            found.setdefault((pod.get("spec") or {}).get("nodeName") or "", []).append(pod)
        return found

    @cached_property
    def _logs_by_pod(self) -> dict[tuple[str, str], list[LogKey]]:
        found: dict[tuple[str, str], list[LogKey]] = {}
        for key in sorted(self.logs, key=lambda key: key.previous):
            found.setdefault((key.namespace, key.pod), []).append(key)
        return found

    @cached_property
    def _by_kind(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for obj in self.objects:
            found.setdefault(obj.get("kind", ""), []).append(obj)
        return found

    @cached_property
    def _by_name(self) -> dict[tuple[str, str, str], Object]:
        return {(obj.get("kind", ""), namespace_of(obj), name_of(obj)): obj for obj in self.objects}

    @cached_property
    def _by_uid(self) -> dict[str, Object]:
        return {uid_of(obj): obj for obj in self.objects if uid_of(obj)}

    @cached_property
    def _by_owner(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for obj in self.objects:
            for owner in obj.get("metadata", {}).get("ownerReferences") or ():
                found.setdefault(owner.get("uid", ""), []).append(obj)
        return found

    @cached_property
    def _events_by_uid(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for event in sorted(self.events, key=event_time):
            about = event.get("involvedObject") or event.get("regarding") or {}
            uid = about.get("uid") or ""
            if about.get("kind") == "Node":  # kubelets use the node's name as its UID
                node = self.get("Node", about.get("name", ""))
                uid = uid_of(node) if node else uid
            found.setdefault(uid, []).append(event)
        return found


async def take(client: Client, **options: Any) -> Snapshot:
    """Takes a snapshot of a running cluster; see :func:`drakkar.evidence.take.take`, which is loaded when needed."""
    from drakkar.evidence.take import take as read

    return await read(client, **options)


def summary(snapshot: Snapshot) -> str:
    """What a snapshot holds, in one line."""
    counts = [
        (len(snapshot.all("Node")), "node"),
        (len(snapshot.all("Pod")), "pod"),
        (len(snapshot.all("ResourceClaim")), "claim"),
        (len(snapshot.all("ResourceSlice")), "slice"),
        (len(snapshot.nodes), "captured node"),
    ]
    shown = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
    version = f", Kubernetes {snapshot.kubernetes_version.removeprefix('v')}" if snapshot.kubernetes_version else ""
    time = f", {snapshot.captured_at:%Y-%m-%d %H:%M:%S} UTC" if snapshot.captured_at else ""
    return shown + version + time


def message_of(event: Mapping[str, Any]) -> str:
    """The text of a core or events.k8s.io event."""
    return event.get("message") or event.get("note") or ""


def event_time(event: Mapping[str, Any]) -> str:
    """When an event was last seen, as RFC 3339 text that sorts; "" if it does not say."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((text for text in times if text), (event.get("metadata") or {}).get("creationTimestamp") or "")


def parse_time(text: str | None) -> datetime | None:
    """RFC 3339 text as UTC time; None where it is absent or something else."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Several captures of one cluster as one; later ones win."""
    parts = list(snapshots)
    objects: dict[tuple[str, str, str], Object] = {}
    for part in parts:
        objects.update(part._by_name)
    return Snapshot(
        objects=tuple(objects.values()),
        events=tuple(event for part in parts for event in part.events),
        nodes={name: capture for part in parts for name, capture in part.nodes.items()},
        logs={key: text for part in parts for key, text in part.logs.items()},
        metrics={name: text for part in parts for name, text in part.metrics.items()},
        manifests=tuple(manifest for part in parts for manifest in part.manifests),
        captured_at=next((part.captured_at for part in reversed(parts) if part.captured_at), None),
        kubernetes_version=next((p.kubernetes_version for p in reversed(parts) if p.kubernetes_version), ""),
        notes=tuple(note for part in parts for note in part.notes),
        unread=tuple(text for part in parts for text in part.unread),
    )
