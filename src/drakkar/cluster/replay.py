"""A recorded cluster put into a store, as a restored etcd would have it: UIDs, owners, status and times as they were.

Requests could not do that: a server gives every object a UID and a creation time of its own, and drops status. Objects
are shaped and defaulted as their kind says, so that clients find what they rely on. Custom resources whose definition
was not recorded get one that allows everything. Nothing happens to what was recorded by itself: no kubelet, no node
lifecycle, no garbage collection or workload controller runs on it, since a record is rarely complete and each of these
takes an object that is missing for one that was deleted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.cluster.apiserver.calls import key_of
from drakkar.cluster.apiserver.conversions import from_served
from drakkar.cluster.apiserver.kinds import behaviour, stored_behaviour
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.controllers.group import CONTROLLERS
from drakkar.cluster.machinery.strictness import DecodeError
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference
from drakkar.kube.clock import rfc3339

__all__ = ["AT_REST", "Restored", "restore"]

Object = dict[str, Any]

_AT_WORK: Final = ("resource-claim-templates", "resource-claim-release", "garbage", "service-accounts")
AT_REST: Final = tuple(name for name in CONTROLLERS if name not in _AT_WORK)
"""Controllers that do not run on a recorded cluster; those that do leave recorded objects alone."""

_FIRST: Final = ("CustomResourceDefinition", "Namespace")


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of a snapshot.

    Attributes:
        counts: objects restored, by kind.
        uids: theirs; whoever works in the cluster leaves them alone.
        problems: objects that could not be restored, each ``Kind/namespace/name: why``.
        version: of the store when all was there; whatever is newer happened since.
    """

    counts: Mapping[str, int]
    uids: frozenset[str]
    problems: tuple[str, ...]
    version: int


async def restore(server: ApiServer, snapshot: Snapshot) -> Restored:
    """Put every object of `snapshot` into the store of `server`, which nobody has been told of yet."""
    born = rfc3339(snapshot.captured_at or server.clock.now())
    objects = [*snapshot.objects, *snapshot.events]
    objects = [*_missing_definitions(server, objects), *objects]
    objects = sorted([*_missing_namespaces(server, objects), *objects], key=_turn)
    counts: Counter[str] = Counter()
    uids, problems = set(), []
    for obj in objects:
        row = _row(server, obj)
        if row is None:
            await asyncio.sleep(0)  # definitions begin to be served when their writer lets others run
            row = _row(server, obj)
        if row is None:
            problems.append(f"{reference(obj)}: no kind {obj.get('kind')} in version {obj.get('apiVersion')}")
            continue
        try:
            uids.add(_store(server, row, obj, born))
        except (DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{reference(obj)}: {error}")
            continue
        counts[row.kind] += 1
    return Restored(dict(counts), frozenset(uids), tuple(problems), server.store.version)


def _turn(obj: Object) -> int:
    """Definitions before what they define; everything else keeps its order."""
    kind = obj.get("kind")
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _row(server: ApiServer, obj: Object) -> ApiResource | None:
    wanted = obj.get("apiVersion"), obj.get("kind")
    rows = (row for row in server.registry.rows() if not row.ephemeral)
    return next((row for row in rows if (row.api_version, row.kind) == wanted), None)


def _store(server: ApiServer, row: ApiResource, obj: Object, born: str) -> str:
    """Store one object; its UID. Raises `DecodeError` for one that has not the shape of its kind."""
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "resourceVersion"}
    if row.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    else:
        metadata.pop("namespace", None)
    if "uid" not in metadata:
        metadata["uid"] = server.chance.uid(row.collection, metadata.get("namespace", ""), str(metadata.get("name")))
    if not metadata.get("creationTimestamp"):
        metadata["creationTimestamp"] = born
    shaped = behaviour(row).shape({**obj, "metadata": metadata}, "Ignore").object
    stored = stored_behaviour(row).default(from_served(row, shaped), now=born)
    key = key_of(row, stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
    there = server.store.collection(row.collection).get(key) is not None
    (server.store.update if there else server.store.create)(row.collection, key, stored)
    return str(metadata["uid"])


def _missing_namespaces(server: ApiServer, objects: Iterable[Object]) -> list[Object]:
    """Namespaces that objects are in and that were not recorded themselves."""
    namespaces = server.store.collection("namespaces")
    named = dict.fromkeys(namespace_of(obj) for obj in objects if namespace_of(obj))
    known = {name_of(obj) for obj in objects if obj.get("kind") == "Namespace"}
    return [
        {
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        for name in named
        if name not in known and namespaces.get(name) is None
    ]


def _missing_definitions(server: ApiServer, objects: Iterable[Object]) -> list[Object]:
    """Definitions for kinds that nobody serves; the plural is the usual one, since objects do not tell it."""
    found: dict[tuple[str, str], Object] = {}
    defined = {
        (spec.get("group"), (spec.get("names") or {}).get("kind"))
        for spec in (obj.get("spec") or {} for obj in objects if obj.get("kind") == "CustomResourceDefinition")
    }
    for obj in objects:
        group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
        kind = str(obj.get("kind"))
        if not group or "." not in group or (group, kind) in defined or _row(server, obj) is not None:
            continue
        definition = found.setdefault((group, kind), _definition(group, kind, namespaced=bool(namespace_of(obj))))
        versions = definition["spec"]["versions"]
        if all(one["name"] != version for one in versions):
            versions.append(_version(version, stored=not versions))
    return list(found.values())


def _definition(group: str, kind: str, *, namespaced: bool) -> Object:
    names = {"kind": kind, "plural": _plural(kind.lower()), "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [],
            "conversion": {"strategy": "None"},
        },
    }


def _version(name: str, *, stored: bool) -> Object:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"name": name, "served": True, "storage": stored, "schema": schema}


def _plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")
