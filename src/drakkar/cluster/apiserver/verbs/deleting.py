"""delete and deletecollection: preconditions, finalizers, propagation, and the grace period of pods.

An object with finalizers is only marked (`deletionTimestamp`) and vanishes with the update that takes the last of them.
Orphan and Foreground are finalizers that the garbage collector answers to. A pod that runs somewhere is marked with its
grace period and the kubelet deletes it for good with period zero.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.custom.definitions import COLLECTION as DEFINITIONS
from drakkar.cluster.apiserver.custom.definitions import condemned
from drakkar.cluster.apiserver.options import DeleteOptions, delete_options
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.apiserver.verbs.reading import selection
from drakkar.cluster.store import StoredObject
from drakkar.kube.clock import parse_rfc3339, rfc3339

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
JOB_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them"
    " or set propagationPolicy=Orphan to suppress this warning"
)


async def delete(call: Call) -> Answer:
    """Answers the object where its kind shows it or something still holds it, else a Status."""
    options = delete_options(call)
    call.dry_run = options.dry_run
    existing = call.stored()
    if call.row.collection == "namespaces" and options.uid is None:  # its own strategy asks for this very namespace
        wanted = {"preconditions": {"uid": existing.value["metadata"]["uid"]}}
        call.delete_options = {**(call.delete_options or {}), **wanted}
    existing = await _allowed(call, existing)
    left, gone = await delete_object(call, existing, options)
    if gone and not call.row.shows_deleted:
        metadata = left.value["metadata"]
        details = {"name": metadata["name"]}
        if call.row.group:
            details["group"] = call.row.group
        details |= {"kind": call.row.plural, "uid": metadata["uid"]}
        return Answer(200, statuses.success(details), warnings=call.warnings)
    return answers.value(call, to_served(call.row, left.value))


async def delete_collection(call: Call) -> Answer:
    """Delete all that the selectors name; answers the list as it was."""
    options = delete_options(call)
    call.dry_run = options.dry_run
    chosen = selection(call)
    found = call.collection.objects(chosen.prefix)
    if chosen.passes is not None:
        found = [stored for stored in found if chosen.passes(stored)]
    limit = call.integer("limit")
    version = call.server.store.version
    for stored in found[: limit or None]:
        current = call.collection.get(stored.key)
        if current is not None:
            current = await _allowed(call, current, name="")
            await delete_object(call, current, options)
    return answers.many(call, found, {"resourceVersion": str(version)})


async def _allowed(call: Call, existing: StoredObject, *, name: str | None = None) -> StoredObject:
    """The object as it is once nobody objects to its deletion. Raises `StatusError`; 404 if it went meanwhile."""
    admission = call.server.admission
    if not (admission.asks_to_mutate or admission.asks_to_validate):
        admission.validate(call, "DELETE", None, existing.value, name=name)
        return existing
    while True:
        await admission.admit_deletion(call, existing.value, name=name)
        current = call.collection.get(existing.key)
        if current is existing:
            return existing
        if current is None:
            metadata = existing.value["metadata"]
            raise statuses.not_found(call.row.group, call.row.plural, metadata["name"])
        existing = current


async def delete_object(call: Call, existing: StoredObject, options: DeleteOptions) -> tuple[StoredObject, bool]:
    """Delete or mark one object; the answer is its last state and whether it is gone. Raises `StatusError` 409."""
    row, old = call.row, existing.value
    check_preconditions(row, old, options)
    metadata = {**old["metadata"]}
    _set_propagation(metadata, options.policy or ("Orphan" if row.orphans else ""))
    if row.orphans and not options.policy and (row.group, row.plural) == ("batch", "jobs"):
        call.warnings.append(JOB_WARNING)
    grace = _grace_seconds(row, old, options)
    if row.kind == "Namespace" and not row.group:
        return await _delete_namespace(call, existing, metadata)
    dying = "deletionTimestamp" in metadata
    if row.collection == DEFINITIONS and not dying:
        return await _keep(call, existing, condemned(old, call.timestamp)), False
    if grace:
        shorter = not dying or grace < int(metadata.get("deletionGracePeriodSeconds") or 0)
        if not shorter and metadata == old["metadata"]:
            return existing, False
        if shorter:
            _mark(call, metadata, grace)
        return await _keep(call, existing, {**old, "metadata": metadata}), False
    if metadata.get("finalizers"):
        if not dying or metadata.get("deletionGracePeriodSeconds"):
            _mark(call, metadata, 0)
        elif metadata == old["metadata"]:
            return existing, False
        return await _keep(call, existing, {**old, "metadata": metadata}), False
    if dying and metadata.get("deletionGracePeriodSeconds"):
        _mark(call, metadata, 0)  # a pod that was to have some time is shown as one that has none
    left = existing if call.dry_run else await _remove(call, existing)
    if dying:
        shown = {**left.value["metadata"], **_ending(metadata)}
        left = StoredObject(left.key, left.version, {**left.value, "metadata": shown})
    return left, True


def _ending(metadata: dict[str, Any]) -> dict[str, Any]:
    names = ("deletionTimestamp", "deletionGracePeriodSeconds")
    return {name: metadata[name] for name in names if name in metadata}


async def finish_deletion(call: Call, existing: StoredObject, obj: dict[str, Any]) -> StoredObject:
    """The update that took the last hold of a dying object: stored no more, and answered as the update left it,
    with the version that it had before."""
    removed = await _remove(call, existing)
    metadata = {**obj["metadata"], "resourceVersion": str(existing.version)}
    return StoredObject(existing.key, removed.version, {**obj, "metadata": metadata})


def may_vanish(row: ApiResource, obj: dict[str, Any]) -> bool:
    """Whether nothing holds a marked object any more."""
    metadata = obj["metadata"]
    if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    if row.kind == "Namespace" and not row.group:
        return not (obj.get("spec") or {}).get("finalizers")
    return True


def check_preconditions(row: ApiResource, old: dict[str, Any], options: DeleteOptions) -> None:
    """Raises `StatusError` 409 unless the object is the one that the options name."""
    metadata = old["metadata"]
    title = f"{row.kind}.{row.group}" if row.group else row.kind
    for wanted, field, word, hint in (
        (options.uid, "uid", "UID", "The object might have been deleted and then recreated"),
        (options.version, "resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        if wanted is not None and wanted != metadata[field]:
            message = (
                f'Operation cannot be fulfilled on {title} "{metadata["name"]}": the {word} in the precondition'
                f" ({wanted}) does not match the {word} in record ({metadata[field]}). {hint}"
            )
            details = {"name": metadata["name"], "kind": row.kind}
            if row.group:
                details["group"] = row.group
            raise statuses.StatusError(statuses.status(409, message, details=details))


def _set_propagation(metadata: dict[str, Any], policy: str) -> None:
    if not policy:
        return
    finalizers = [name for name in metadata.get("finalizers") or () if name not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan":
        finalizers.append(ORPHAN)
    elif policy == "Foreground":
        finalizers.append(FOREGROUND)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _grace_seconds(row: ApiResource, old: dict[str, Any], options: DeleteOptions) -> int:
    """How long a pod may take to end (`podStrategy.CheckGracefulDelete`); all other kinds end at once."""
    if row.kind != "Pod" or row.group:
        return 0
    asked = options.grace_seconds
    spec = old["spec"]
    if asked is None:
        asked = spec.get("terminationGracePeriodSeconds")
    seconds = 30 if asked is None else int(asked)
    if not spec.get("nodeName") or (old.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return 1 if seconds < 0 else seconds


def _mark(call: Call, metadata: dict[str, Any], grace: int) -> None:
    """Set the time of death. A second, shorter period moves it forward from when the first was asked for."""
    asked_at = call.now
    if "deletionTimestamp" in metadata:
        before = int(metadata.get("deletionGracePeriodSeconds") or 0)
        asked_at = parse_rfc3339(metadata["deletionTimestamp"]) - timedelta(seconds=before)
    elif metadata.get("generation"):
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = rfc3339(asked_at + timedelta(seconds=grace))
    metadata["deletionGracePeriodSeconds"] = grace


async def _delete_namespace(call: Call, existing: StoredObject, metadata: dict[str, Any]) -> tuple[StoredObject, bool]:
    old = existing.value
    if metadata["name"] in ("default", "kube-system", "kube-public"):
        raise statuses.forbidden("", "namespaces", metadata["name"], "this namespace may not be deleted")
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = call.timestamp
        obj = {**old, "metadata": metadata, "status": {**(old.get("status") or {}), "phase": "Terminating"}}
        return await _keep(call, existing, obj), False
    if (old.get("spec") or {}).get("finalizers") or metadata.get("finalizers"):
        return existing, False
    if call.dry_run:
        return existing, True
    return await _remove(call, existing), True


async def _keep(call: Call, existing: StoredObject, obj: dict[str, Any]) -> StoredObject:
    if call.dry_run:
        return StoredObject(existing.key, existing.version, obj)
    stored = call.server.store.update(call.row.collection, existing.key, obj)
    await call.server.store.durable(stored.version)
    return stored


async def _remove(call: Call, existing: StoredObject) -> StoredObject:
    store = call.server.store
    removed = store.delete(call.row.collection, existing.key)
    await store.durable(removed.version)
    return removed
