"""update and patch: a new state of an object that exists, under its optimistic lock.

Both end in `replace`: what may not change is carried over from the stored object, then strategy, admission, managed
fields and validation run as for create. A write that changes nothing keeps the version, and one that takes the last
finalizer of a dying object deletes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.bodies import check_size, defaulted, media_type, object_body
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.kinds import behaviour, stored_behaviour
from drakkar.cluster.apiserver.managed_fields import apply_configuration, unless_same, with_managed_fields
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.apiserver.patches import patched
from drakkar.cluster.apiserver.verbs.creating import create_object, created, raise_invalid, with_distinct_owners
from drakkar.cluster.apiserver.verbs.deleting import finish_deletion, may_vanish
from drakkar.cluster.store import StoredObject

APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_ATTEMPTS: Final = 5
PATCH_TYPES: Final = ("application/json-patch+json", MERGE, STRATEGIC, APPLY)


async def update(call: Call) -> Answer:
    """PUT: replace the object or its subresource; 201 where a PUT may create."""
    check_write(call, "UpdateOptions")
    return await until_settled(call, _update)


async def _update(call: Call) -> Answer:
    existing = call.collection.get(call.key())
    obj = object_body(call, known=existing.value if existing is not None else None)
    check_name(call, obj)
    if existing is None:
        if not call.row.put_creates or call.subresource is not None:
            raise statuses.not_found(call.row.group, call.row.plural, call.name)
        return created(call, await create_object(call, obj))
    return shown(call, await replace(call, existing, obj))


async def patch(call: Call) -> Answer:
    """PATCH in four forms; apply creates what is not there."""
    form = media_type(call)
    if form not in PATCH_TYPES or (form == STRATEGIC and call.row.custom):
        raise statuses.unsupported_patch()
    check_size(call.body)
    check_write(call, "PatchOptions", apply=form == APPLY)
    return await until_settled(call, _apply if form == APPLY else _patch)


async def _patch(call: Call) -> Answer:
    existing = call.stored()
    current = to_served(call.row, existing.value)
    changed = patched(call, current)
    check_name(call, changed)
    obj = defaulted(call, changed, call.row, existing.value)
    return shown(call, await replace(call, existing, obj))


async def _apply(call: Call) -> Answer:
    existing = call.collection.get(call.key())
    if existing is None and call.subresource is not None:
        raise statuses.not_found(call.row.group, call.row.plural, call.name)
    obj, warnings = apply_configuration(call, existing)
    call.warnings += warnings
    obj = defaulted(call, obj, call.row, existing.value if existing is not None else None)
    if existing is None:
        obj.setdefault("metadata", {})["name"] = call.name
        stored = await create_object(call, obj, managed=False)
        return created(call, stored)
    return shown(call, await replace(call, existing, obj, managed=False))


class OvertakenError(Exception):
    """While webhooks were asked, somebody else wrote the object."""


async def until_settled(call: Call, attempt: Callable[[Call], Awaitable[Answer]]) -> Answer:
    """Try again from the object as it is now, as often as it is overtaken (`GuaranteedUpdate`)."""
    told = len(call.warnings)
    for _ in range(_ATTEMPTS):
        try:
            return await attempt(call)
        except OvertakenError:
            del call.warnings[told:]
    raise statuses.modified(call.row.group, call.row.plural, call.name)


def shown(call: Call, stored: StoredObject) -> Answer:
    """The answer to a write."""
    if call.dry_run:
        return answers.value(call, to_served(call.row, stored.value))
    return answers.one(call, stored)


def check_name(call: Call, obj: dict[str, Any]) -> None:
    """The body must be about the object of the path; raises `StatusError` 400."""
    metadata = obj.get("metadata") or {}
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    if name != call.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.name})"
            if name
            else "name must be provided"
        )
    if namespace and call.row.namespaced and namespace != call.info.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


async def replace(
    call: Call,
    existing: StoredObject,
    obj: dict[str, Any],
    *,
    managed: bool = True,
    judge: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
) -> StoredObject:
    """Store `obj` (stored version, defaulted, private) in place of `existing`; raises `StatusError`.

    `judge` takes the place of policies and webhooks, for a subresource with a kind of its own. Raises `OvertakenError`
    if somebody else wrote the object while webhooks were asked.
    """
    kind = stored_behaviour(call.row)
    subresource = call.subresource.name if call.subresource is not None else ""
    old = existing.value
    check_versions(call, existing, obj)
    admission = call.server.admission
    asks = admission.asks_to_mutate and judge is None
    if not asks:
        _keep_system_fields(obj, old)
    elif call.row.namespaced:
        obj["metadata"]["namespace"] = call.info.namespace
    if managed:
        obj = with_managed_fields(call, old, with_distinct_owners(call, obj) if call.method == "PUT" else obj)
    obj = admission.mutate(call, "UPDATE", obj, old)
    if asks:  # webhooks see the object as it was sent
        obj = await admission.ask_to_mutate(call, "UPDATE", obj, old)
        _keep_system_fields(obj, old)
    obj = kind.prepare_update(with_distinct_owners(call, obj, admitted=True), old, subresource)
    obj = unless_same(obj, old)
    checked = admission.field_errors(call, "UPDATE", obj, old)
    raise_invalid(call, obj, [*checked, *kind.validate_update(obj, old, subresource)])
    call.warnings += kind.warnings(obj, old)
    if judge is not None:
        await judge(obj)
    elif admission.asks_to_validate:
        await admission.ask_to_validate(call, "UPDATE", obj, old)
    else:
        admission.validate(call, "UPDATE", obj, old)
    if call.collection.get(existing.key) is not existing:
        raise OvertakenError
    if obj == old:
        return existing
    if call.dry_run:
        return StoredObject(existing.key, existing.version, obj)
    return await write(call, existing, obj)


async def write(call: Call, existing: StoredObject, obj: dict[str, Any]) -> StoredObject:
    """Store a state that passed everything; deletes a dying object that nothing holds any more."""
    store = call.server.store
    if may_vanish(call.row, obj) and existing.value["metadata"].get("deletionTimestamp"):
        return await finish_deletion(call, existing, obj)
    stored = store.update(call.row.collection, existing.key, obj)
    call.server.admission.stored(call)
    await store.durable(stored.version)
    return stored


def check_versions(call: Call, existing: StoredObject, obj: dict[str, Any]) -> None:
    """The optimistic lock: raises `StatusError` 409 unless uid and version, where given, are the stored ones."""
    row, metadata = call.row, obj.setdefault("metadata", {})
    version, uid = metadata.get("resourceVersion", ""), metadata.get("uid", "")
    current = existing.value["metadata"]
    if version and not version.isdigit():
        raise statuses.internal(f'strconv.ParseUint: parsing "{version}": invalid syntax', bare=True)
    if uid and uid != current["uid"] and call.method == "PUT":
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{row.plural}/{existing.key}, ResourceVersion: 0,"
            f" AdditionalErrorMsg: Precondition failed: UID in precondition: {uid},"
            f" UID in object meta: {current['uid']}"
        )
        raise statuses.conflict(row.group, row.plural, call.name, why)
    if version in ("", "0"):
        if not behaviour(row).rules.unconditional and call.method == "PUT":
            raise _unconditional(call)
    elif version != current["resourceVersion"]:
        raise statuses.modified(row.group, row.plural, call.name)


def _unconditional(call: Call) -> statuses.StatusError:
    row = call.row
    message = "Invalid value: 0: must be specified for an update"
    details = {
        "name": call.name,
        "group": row.group,
        "kind": row.plural,
        "causes": [{"reason": "FieldValueInvalid", "message": message, "field": "metadata.resourceVersion"}],
    }
    title = statuses.qualified(row.group, row.plural)
    return statuses.StatusError(
        statuses.status(422, f'{title} "{call.name}" is invalid: metadata.resourceVersion: {message}', details=details)
    )


def _keep_system_fields(obj: dict[str, Any], old: dict[str, Any]) -> None:
    carry_over(obj, old)
    obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]


_KEPT: Final = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace")


def carry_over(obj: dict[str, Any], old: dict[str, Any]) -> None:
    """What no client may change in an object's metadata (`rest.BeforeUpdate`)."""
    metadata, before = {**(obj.get("metadata") or {})}, old["metadata"]
    for name in _KEPT:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    metadata["uid"] = metadata.get("uid") or before["uid"]
    if "generateName" in before and "generateName" not in metadata:
        metadata["generateName"] = before["generateName"]
    metadata.pop("selfLink", None)
    obj["metadata"] = metadata
