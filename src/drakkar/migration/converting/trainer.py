"""Kubeflow Trainer: a TrainJob sets resources, its runtime has the pods; claims belong to the runtime.

A TrainJob has no place for claims. So what its jobs ask for goes into the runtime that they name, if they all ask for
the same; `numProcPerNode` says what Trainer read from the limits (trainer#3540).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drakkar.kube.paths import value_at
from drakkar.migration.converting.devices import PREFIX, asked
from drakkar.migration.converting.placement import drop_empty
from drakkar.migration.converting.work import Object, Work
from drakkar.migration.converting.workloads import pod_places
from drakkar.migration.documents import Steps

__all__ = ["namespaces_of_runtime", "prepare_train_jobs"]

_RESOURCES: Final[Steps] = ("spec", "trainer", "resourcesPerNode")
_CONTAINER: Final = "node"


def prepare_train_jobs(works: Sequence[Work]) -> None:
    """Move what TrainJobs ask for into their runtimes, before these are converted."""
    wanted: dict[tuple[str, str, str], list[tuple[Work, dict[str, int]]]] = {}
    for work in works:
        if work.document.kind == "TrainJob" and work.settings.to == "claims":
            resources = value_at(work.value, _RESOURCES)
            devices = asked(work, _RESOURCES, resources) if isinstance(resources, dict) else {}
            wanted.setdefault(_runtime_of(work), []).append((work, devices))
    runtimes = {(work.document.kind, _place(work), work.document.name): work for work in works}
    for key, jobs in wanted.items():
        if any(devices for _, devices in jobs):
            _move(runtimes.get(key), key, jobs)


def namespaces_of_runtime(runtime: Work, works: Sequence[Work]) -> list[str]:
    """The namespaces of the TrainJobs that name a runtime of the whole cluster."""
    key = (runtime.document.kind, "", runtime.document.name)
    return sorted(
        {work.document.namespace for work in works if work.document.kind == "TrainJob" and _runtime_of(work) == key}
    )


def _place(work: Work) -> str:
    return "" if work.document.kind.startswith("Cluster") else work.namespace


def _runtime_of(work: Work) -> tuple[str, str, str]:
    reference = value_at(work.value, ("spec", "runtimeRef"))
    reference = reference if isinstance(reference, dict) else {}
    kind = str(reference.get("kind") or "ClusterTrainingRuntime")
    return kind, "" if kind.startswith("Cluster") else work.namespace, str(reference.get("name"))


def _move(runtime: Work | None, key: tuple[str, str, str], jobs: list[tuple[Work, dict[str, int]]]) -> None:
    asked_for = {tuple(sorted(devices.items())) for _, devices in jobs}
    container = _trainer_container(runtime) if runtime is not None else None
    problem = ""
    if runtime is None:
        problem = f"{key[0]} {key[2]} is not among the files, and a TrainJob has no place for claims"
    elif container is None:
        problem = f"{key[0]} {key[2]} has no container {_CONTAINER} that could hold the claim"
    elif len(asked_for) > 1:
        problem = (
            f"the TrainJobs of {key[0]} {key[2]} ask for different devices, and its template can have one claim only:"
            " a runtime for each"
        )
    for work, devices in jobs:
        if problem and devices:
            work.refuse("trainjob-runtime", _RESOURCES, problem)
        elif devices and not problem:
            _strip(work, devices, key[2])
    if not problem and container is not None:
        _, devices = jobs[0]
        limits = container.setdefault("resources", {}).setdefault("limits", {})
        limits.update({name: str(count) for name, count in devices.items()})


def _trainer_container(runtime: Work) -> Object | None:
    for place in pod_places(runtime.value):
        for part, _, container in place.containers(runtime.value):
            if part == "containers" and container.get("name") == _CONTAINER:
                return container
    return None


def _strip(work: Work, devices: dict[str, int], runtime: str) -> None:
    trainer: dict[str, Any] = work.value["spec"]["trainer"]
    resources = trainer["resourcesPerNode"]
    for part in ("limits", "requests"):
        listed = resources.get(part)
        for name in [name for name in listed if str(name).startswith(PREFIX)] if isinstance(listed, dict) else ():
            del listed[name]
        drop_empty(resources, part)
    drop_empty(trainer, "resourcesPerNode")
    total = sum(devices.values())
    work.note(
        "changed", "limits-to-claim", _RESOURCES, f"{total} devices per node become the claim of runtime {runtime}"
    )
    if "numProcPerNode" not in trainer:
        trainer["numProcPerNode"] = total
        work.note(
            "changed",
            "trainjob-processes",
            ("spec", "trainer"),
            f"numProcPerNode: {total} says what Trainer read from the limits",
        )
    else:
        work.note(
            "kept", "trainjob-processes", ("spec", "trainer", "numProcPerNode"), "numProcPerNode stays as written"
        )
