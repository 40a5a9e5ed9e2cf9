"""The plan of a migration: every object with what it becomes, and why.

Workloads come first, then what limits and watches them, since a quota may only change where the pods did. What still
speaks of the old resources at the end is told as a step to do by hand: nothing is left behind in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.kube.paths import value_at
from drakkar.migration.context import release
from drakkar.migration.converting.devices import PREFIX, device_type
from drakkar.migration.converting.limits import (
    configure_kueue,
    convert_limit_range,
    convert_queue,
    convert_quota,
    limited_profiles,
    queue_resources,
)
from drakkar.migration.converting.monitoring import convert_queries, has_queries
from drakkar.migration.converting.operators import after_pod, before_object
from drakkar.migration.converting.pods import convert_pod, devices_in
from drakkar.migration.converting.trainer import namespaces_of_runtime, prepare_train_jobs
from drakkar.migration.converting.work import VERDICTS, Note, Recorded, Settings, Work
from drakkar.migration.converting.workloads import cluster_scoped, known_kind, pod_places
from drakkar.migration.documents import Document, Source, Steps
from drakkar.migration.pods import pod_templates

__all__ = ["ObjectPlan", "Plan", "make_plan"]

Object = dict[str, Any]
_AUTOSCALERS: Final = {
    "HorizontalPodAutoscaler": "it cannot count claims; scale by DCGM's metrics of the pods' devices",
    "VerticalPodAutoscaler": "it sees cpu and memory only, and does not resize claims",
    "ScaledObject": "check that its queries do not count the old resource",
}
_FOREIGN: Final = {
    ("serving.knative.dev", "Service"): ("knative", "Knative does not pass claims on (serving#15332)"),
    ("batch.volcano.sh", "Job"): ("volcano", "Volcano's queues and scheduler count limits, not claims (volcano#4400)"),
    ("sparkoperator.k8s.io", "SparkApplication"): (
        "kind-unknown",
        "the Spark operator makes its pods of fields of its own",
    ),
}
_CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"


@dataclass(frozen=True)
class ObjectPlan:
    """What becomes of one object."""

    document: Document
    wanted: Object
    notes: tuple[Note, ...]
    generated: tuple[Object, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst of its notes; kept if there is none."""
        return min((note.verdict for note in self.notes), key=VERDICTS.index, default="kept")

    @property
    def changed(self) -> bool:
        """Whether anything of it is rewritten."""
        return self.wanted != self.document.value


@dataclass(frozen=True)
class Plan:
    """Every object of the input, and the classes that come along."""

    objects: tuple[ObjectPlan, ...]
    classes: tuple[Object, ...]
    settings: Settings
    advice: tuple[str, ...] = field(default=())

    @property
    def refused(self) -> bool:
        """Whether something cannot be converted."""
        return any(each.verdict == "refused" for each in self.objects)

    def objects_after(self) -> Iterator[Object]:
        """Everything as it will be applied."""
        yield from self.classes
        for each in self.objects:
            yield from each.generated
            yield each.wanted


def make_plan(
    sources: Sequence[Source], settings: Settings, recorded: Iterable[Mapping[str, Any]] | None = None
) -> Plan:
    """Plan the migration of documents. Raises DrakkarError for a target that has neither way."""
    _check_target(settings)
    known = Recorded(recorded)
    documents = [source for source in sources if isinstance(source, Document)]
    profiles = limited_profiles([*(document.value for document in documents), *known.objects])
    works = [Work(document, settings, known, profiles) for document in documents]
    chosen = [work for work in works if _chosen(work)]
    prepare_train_jobs(chosen)
    for work in chosen:
        _convert_workload(work)
    _refuse_together(chosen)
    _spread_templates(chosen)
    _convert_others(chosen, documents)
    converted = {(work.document.kind, work.namespace, work.document.name) for work in chosen if _changed(work)}
    for work in chosen:
        _autoscaling(work, converted)
        _what_is_left(work)
    classes: dict[str, Object] = {}
    for work in chosen:
        if not work.refused:
            classes |= work.classes
    missing = tuple(
        obj for name, obj in sorted(classes.items()) if not known.class_named(name) and not _written(documents, name)
    )
    return Plan(tuple(_finished(work) for work in works), missing, settings, tuple(_advice(chosen, settings, known)))


def _check_target(settings: Settings) -> None:
    if release(settings.kubernetes) < (1, 34):
        raise DrakkarError(
            f"Kubernetes {settings.kubernetes} serves no resource.k8s.io/v1",
            reason="TargetTooOld",
            subject="--target",
            expected="1.34 or later",
            next_step="upgrade the cluster first",
        )


def _written(documents: Sequence[Document], name: str) -> bool:
    return any(document.kind == "DeviceClass" and document.name == name for document in documents)


def _chosen(work: Work) -> bool:
    namespaces = work.settings.namespaces
    cluster_wide = not work.document.namespace and work.document.kind in (
        "ClusterQueue",
        "ClusterTrainingRuntime",
        "ClusterServingRuntime",
    )
    return not namespaces or cluster_wide or work.namespace in namespaces


def _changed(work: Work) -> bool:
    return not work.refused and work.value != work.document.value


# -- workloads -----------------------------------------------------------------------------------------------


def _convert_workload(work: Work) -> None:
    document = work.document
    if document.chart:
        if _mentions(document.value):
            work.refuse(
                "not-rendered",
                (),
                "chart values say what a chart makes of them only when it is rendered: helm template first",
            )
        return
    if not known_kind(document.value):
        _unknown(work)
        return
    places = pod_places(work.value)
    before_object(work, asks=any(devices_in(work, place) for place in places))
    for place in places:
        devices = convert_pod(work, place)
        after_pod(work, place, devices)


def _unknown(work: Work) -> None:
    """Kinds of which nobody knows what their operator makes of a claim."""
    if work.document.kind in ("ConfigMap", "Secret", "ResourceClaimTemplate"):
        return
    foreign = _FOREIGN.get((work.document.group, work.document.kind))
    for template in pod_templates(work.document):
        for container in template.containers:
            for steps, name in container.extended():
                if name.startswith(PREFIX):
                    code, why = foreign or (
                        "kind-unknown",
                        f"nobody knows what the operator of {work.document.kind} makes of claims",
                    )
                    work.refuse(code, steps, f"{name} stays: {why}")
                    return
    if foreign and _mentions(work.document.value):
        work.refuse(foreign[0], (), foreign[1])


def _refuse_together(works: Sequence[Work]) -> None:
    """A runtime and its TrainJobs change together or not at all."""
    runtimes = {work.document.name: work for work in works if work.document.kind.endswith("TrainingRuntime")}
    for job in works:
        if job.document.kind != "TrainJob":
            continue
        reference = value_at(job.value, ("spec", "runtimeRef"))
        runtime = runtimes.get(str(reference.get("name"))) if isinstance(reference, dict) else None
        if runtime is not None and runtime.refused and _changed(job):
            job.refuse("trainjob-runtime", ("spec", "runtimeRef"), f"its runtime {runtime.document.name} is refused")


def _spread_templates(works: Sequence[Work]) -> None:
    """Templates of cluster-wide runtimes are needed in every namespace in which pods are made of them."""
    for work in works:
        if not cluster_scoped(work.document.value) or not work.generated:
            continue
        namespaces = [name for name in namespaces_of_runtime(work, works) if name]
        if namespaces:
            work.generated = [
                {**template, "metadata": {**template["metadata"], "namespace": namespace}}
                for namespace in namespaces
                for template in work.generated
            ]
        else:
            work.note(
                "manual",
                "template-namespaces",
                (),
                "pods of it are made in namespaces nobody named: apply its ResourceClaimTemplates in each",
            )


# -- what stands around --------------------------------------------------------------------------------------


def _convert_others(works: Sequence[Work], documents: Sequence[Document]) -> None:
    resources = queue_resources(documents)
    configured = bool([work for work in works if configure_kueue(work, resources)])
    for work in works:
        match work.document.kind:
            case "ResourceQuota":
                convert_quota(work, old_pods=_old_pods(work, works))
            case "LimitRange":
                convert_limit_range(work)
            case "ClusterQueue":
                convert_queue(work, resources, configured=configured)
            case _:
                if has_queries(work.document.value) and not known_kind(work.document.value):
                    convert_queries(work)


def _old_pods(quota: Work, works: Sequence[Work]) -> list[str]:
    return [
        work.document.reference
        for work in works
        if work.refused
        and work.namespace == quota.namespace
        and _mentions(work.document.value)
        and list(pod_templates(work.document))
    ]


def _autoscaling(work: Work, converted: set[tuple[str, str, str]]) -> None:
    why = _AUTOSCALERS.get(work.document.kind)
    spec = work.value.get("spec")
    target = (spec.get("scaleTargetRef") or spec.get("targetRef")) if isinstance(spec, dict) else None
    if why and isinstance(target, dict):
        if (str(target.get("kind")), work.namespace, str(target.get("name"))) in converted:
            work.note(
                "manual",
                "autoscaler",
                ("spec",),
                f"scales {target.get('kind')} {target.get('name')}, which has claims now: {why}",
            )
        return
    annotations = work.document.metadata.get("annotations")
    if isinstance(annotations, dict) and f"{_CAPACITY}gpu-count" in annotations and work.settings.to == "claims":
        key = f"{_CAPACITY}dra-driver"
        if key not in annotations:
            work.value["metadata"]["annotations"][key] = "gpu.nvidia.com"
            work.note(
                "changed",
                "autoscaler-capacity",
                ("metadata", "annotations"),
                f"{key} lets the autoscaler start the first node for claims",
            )
    if (
        work.document.kind in ("NodePool", "Provisioner")
        and "karpenter" in work.document.group
        and _mentions(work.value)
    ):
        work.note(
            "manual",
            "karpenter",
            ("spec",),
            "Karpenter ignores pods with claims unless its settings.enableDRA is on; its limits do not count claims",
        )


def _what_is_left(work: Work) -> None:
    """The old names that are still there, where no note says so."""
    if (
        work.refused
        or work.settings.to != "claims"
        or work.document.kind in ("Node", "DeviceClass", "ClusterQueue", "ResourceSlice")
    ):
        return
    noted = [note.steps for note in work.notes]
    for steps, name in _names(work.value, ()):
        if not any(steps[: len(each)] == each or each[: len(steps)] == steps for each in noted if each):
            work.note(
                "manual",
                "still-mentioned",
                steps,
                f"{name} is still named here: decide what it means without the device plugin",
            )


def _names(value: Any, steps: Steps) -> Iterator[tuple[Steps, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if _is_device(str(key)) and steps[-1:] != ("labels",):
                yield (*steps, key), str(key)
            yield from _names(inner, (*steps, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _names(inner, (*steps, number))
    elif isinstance(value, str) and _is_device(value) and steps[-1:] != ("key",):
        yield steps, value


def _is_device(name: str) -> bool:
    bare = name.removeprefix("requests.").removeprefix("limits.").removesuffix(".shared")
    return bare.startswith(PREFIX) and device_type(bare) is not None


def _mentions(value: Any) -> bool:
    return any(True for _ in _names(value, ())) or (isinstance(value, str) and PREFIX in value)


# -- the end -------------------------------------------------------------------------------------------------


def _finished(work: Work) -> ObjectPlan:
    if not _chosen(work):
        note = Note(
            "kept",
            "other-namespace",
            (),
            f"namespace {work.namespace} is not converted yet: its pods stay on nodes with the device plugin",
        )
        return ObjectPlan(work.document, work.document.value, (note,) if _mentions(work.document.value) else ())
    notes = tuple(sorted(work.notes, key=lambda note: VERDICTS.index(note.verdict)))
    if work.refused:
        return ObjectPlan(
            work.document, work.document.value, tuple(note for note in notes if note.verdict == "refused")
        )
    return ObjectPlan(work.document, work.value, notes, tuple(work.generated))


def _advice(works: Sequence[Work], settings: Settings, known: Recorded) -> Iterator[str]:
    """What holds for the whole migration."""
    if not any(_changed(work) or work.generated or work.classes for work in works):
        return
    yield (
        "no node may serve a GPU from both sides: move nodes one by one from the device plugin to the DRA driver"
        " (drain, relabel)"
    )
    if settings.to == "extended-resource" and release(settings.kubernetes) < (1, 36):
        yield (
            f"Kubernetes {settings.kubernetes} has DRAExtendedResource off: switch it on in API server, scheduler,"
            " controllers and kubelets"
        )
    if any(work.document.kind in ("Deployment", "StatefulSet", "DaemonSet") and _changed(work) for work in works):
        yield "a rollout needs devices for new pods while old ones hold theirs: `drakkar migrate verify` tries it"
    yield (
        "the cluster autoscaler starts a first node for claims only where the provider publishes slices for it (GCE,"
        " Cluster API)"
    )
    if not known.known:
        yield "nothing is known of the cluster (--on): what labels and resources mean was taken from NVIDIA's defaults"
