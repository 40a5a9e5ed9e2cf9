"""scale: the number of replicas of a workload as an `autoscaling/v1` Scale, whatever the kind behind it."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.bodies import media_type, object_body, private
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.apiserver.verbs.updating import PATCH_TYPES, check_name, replace
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
    form = PATCH_TYPES.get(media_type(call))
    scale = scale_of(call.stored().value)
    body = call.body if isinstance(call.body, (bytes, bytearray)) else private(call.body)
    try:
        if form == "json":
            changed = patching.json_patch(scale, body)
        elif form in ("merge", "strategic", "apply"):
            changed = patching.merge_patch(scale, body)
        else:
            raise statuses.unsupported_patch()
    except patching.PatchError as error:
        raise statuses.StatusError(error.status(call.row.group, call.row.plural, call.name)) from None
    return await _set(call, changed)


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
