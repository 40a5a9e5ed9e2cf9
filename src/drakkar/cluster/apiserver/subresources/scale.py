"""scale: the number of replicas of a workload as an `autoscaling/v1` Scale, whatever the kind behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.bodies import media_type, object_body, plain_body, private
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.kinds import behaviour
from drakkar.cluster.apiserver.negotiation import YAML
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.apiserver.verbs.updating import APPLY, MERGE, PATCH_TYPES, check_name, replace, until_settled
from drakkar.kube.selectors import LabelSelector

Value = dict[str, Any]

ROW = ApiResource("autoscaling", "v1", "scales", "Scale")


def get(call: Call) -> Answer:
    """The Scale of the object."""
    return answers.value(call, scale_of(call.stored().value, _paths(call)))


async def update(call: Call) -> Answer:
    """Set the replicas."""
    check_write(call, "UpdateOptions")

    async def attempt(call: Call) -> Answer:
        scale = object_body(call, ROW)
        check_name(call, scale)
        return await _set(call, scale)

    return await until_settled(call, attempt)


async def patch(call: Call) -> Answer:
    """Patch the Scale, then set the replicas."""
    check_write(call, "PatchOptions")
    form = media_type(call)
    if form not in PATCH_TYPES:
        raise statuses.unsupported_patch()
    return await until_settled(call, _patch)


async def _patch(call: Call) -> Answer:
    from drakkar.cluster.machinery import patching

    form = media_type(call)
    scale = scale_of(call.stored().value, _paths(call))
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
    paths, admission = _paths(call), call.server.admission
    shown = scale_of(existing.value, paths)
    if call.row.namespaced:
        scale["metadata"] = {**(scale.get("metadata") or {}), "namespace": call.info.namespace}
    scale = await admission.change(call, "UPDATE", scale, shown) or scale
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if not isinstance(replicas, int) or replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        cause = {"reason": "FieldValueInvalid", "message": message, "field": "spec.replicas"}
        details = {"name": call.name, "group": "autoscaling", "kind": "Scale", "causes": [cause]}
        text = f'Scale.autoscaling "{call.name}" is invalid: spec.replicas: {message}'
        raise statuses.StatusError(statuses.status(422, text, details=details))
    from drakkar.cluster.machinery.apply.scaling import after_scaling

    version = (scale.get("metadata") or {}).get("resourceVersion", "")
    obj = private(existing.value)
    metadata = obj["metadata"]
    if version:
        metadata["resourceVersion"] = version
    keys = _keys(_paths(call)["specReplicasPath"])
    before = _at(existing.value, _paths(call)["specReplicasPath"]) or 0
    place = obj
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    place[keys[-1]] = replicas
    fields = tuple(f"f:{key}" for key in keys)
    owners = after_scaling(
        metadata.get("managedFields"),
        fields,
        call.row.api_version,
        manager=call.manager,
        before=before,
        after=replicas,
    )
    obj["metadata"] = (
        {**metadata, "managedFields": owners}
        if owners
        else {key: part for key, part in metadata.items() if key != "managedFields"}
    )

    # A scale writes the spec: the kind's strategy sees an ordinary update, managed fields the subresource.
    async def judge(changed: Value) -> None:
        await admission.judge(call, "UPDATE", scale_of(changed, paths), shown)

    stored = await replace(call, existing, obj, managed=False, judge=judge)
    return answers.value(call, scale_of(stored.value, _paths(call)))


_BUILT_IN: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}


def _paths(call: Call) -> dict[str, str]:
    """Where the kind keeps its numbers; a custom resource says so in its definition."""
    own = call.row.extra.get("scale")
    return {str(key): str(path) for key, path in own.items()} if isinstance(own, dict) else _BUILT_IN


def _keys(path: str) -> list[str]:
    return path.strip(".").split(".")


def _at(obj: Value, path: str) -> Any:
    found: Any = obj
    for key in _keys(path):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def scale_of(obj: Value, paths: Mapping[str, str] = _BUILT_IN) -> Value:
    """The Scale of a Deployment, ReplicaSet, StatefulSet, ReplicationController or custom resource."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    shown: Value = {"replicas": _at(obj, paths["statusReplicasPath"]) or 0}
    selector = _at(obj, paths["labelSelectorPath"]) if "labelSelectorPath" in paths else None
    if isinstance(selector, str):
        shown["selector"] = selector
    elif selector:
        known = "matchLabels" in selector or "matchExpressions" in selector
        parsed = LabelSelector.from_object(selector) if known else LabelSelector.from_labels(selector)
        shown["selector"] = str(parsed)
    replicas = _at(obj, paths["specReplicasPath"])
    wanted = {"replicas": replicas} if replicas else {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": wanted,
        "status": shown,
    }
