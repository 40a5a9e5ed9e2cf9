"""binding: the scheduler's decision, written once and never again (`BindingREST` of the pod registry)."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.bodies import object_body
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.options import check_write
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.apiserver.verbs.updating import write
from drakkar.cluster.store import StoredObject

Value = dict[str, Any]

ROW = ApiResource("", "v1", "bindings", "Binding")
_PODS = "pods"


async def create(call: Call) -> Answer:
    """Bind a pod to a node; both the path below the pod and the old collection path end here."""
    check_write(call, "CreateOptions")
    binding = object_body(call, ROW)
    metadata = binding.get("metadata") or {}
    name = call.name or metadata.get("name", "")
    if call.name and metadata.get("name", "") not in ("", call.name):
        raise statuses.bad_request("name in URL does not match name in Binding object")
    binding["metadata"] = metadata = {**metadata, "namespace": call.info.namespace}
    binding = await call.server.admission.admit(call, "CREATE", binding)
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if target.get("kind", "") not in ("", "Node"):
        kind = target["kind"]
        raise statuses.internal(
            f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"', bare=True
        )
    if not target.get("name"):
        raise statuses.internal("target.name: Required value", bare=True)
    collection = call.server.store.collection(_PODS)
    existing = collection.get(f"{call.info.namespace}/{name}")
    if existing is None:
        raise statuses.not_found("", _PODS, name)
    _check(existing, metadata, name)
    if not call.dry_run:
        await write(_about_pods(call), existing, _bound(call, existing.value, metadata, target["name"]))
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return Answer(201, answer, warnings=call.warnings)


def _check(existing: StoredObject, metadata: Value, name: str) -> None:
    pod = existing.value
    uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    if uid and uid != pod["metadata"]["uid"]:
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/pods/{existing.key}, ResourceVersion: 0,"
            f" AdditionalErrorMsg: Precondition failed: UID in precondition: {uid},"
            f" UID in object meta: {pod['metadata']['uid']}"
        )
        raise statuses.conflict("", _PODS, name, why)
    if version and version != pod["metadata"]["resourceVersion"]:
        raise statuses.modified("", _PODS, name)
    if pod["metadata"].get("deletionTimestamp"):
        raise statuses.conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    node = pod["spec"].get("nodeName")
    if node:
        raise statuses.conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise statuses.conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def _bound(call: Call, pod: Value, metadata: Value, node: str) -> Value:
    meta = pod["metadata"]
    # Annotations always travel with the binding, labels only those of topology (PodTopologyLabelsAdmission, 1.35).
    if metadata.get("annotations"):
        meta = {**meta, "annotations": {**(meta.get("annotations") or {}), **metadata["annotations"]}}
    topology = {key: value for key, value in (metadata.get("labels") or {}).items() if key.startswith("topology.")}
    if topology:
        meta = {**meta, "labels": {**(meta.get("labels") or {}), **topology}}
    status = {name: value for name, value in (pod.get("status") or {}).items() if name != "nominatedNodeName"}
    conditions = [one for one in status.get("conditions") or () if one.get("type") != "PodScheduled"]
    before = next((one for one in status.get("conditions") or () if one.get("type") == "PodScheduled"), None)
    since = call.timestamp if before is None or before.get("status") != "True" else before.get("lastTransitionTime")
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
    status["conditions"] = [*conditions, scheduled]
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def _about_pods(call: Call) -> Call:
    """The same request as one about the pod, for those who store it."""
    if call.row.plural != _PODS:
        row = call.server.registry.get("", "v1", _PODS)
        assert row is not None
        call.row = row
    return call
