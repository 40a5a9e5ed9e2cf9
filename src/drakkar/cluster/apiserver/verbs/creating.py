"""create: from a body to a stored object, in the order of kube-apiserver's generic registry.

Decoded and defaulted, then system fields, admission that changes, the kind's strategy, validation, admission that
judges, and only then the question whether the name is free.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.bodies import object_body
from drakkar.cluster.apiserver.calls import Answer, Call, key_of
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.kinds import stored_behaviour
from drakkar.cluster.apiserver.managed_fields import with_managed_fields
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.store import StoredObject

_GENERATED: Final = 5
_LONGEST: Final = 63 - _GENERATED


async def create(call: Call) -> Answer:
    """Answers 201 with the object as stored."""
    check_write(call, "CreateOptions")
    obj = object_body(call)
    stored = await create_object(call, obj)
    return created(call, stored)


def created(call: Call, stored: StoredObject) -> Answer:
    """The answer to a create; that of a dry run shows an object without a version."""
    if call.dry_run:
        return answers.value(call, to_served(call.row, stored.value), 201)
    return answers.one(call, stored, 201)


async def create_object(call: Call, obj: dict[str, Any], *, managed: bool = True) -> StoredObject:
    """Store `obj` (in the stored version, already defaulted), or only go through the motions of a dry run.

    `managed` False: managedFields are there already (server-side apply). Raises `StatusError`.
    """
    row, kind = call.row, stored_behaviour(call.row)
    _set_system_fields(call, obj)
    if managed:  # before admission: what the server adds is not the client's
        obj = with_managed_fields(call, None, with_distinct_owners(call, obj))
    admission = call.server.admission
    obj = admission.mutate(call, "CREATE", obj, None)
    if admission.asks_to_mutate:
        obj = await admission.ask_to_mutate(call, "CREATE", obj, None)
    obj = kind.prepare_create(with_distinct_owners(call, obj, admitted=True))
    raise_invalid(call, obj, [*admission.field_errors(call, "CREATE", obj, None), *kind.validate_create(obj)])
    call.warnings += kind.warnings(obj)
    if admission.asks_to_validate:
        await admission.ask_to_validate(call, "CREATE", obj, None)
    else:
        admission.validate(call, "CREATE", obj, None)
    key = key_of(row, call.namespace, obj["metadata"]["name"])
    if call.collection.get(key) is not None:
        raise statuses.already_exists(row.group, row.plural, obj["metadata"]["name"])
    if call.dry_run:
        return StoredObject(key, 0, obj)
    stored = call.server.store.create(row.collection, key, obj)
    admission.stored(call)
    await call.server.store.durable(stored.version)
    return stored


def with_distinct_owners(call: Call, obj: dict[str, Any], *, admitted: bool = False) -> dict[str, Any]:
    """`obj` with every owner once, and a warning if one was there twice; creates and updates ask before and after
    mutating admission, patches after it only."""
    owners = obj["metadata"].get("ownerReferences") or ()
    if len(owners) < 2:
        return obj
    kept: list[dict[str, Any]] = []
    twice: list[str] = []
    for owner in owners:
        if owner in kept:
            twice.append(owner.get("uid", ""))
        else:
            kept.append(owner)
    if not twice:
        return obj
    call.warnings.append(_OWNERS_TWICE.format(_ADMITTED if admitted else "", ", ".join(twice)))
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": kept}}


_ADMITTED: Final = " after mutating admission happens"
_OWNERS_TWICE: Final = (
    ".metadata.ownerReferences contains duplicate entries{}; API server dedups owner references in 1.20+, and may"
    " reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}"
)


def raise_invalid(call: Call, obj: dict[str, Any], errors: list[Any]) -> None:
    """Raises the 422 for what validation found; does nothing for an empty list."""
    if errors:
        from drakkar.api.fields import invalid_status

        name = obj["metadata"].get("name", "") or obj["metadata"].get("generateName", "")
        raise statuses.StatusError(invalid_status(call.row.group, call.row.kind, name, errors))


def _set_system_fields(call: Call, obj: dict[str, Any]) -> None:
    """Give the object what the server gives: name, namespace, uid, creation time. Raises `StatusError` 400."""
    row = call.row
    metadata: dict[str, Any] = {**(obj.get("metadata") or {})}
    obj["metadata"] = metadata
    if row.namespaced:
        given = metadata.get("namespace", "")
        if given and given != call.info.namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = call.info.namespace
    else:
        metadata.pop("namespace", None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = _free_name(call, metadata["generateName"])
    version = metadata.get("resourceVersion", "")
    if version.isascii() and version.isdigit() and 0 < int(version) < 1 << 64:  # what is no version passes
        raise statuses.internal("resourceVersion should not be set on objects to be created", bare=True)
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = call.server.chance.uid(row.collection, call.namespace, str(metadata.get("name")))
    metadata["creationTimestamp"] = call.timestamp


def _free_name(call: Call, base: str) -> str:
    """A generated name; on the rare collision another one (the original tries eight times)."""
    for _ in range(8):
        suffix = call.server.chance.suffix(_GENERATED, call.row.collection, call.namespace, base)
        name = base[:_LONGEST] + suffix
        if call.collection.get(key_of(call.row, call.namespace, name)) is None:
            break
    return name
