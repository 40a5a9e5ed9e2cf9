"""What a write may change, for all kinds but resource.k8s.io (`drakkar.api.lifecycle`): the strategies of a real
server.

The regular part follows from `kinds.Rules`: status belongs to its subresource, generation counts changes of the spec.
The rest is one small function per kind, as upstream's registry strategies have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from drakkar.cluster.machinery.kinds import Kind

__all__ = ["prepare_create", "prepare_update", "quality_of_service", "stored_versions"]

Json = dict[str, Any]


def prepare_create(kind: Kind, obj: Json) -> Json:
    """A new object without what users may not set."""
    if kind.rules.status and (kind.group, kind.kind) not in _KEEPS_STATUS:
        obj = {**obj, "status": dict(kind.schema.fields["status"].type.zero() or {})}
    if kind.rules.generation:
        obj = _with_generation(obj, 1)
    special = _CREATE.get((kind.group, kind.kind))
    return special(obj) if special else obj


# Nodes register themselves with their status.
_KEEPS_STATUS: Final = {("", "Node")}


def prepare_update(kind: Kind, new: Json, old: Json, subresource: str = "") -> Json:
    """A changed object with everything else as it was."""
    special = _UPDATE.get((kind.group, kind.kind, subresource))
    if special:
        return special(new, old)
    if subresource == "status":
        return _with(new, spec=old.get("spec"))
    if kind.rules.status:
        new = _with(new, status=old.get("status"))
    if kind.rules.generation:
        generation = (old.get("metadata") or {}).get("generation") or 0
        new = _with_generation(new, generation + 1 if _changed(kind, new, old) else generation)
    return new


def _changed(kind: Kind, new: Json, old: Json) -> bool:
    if kind.kind == "Deployment" and _meta(new).get("annotations") != _meta(old).get("annotations"):
        return True
    if kind.kind in _ALL_COUNTS:
        return any(new.get(name) != old.get(name) for name in {*new, *old} - {"metadata"})
    return bool(new.get("spec") != old.get("spec"))


_ALL_COUNTS: Final = frozenset(
    (
        "PriorityClass",
        "EndpointSlice",
        "PodTemplate",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    )
)
"""Kinds without a spec: all but their metadata counts."""


def _meta(obj: Json) -> Json:
    return obj.get("metadata") or {}


def _with(obj: Json, **parts: Any) -> Json:
    """The object with other parts; None takes one away."""
    changed = {**obj, **parts}
    return {name: value for name, value in changed.items() if value is not None or name not in parts}


def _with_generation(obj: Json, generation: int) -> Json:
    meta = _meta(obj)
    if meta.get("generation") == generation:
        return obj
    return {**obj, "metadata": {**meta, "generation": generation}}


def _create_pod(pod: Json) -> Json:
    spec = pod.get("spec") or {}
    status: Json = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled", "status": "False", "lastProbeTime": None,
                "lastTransitionTime": _meta(pod).get("creationTimestamp"), "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]  # fmt: skip
    status["qosClass"] = quality_of_service(spec)
    return {**pod, "spec": _with_label_keys(spec, _meta(pod).get("labels") or {}), "status": status}


def _with_label_keys(spec: Json, labels: Json) -> Json:
    """The spec with the pod's own values of matchLabelKeys put into the selectors beside them (KEP-3633, KEP-3243)."""
    constraints = spec.get("topologySpreadConstraints")
    if constraints:
        spec = {**spec, "topologySpreadConstraints": [_with_keys(each, labels) for each in constraints]}
    affinity = spec.get("affinity")
    if not affinity:
        return spec
    for side in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(side)
        if not terms:
            continue
        changed = dict(terms)
        if terms.get(_PREFERRED):
            changed[_PREFERRED] = [
                {**each, "podAffinityTerm": _with_keys(each.get("podAffinityTerm") or {}, labels)}
                for each in terms[_PREFERRED]
            ]
        if terms.get(_REQUIRED):
            changed[_REQUIRED] = [_with_keys(each, labels) for each in terms[_REQUIRED]]
        affinity = {**affinity, side: changed}
    return {**spec, "affinity": affinity}


_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _with_keys(term: Json, labels: Json) -> Json:
    selector = term.get("labelSelector")
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(name) or ()
        if key in labels
    ]
    if selector is None or not added:
        return term
    expressions = [*(selector.get("matchExpressions") or ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


_COMPUTE: Final = ("cpu", "memory")


def quality_of_service(spec: Json) -> str:
    """The QoS class of a pod: Guaranteed, Burstable or BestEffort."""
    pod_level = spec.get("resources") or {}
    if pod_level.get("requests") or pod_level.get("limits"):
        parts = [pod_level]
    else:
        parts = [c.get("resources") or {} for c in (spec.get("containers") or []) + (spec.get("initContainers") or [])]
    guaranteed, any_set = True, False
    for part in parts:
        requests, limits = part.get("requests") or {}, part.get("limits") or {}
        wanted = {name: value for name, value in requests.items() if name in _COMPUTE and value != "0"}
        limited = {name: value for name, value in limits.items() if name in _COMPUTE and value != "0"}
        any_set = any_set or bool(wanted or limited)
        if set(limited) != set(_COMPUTE) or any(wanted.get(name, value) != value for name, value in limited.items()):
            guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _update_pod(new: Json, old: Json) -> Json:
    generation = _meta(old).get("generation") or 0
    changed = new.get("spec") != old.get("spec")
    new = _with_generation(new, generation + 1 if changed else generation)
    return _with(new, status=old.get("status"))


_KEPT_STATUS: Final = ("resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses")


def _update_pod_status(new: Json, old: Json) -> Json:
    status, before = dict(new.get("status") or {}), old.get("status") or {}
    for name in (*_KEPT_STATUS, "qosClass"):
        if not status.get(name) and before.get(name):
            status[name] = before[name]
    meta = dict(_meta(new))
    for name in ("ownerReferences", "deletionTimestamp"):
        if name in _meta(old):
            meta[name] = _meta(old)[name]
        else:
            meta.pop(name, None)
    return _with({**new, "status": status, "metadata": meta}, spec=old.get("spec"))


def _update_ephemeral(new: Json, old: Json) -> Json:
    containers = (new.get("spec") or {}).get("ephemeralContainers")
    spec = _with(old.get("spec") or {}, ephemeralContainers=containers)
    return _update_pod({**old, "metadata": _meta_for_write(new, old), "spec": spec}, old)


def _update_resize(new: Json, old: Json) -> Json:
    """Only resources and resize policies of containers (and the pod's own resources) may change."""
    spec, wanted = dict(old.get("spec") or {}), new.get("spec") or {}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            by_name = {c.get("name"): c for c in wanted.get(name) or []}
            spec[name] = [_resized(c, by_name.get(c.get("name"), c)) for c in spec[name]]
    if wanted.get("resources") is not None:
        spec["resources"] = wanted["resources"]
    return _update_pod({**old, "metadata": _meta_for_write(new, old), "spec": spec}, old)


def _resized(container: Json, wanted: Json) -> Json:
    return _with(container, resources=wanted.get("resources"), resizePolicy=wanted.get("resizePolicy"))


def _meta_for_write(new: Json, old: Json) -> Json:
    """Stored metadata with what a write through a subresource brings: version to compare, managed fields."""
    return _with(
        dict(_meta(old)),
        resourceVersion=_meta(new).get("resourceVersion"),
        managedFields=_meta(new).get("managedFields"),
    )


def _create_namespace(namespace: Json) -> Json:
    spec = namespace.get("spec") or {}
    finalizers = spec.get("finalizers") or []
    if "kubernetes" not in finalizers:
        spec = {**spec, "finalizers": [*finalizers, "kubernetes"]}
    return {**namespace, "spec": spec, "status": {"phase": "Active"}}


def _update_namespace(new: Json, old: Json) -> Json:
    finalizers = (old.get("spec") or {}).get("finalizers")
    return _with(new, spec=_with(new.get("spec") or {}, finalizers=finalizers), status=old.get("status"))


def _finalize_namespace(new: Json, old: Json) -> Json:
    return _with(new, status=old.get("status"))


def _update_deployment_status(new: Json, old: Json) -> Json:
    meta = _with(_meta(new), labels=_meta(old).get("labels"))
    return _with({**new, "metadata": meta}, spec=old.get("spec"))


def _update_secret(new: Json, old: Json) -> Json:
    return new if new.get("type") else _with(new, type=old.get("type"))


def _create_daemon_set(daemon_set: Json) -> Json:
    return _with_template_generation(daemon_set, 1)


def _with_template_generation(daemon_set: Json, generation: int) -> Json:
    # Kept in the annotation that apps/v1 has for the former field.
    meta = _meta(daemon_set)
    annotations = {**(meta.get("annotations") or {}), "deprecated.daemonset.template.generation": str(generation)}
    return {**daemon_set, "metadata": {**meta, "annotations": annotations}}


def _update_daemon_set(new: Json, old: Json) -> Json:
    annotations = _meta(old).get("annotations") or {}
    current = int(annotations.get("deprecated.daemonset.template.generation") or 1)
    generation = _meta(old).get("generation") or 0
    template = (new.get("spec") or {}).get("template") != (old.get("spec") or {}).get("template")
    new = _with_template_generation(_with(new, status=old.get("status")), current + 1 if template else current)
    return _with_generation(new, generation + 1 if new.get("spec") != old.get("spec") else generation)


def _create_job(job: Json) -> Json:
    """The selector and labels that tell a job's pods from those of others, derived from the job's UID."""
    spec, uid, name = job.get("spec") or {}, _meta(job).get("uid"), _meta(job).get("name") or ""
    if spec.get("manualSelector") or not uid:
        return job
    selector = spec.get("selector") or {}
    template = spec.get("template") or {}
    template_meta = template.get("metadata") or {}
    labels = {
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name, "controller-uid": uid,
        "job-name": name, **(template_meta.get("labels") or {}),
    }  # fmt: skip
    match = {"batch.kubernetes.io/controller-uid": uid, **(selector.get("matchLabels") or {})}
    meta = _meta(job)
    if not meta.get("labels") or meta["labels"] is template_meta.get("labels"):
        meta = {**meta, "labels": labels}  # they are defaulted from the template, whenever the job is read
    return {
        **job,
        "metadata": meta,
        "spec": {
            **spec,
            "selector": {**selector, "matchLabels": match},
            "template": {**template, "metadata": {**template_meta, "labels": labels}},
        },
    }


def _create_service_account(account: Json) -> Json:
    secrets = account.get("secrets")
    if not secrets:
        return account
    return {**account, "secrets": [{"name": secret["name"]} if "name" in secret else {} for secret in secrets]}


#: Fields of features that are off: dropped unless the stored object has one.
_COORDINATED: Final = ("strategy", "preferredHolder")


def _without_coordination(lease: Json, old: Json | None = None) -> Json:
    spec, before = lease.get("spec") or {}, (old or {}).get("spec") or {}
    if not any(name in spec for name in _COORDINATED) or any(name in before for name in _COORDINATED):
        return lease
    return {**lease, "spec": {name: value for name, value in spec.items() if name not in _COORDINATED}}


def _create_definition(definition: Json) -> Json:
    return _with_stored_versions(definition, [])


def _update_definition(new: Json, old: Json) -> Json:
    generation = _meta(old).get("generation") or 0
    new = _with_generation(_with(new, status=old.get("status")), generation + (new.get("spec") != old.get("spec")))
    return _with_stored_versions(new, (old.get("status") or {}).get("storedVersions") or [])


def _with_stored_versions(definition: Json, before: list[str]) -> Json:
    stored = stored_versions(definition, before)
    if not stored:
        return definition
    return {**definition, "status": {**(definition.get("status") or {}), "storedVersions": stored}}


def stored_versions(definition: Json, before: list[str]) -> list[str]:
    """The versions of a definition that objects may be stored in: the one that they are stored in now joins them."""
    versions = (definition.get("spec") or {}).get("versions") or ()
    now = [one.get("name") or "" for one in versions if one.get("storage")][:1]
    return before + [name for name in now if name not in before]


_CREATE: Final[dict[tuple[str, str], Callable[[Json], Json]]] = {
    ("", "Pod"): _create_pod,
    ("", "Namespace"): _create_namespace,
    ("", "ServiceAccount"): _create_service_account,
    ("", "PersistentVolumeClaim"): lambda claim: {**claim, "status": {"phase": "Pending"}},
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _create_definition,
    ("apps", "DaemonSet"): _create_daemon_set,
    ("batch", "Job"): _create_job,
    ("coordination.k8s.io", "Lease"): _without_coordination,
}
_UPDATE: Final[dict[tuple[str, str, str], Callable[[Json, Json], Json]]] = {
    ("", "Pod", ""): _update_pod,
    ("", "Pod", "status"): _update_pod_status,
    ("", "Pod", "ephemeralcontainers"): _update_ephemeral,
    ("", "Pod", "resize"): _update_resize,
    ("", "Namespace", ""): _update_namespace,
    ("", "Namespace", "finalize"): _finalize_namespace,
    ("", "Secret", ""): _update_secret,
    ("apiextensions.k8s.io", "CustomResourceDefinition", ""): _update_definition,
    ("apps", "DaemonSet", ""): _update_daemon_set,
    ("coordination.k8s.io", "Lease", ""): _without_coordination,
    ("apps", "Deployment", "status"): _update_deployment_status,
}
