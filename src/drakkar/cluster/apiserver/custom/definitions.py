"""From CustomResourceDefinition objects to rows of the registry, and back: names, conditions, cleaning up.

kube-apiserver has four controllers for this; here they are one function that runs right after a definition was written.
A definition that is deleted first takes all its objects along: its deletion puts a finalizer there that holds it until
they are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from drakkar.cluster.apiserver.custom.kind import CustomKind
from drakkar.cluster.apiserver.resources import ALL_VERBS, SCALE, STATUS, ApiResource
from drakkar.cluster.machinery.lifecycle import stored_versions
from drakkar.cluster.store import StoredObject
from drakkar.kube.clock import rfc3339

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.server import ApiServer

Json = dict[str, Any]
COLLECTION: Final = "customresourcedefinitions.apiextensions.k8s.io"
FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"


def condemned(definition: Json, now: str) -> Json:
    """A definition whose objects are to go before it."""
    metadata, status = definition["metadata"], definition.get("status") or {}
    finalizers = metadata.get("finalizers") or []
    if FINALIZER not in finalizers:
        finalizers = [*finalizers, FINALIZER]
    terminating = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    conditions = [one for one in status.get("conditions") or () if one["type"] != "Terminating"]
    return {
        **definition,
        "metadata": {**metadata, "deletionTimestamp": now, "finalizers": finalizers},
        "status": {**status, "conditions": [*conditions, terminating]},
    }


class CustomResources:
    """Keeps the registry true to the stored definitions."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._rows: dict[str, list[ApiResource]] = {}
        self._collections: set[str] = set()

    def begin(self) -> None:
        """Serve what is defined already, and hear of every later write."""
        store = self._server.store
        store.observer = self._written
        for stored in store.collection(COLLECTION).objects():
            conditions = (stored.value.get("status") or {}).get("conditions") or ()
            if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                self._serve(stored.value)
        with contextlib.suppress(RuntimeError):  # no loop yet: the first write will settle what is left
            self._written(COLLECTION)

    def _written(self, collection: str) -> None:
        # Definitions themselves, or objects of a definition that may be going away.
        if collection == COLLECTION or collection in self._collections:
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        store = self._server.store
        present = {stored.key: stored for stored in store.collection(COLLECTION).objects()}
        for name in [name for name in self._rows if name not in present]:
            self._withdraw(name)
        for stored in present.values():
            if stored.value["metadata"].get("deletionTimestamp"):
                self._clean_up(stored)
            else:
                self._establish(stored)

    def _establish(self, stored: StoredObject) -> None:
        definition = stored.value
        problem = self._name_conflict(definition)
        names = definition["spec"]["names"]
        before = definition.get("status") or {}
        status = {
            "conditions": self._conditions(before.get("conditions") or [], problem),
            "acceptedNames": names if not problem else before.get("acceptedNames") or {"kind": "", "plural": ""},
            "storedVersions": stored_versions(definition, before.get("storedVersions") or []),
        }
        if not problem:
            self._serve(definition)
        if status != before:
            self._server.store.update(COLLECTION, stored.key, {**definition, "status": status})

    def _conditions(self, before: list[Json], problem: str) -> list[Json]:
        wanted = (
            ("NamesAccepted", not problem, "NoConflicts", "no conflicts found", "KindConflict"),
            ("Established", not problem, "InitialNamesAccepted", "the initial names have been accepted", "NotAccepted"),
        )
        now = rfc3339(self._server.clock.now())
        known = {one["type"]: one for one in before}
        made = []
        for kind, good, reason, message, bad in wanted:
            state = "True" if good else "False"
            old = known.get(kind, {})
            since = old["lastTransitionTime"] if old.get("status") == state else now
            made.append(
                {
                    "type": kind,
                    "status": state,
                    "lastTransitionTime": since,
                    "reason": reason if good else bad,
                    "message": message if good else problem,
                }
            )
        return made

    def _name_conflict(self, definition: Json) -> str:
        """Why the names cannot be served, "" if they can."""
        group, names = definition["spec"]["group"], definition["spec"]["names"]
        own = self._rows.get(definition["metadata"]["name"], [])
        for row in self._server.registry.rows():
            if row.group != group or row in own:
                continue
            if row.plural == names["plural"]:
                return f'"{names["plural"]}" is already in use'
            if row.kind == names["kind"]:
                return f'"{names["kind"]}" is already in use'
        return ""

    def _serve(self, definition: Json) -> None:
        name = definition["metadata"]["name"]
        rows = rows_of(definition)
        known = self._rows.get(name)
        if known is None or [one.extra["generation"] for one in rows] != [one.extra["generation"] for one in known]:
            self._withdraw(name)
            for row in rows:
                self._server.registry.add(row)
            self._rows[name] = rows
            self._collections = {row.collection for found in self._rows.values() for row in found}

    def _withdraw(self, name: str) -> None:
        for row in self._rows.pop(name, ()):
            self._server.registry.remove(row)

    def _clean_up(self, stored: StoredObject) -> None:
        """Delete all objects of a definition that is going away; the finalizer goes when none is left."""
        store, definition = self._server.store, stored.value
        collection = store.collection(f"{definition['spec']['names']['plural']}.{definition['spec']['group']}")
        now = rfc3339(self._server.clock.now())
        for one in collection.objects():
            metadata = one.value["metadata"]
            if not metadata.get("finalizers"):
                store.delete(collection.name, one.key)
            elif "deletionTimestamp" not in metadata:
                marked = {**metadata, "deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
                store.update(collection.name, one.key, {**one.value, "metadata": marked})
        if len(collection):
            return
        finalizers = [one for one in definition["metadata"].get("finalizers") or () if one != FINALIZER]
        if finalizers:
            metadata = {**definition["metadata"], "finalizers": finalizers}
            if metadata != definition["metadata"]:
                store.update(COLLECTION, stored.key, {**definition, "metadata": metadata})
        else:
            store.delete(COLLECTION, stored.key)
            self._withdraw(stored.key)


def rows_of(definition: Json) -> list[ApiResource]:
    """One row per served version. Versions differ in their schema only (conversion None)."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    namespaced = spec["scope"] == "Namespaced"
    storage = next(one["name"] for one in spec["versions"] if one.get("storage"))
    kinds = {one["name"]: _kind(group, names["kind"], one, namespaced=namespaced) for one in spec["versions"]}
    rows = []
    for version in sorted(spec["versions"], key=lambda one: _priority(one["name"])):
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        found = tuple(one for name, one in (("scale", SCALE), ("status", STATUS)) if name in subresources)
        rows.append(
            ApiResource(
                group,
                version["name"],
                names["plural"],
                names["kind"],
                namespaced,
                tuple(names.get("shortNames") or ()),
                tuple(names.get("categories") or ()),
                ALL_VERBS,
                found,
                storage=f"{names['plural']}.{group}",
                shows_deleted=False,
                singular_name=names.get("singular") or names["kind"].lower(),
                stored_as=None if version["name"] == storage else (group, storage),
                custom=True,
                columns=tuple(version.get("additionalPrinterColumns") or ()),
                extra={
                    "behaviour": kinds[version["name"]],
                    "stored_behaviour": kinds[storage],
                    "selectable": tuple(
                        str(one["jsonPath"]).removeprefix(".") for one in version.get("selectableFields") or ()
                    ),
                    "scale": subresources.get("scale") or {},
                    "generation": definition["metadata"].get("generation", 0),
                },
            )
        )
    return rows


def _kind(group: str, kind: str, version: Json, *, namespaced: bool) -> CustomKind:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"x-kubernetes-preserve-unknown-fields": True}
    status = "status" in (version.get("subresources") or {})
    return CustomKind(group, version["name"], kind, schema, namespaced=namespaced, status=status)


def _priority(version: str) -> tuple[int, int, int, str]:
    """v2 before v1 before v1beta2 before v1alpha1 before anything else (`apimachinery/pkg/version`)."""
    import re

    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0, version)
    major, stage, minor = int(match[1]), match[2], int(match[3] or 0)
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -major, -minor, "")
