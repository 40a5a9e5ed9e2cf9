"""namespaces/finalize: the namespace controller writes which finalizers of the *spec* are left."""

from __future__ import annotations

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.bodies import object_body
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.kinds import behaviour
from drakkar.cluster.apiserver.managed_fields import with_managed_fields
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.apiserver.verbs.updating import carry_over, check_name, check_versions, shown, write
from drakkar.cluster.store import StoredObject


async def update(call: Call) -> Answer:
    """Replace `spec.finalizers`; a terminating namespace without any vanishes."""
    check_write(call, "UpdateOptions")
    body = object_body(call)
    check_name(call, body)
    existing = call.stored()
    check_versions(call, existing, body)
    old = existing.value
    carry_over(body, old)
    body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    admission = call.server.admission
    body = await admission.change(call, "UPDATE", with_managed_fields(call, old, body), old) or body
    obj = behaviour(call.row).prepare_update(body, old, "finalize")
    await admission.judge(call, "UPDATE", obj, old)
    if call.collection.get(existing.key) is not existing:
        raise statuses.modified(call.row.group, call.row.plural, call.name)
    if call.dry_run:
        return shown(call, StoredObject(existing.key, existing.version, obj))
    if obj == existing.value and not obj["metadata"].get("deletionTimestamp"):
        return shown(call, existing)
    return shown(call, await write(call, existing, obj))
