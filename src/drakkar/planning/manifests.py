"""Manifests as what they would become: objects with defaults, checked as an API server would, and workloads.

A manifest that the server would refuse is an error here, too, with object, path, value and reason: a plan for it would
answer another question. What has nothing to do with pods or devices (services, config maps, custom resources) is left
out without a word. resource.k8s.io objects of any served version become v1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from drakkar.api.conversion import convert
from drakkar.api.defaulting import default
from drakkar.api.validation import KINDS, validate_create
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Manifest, Snapshot, name_of, namespace_of, reference
from drakkar.evidence.soundness import misshapen, subject_of
from drakkar.kube.clock import rfc3339
from drakkar.scheduling.node_affinity import NodeAffinity
from drakkar.scheduling.pod_affinity import PodAffinity
from drakkar.scheduling.spreading import parse_constraints

__all__ = ["ManifestError", "check_admin_access", "pod_template", "understood", "with_objects"]

Object = dict[str, Any]

WORKLOADS: Final = ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
_CLUSTER_WIDE: Final = frozenset(
    {"DeviceClass", "DeviceTaintRule", "ResourceSlice", "Node", "Namespace", "PriorityClass"}
)
_OTHERS: Final = frozenset({"Namespace", "PriorityClass", "ResourceQuota", "Node"})
_GROUPS: Final = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"), "apps"),
    **dict.fromkeys(("Job", "CronJob"), "batch"),
    **dict.fromkeys(("Pod", "Namespace", "ResourceQuota", "Node"), ""),
    **dict.fromkeys(KINDS, "resource.k8s.io"),
    "PriorityClass": "scheduling.k8s.io",
}
_SHOWN: Final = 3


class ManifestError(DrakkarError):
    """A manifest that no API server would take."""


def understood(manifests: Iterable[Manifest], *, namespace: str, now: datetime) -> list[Manifest]:
    """The manifests that matter to a plan, completed; those without a namespace get `namespace`.

    Raises:
        ManifestError: the first one that is wrong; it names the file, the line, the object, the path and the value.
    """
    found = [_completed(manifest, namespace, now) for manifest in manifests if _matters(manifest.object)]
    seen: dict[tuple[str, str, str], Manifest] = {}
    for manifest in found:
        obj = manifest.object
        key = obj["kind"], namespace_of(obj), name_of(obj)
        if name_of(obj) and key in seen:
            earlier = seen[key]
            raise ManifestError(
                f"{reference(obj)} is there twice: {_place(earlier)} and {_place(manifest)}",
                reason="Duplicate",
                subject=_place(manifest),
            )
        seen[key] = manifest
    return found


def with_objects(snapshot: Snapshot, manifests: Iterable[Manifest], nodes: Sequence[Object] = ()) -> Snapshot:
    """The snapshot with the manifests' classes, templates, claims and the like; workloads are not pods yet.

    `nodes` are further objects, of nodes that are to come. A claim that exists stays as it is: its spec cannot change.
    """
    new = [one.object for one in manifests if one.object["kind"] not in WORKLOADS]
    if not new and not nodes:
        return snapshot
    kept = {("ResourceClaim", namespace_of(obj), name_of(obj)) for obj in snapshot.all("ResourceClaim")}
    new = [obj for obj in new if (obj["kind"], namespace_of(obj), name_of(obj)) not in kept]
    names = {(obj["kind"], namespace_of(obj), name_of(obj)) for obj in new}
    kinds = {obj["kind"] for obj in new}
    old = [
        obj
        for obj in snapshot.objects
        if obj.get("kind") not in kinds or (obj["kind"], namespace_of(obj), name_of(obj)) not in names
    ]
    return Snapshot(
        objects=(*old, *new, *nodes), captured_at=snapshot.captured_at, unread=snapshot.unread,
        kubernetes_version=snapshot.kubernetes_version,
    )  # fmt: skip


def check_admin_access(snapshot: Snapshot, manifests: Iterable[Manifest]) -> None:
    """Admin access (KEP-5018) is for namespaces that say so; the server refuses claims and templates elsewhere.

    Raises `ManifestError`; where the snapshot shows no namespaces nothing is said.
    """
    if not snapshot.all("Namespace"):
        return
    for manifest in manifests:
        obj = manifest.object
        spec = {"ResourceClaim": obj.get("spec"), "ResourceClaimTemplate": (obj.get("spec") or {}).get("spec")}
        devices = (spec.get(obj["kind"]) or {}).get("devices") or {}
        for number, request in enumerate(devices.get("requests") or ()):
            if (request.get("exactly") or {}).get("adminAccess") is not True:
                continue
            namespace = snapshot.get("Namespace", namespace_of(obj)) or {}
            labels = (namespace.get("metadata") or {}).get("labels") or {}
            if labels.get(_ADMIN_LABEL) != "true":
                path = (
                    f"{'spec.' * (obj['kind'] != 'ResourceClaim')}spec.devices.requests[{number}].exactly.adminAccess"
                )
                reason = f'admin access needs the label {_ADMIN_LABEL}: "true" on namespace {namespace_of(obj)}'
                raise _error(manifest, obj, path, "", reason)


_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"


def _matters(obj: Object) -> bool:
    kind = obj.get("kind")
    if not isinstance(kind, str) or kind not in _GROUPS:
        return False
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    return group == _GROUPS[kind]


def _completed(manifest: Manifest, namespace: str, now: datetime) -> Manifest:
    obj = manifest.object
    kind: str = obj["kind"]
    if kind in KINDS and str(obj.get("apiVersion")).rpartition("/")[2] != "v1":
        _check_shape(manifest, {**obj, "kind": "other"})
        try:
            obj = convert(obj, "v1")
        except (AttributeError, TypeError, KeyError):
            raise _error(manifest, obj, "the object", "", f"is no {kind} of {obj.get('apiVersion')}") from None
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise _error(manifest, obj, "metadata", "", "is missing")
    if not metadata.get("name") and not metadata.get("generateName"):
        raise _error(manifest, obj, "metadata.name", "", "name or generateName is required")
    if not metadata.get("name"):
        metadata = {**metadata, "name": f"{metadata['generateName']}0"}
    if kind not in _CLUSTER_WIDE and not metadata.get("namespace"):
        metadata = {**metadata, "namespace": namespace}
    obj = {**obj, "metadata": metadata}
    _check_shape(manifest, obj)
    if kind in KINDS:
        obj = default(obj, now=rfc3339(now))
        obj = {**obj, "metadata": {"uid": f"plan:{reference(obj)}", **obj["metadata"]}}
        _check_as_server(manifest, obj)
    elif kind in WORKLOADS:
        _check_pod(manifest, obj)
    return Manifest(manifest.file, manifest.line, obj)


def _check_shape(manifest: Manifest, obj: Object) -> None:
    wrong = misshapen(obj)
    if wrong is not None:
        raise _error(manifest, manifest.object, wrong.path, wrong.value, wrong.reason)


def _check_as_server(manifest: Manifest, obj: Object) -> None:
    problems = validate_create(obj)
    if problems:
        texts = [str(problem) for problem in problems[:_SHOWN]]
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ManifestError(
            f"{_place(manifest)}: {reference(obj)}: {'; '.join(texts)}{more}",
            reason="Invalid",
            subject=reference(obj),
            next_step="correct the manifest; `drakkar lint` says more about it",
        )


def pod_template(obj: Object) -> tuple[Object, str]:
    """The metadata and spec of the pods that a workload makes, and the path at which they stand."""
    spec = obj.get("spec") or {}
    if obj["kind"] == "Pod":
        return {"metadata": obj["metadata"], "spec": spec}, ""
    if obj["kind"] == "CronJob":
        return spec["jobTemplate"]["spec"]["template"], "spec.jobTemplate.spec.template."
    return spec["template"], "spec.template."


def _check_pod(manifest: Manifest, obj: Object) -> None:
    template, path = pod_template(obj)
    spec = template.get("spec") or {}
    if not spec.get("containers"):
        raise _error(manifest, obj, f"{path}spec.containers", "", "at least one container is required")
    try:
        NodeAffinity.parse(spec)
        PodAffinity.parse(spec, "")
        parse_constraints(spec, {})
    except DrakkarError as error:
        part = "spec.topologySpreadConstraints" if "affinity" not in spec else "spec.affinity"
        raise _error(manifest, obj, f"{path}{part}", "", error.message) from None
    names = {entry["name"] for entry in spec.get("resourceClaims") or ()}
    for number, entry in enumerate(spec.get("resourceClaims") or ()):
        given = [bool(entry.get(field)) for field in ("resourceClaimName", "resourceClaimTemplateName")]
        if sum(given) != 1:
            where = f"{path}spec.resourceClaims[{number}]"
            reason = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            raise _error(manifest, obj, where, "" if not any(given) else "both", reason)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            for position, use in enumerate((container.get("resources") or {}).get("claims") or ()):
                if use.get("name") not in names:
                    where = f"{path}spec.{field}[{index}].resources.claims[{position}].name"
                    raise _error(manifest, obj, where, repr(use.get("name")), "must be one of spec.resourceClaims")


def _error(manifest: Manifest, obj: Object, path: str, value: str, reason: str) -> ManifestError:
    shown = f" (it is {value})" if value else ""
    return ManifestError(
        f"{_place(manifest)}: {subject_of(obj)}: {path}: {reason}{shown}",
        reason="Invalid",
        subject=_place(manifest),
    )


def _place(manifest: Manifest) -> str:
    return f"{manifest.file}:{manifest.line}" if manifest.line else manifest.file
