"""scale: the number of replicas of a workload as an `autoscaling/v1` Scale, whatever the kind behind it."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.bodies import media_type, object_body, plain_body, private
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.kinds import behaviour
from drakkar.cluster.apiserver.negotiation import YAML
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.apiserver.verbs.updating import APPLY, MERGE, PATCH_TYPES, check_name, replace
from drakkar.kube.selectors import LabelSelector

Value = dict[str, Any]

ROW = ApiResource("autoscaling", "v1", "scales", "Scale")


def get(call: Call) -> Answer:
    """The Scale of the object."""
    return answers.value(call, scale_of(call.stored().value))


async def update(call: Call) -> Answer:
    """Set the replicas."""
    check_write(call, "UpdateOptions")
    scale = object_body(call, ROW)
    check_name(call, scale)
    return await _set(call, scale)


async def patch(call: Call) -> Answer:
    """Patch the Scale, then set the replicas."""
    from drakkar.cluster.machinery import patching

    check_write(call, "PatchOptions")
    form = media_type(call)
    if form not in PATCH_TYPES:
        raise statuses.unsupported_patch()
    scale = scale_of(call.stored().value)
    body = bytes(call.body) if isinstance(call.body, bytes | bytearray) else private(call.body)
    if form == APPLY:  # an applied Scale has one field that can be owned: merging says the same
        body, form = plain_body(call, YAML), MERGE
    try:
        changed = patching.patch(behaviour(ROW), scale, body, form, field_validation=call.field_validation)
    except patching.PatchError as error:
        raise statuses.StatusError(error.status()) from None
    return await _set(call, changed.object)


async def _set(call: Call, scale: Value) -> Answer:
    existing = call.stored()
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if not isinstance(replicas, int) or replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        cause = {"reason": "FieldValueInvalid", "message": message, "field": "spec.replicas"}
        details = {"name": call.name, "group": "autoscaling", "kind": "Scale", "causes": [cause]}
        text = f'Scale.autoscaling "{call.name}" is invalid: spec.replicas: {message}'
        raise statuses.StatusError(statuses.status(422, text, details=details))
    version = (scale.get("metadata") or {}).get("resourceVersion", "")
    obj = private(existing.value)
    if version:
        obj["metadata"]["resourceVersion"] = version
    obj.setdefault("spec", {})["replicas"] = replicas
    # A scale writes the spec: the kind's strategy sees an ordinary update, managed fields the subresource.
    stored = await replace(call, existing, obj)
    return answers.value(call, scale_of(stored.value))


def scale_of(obj: Value) -> Value:
    """The Scale of a Deployment, ReplicaSet, StatefulSet or ReplicationController."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    shown: Value = {"replicas": status.get("replicas") or 0}
    selector = spec.get("selector")
    if selector:
        known = "matchLabels" in selector or "matchExpressions" in selector
        parsed = LabelSelector.from_object(selector) if known else LabelSelector.from_labels(selector)
        shown["selector"] = str(parsed)
    wanted = {"replicas": spec["replicas"]} if spec.get("replicas") else {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": wanted,
        "status": shown,
    }
