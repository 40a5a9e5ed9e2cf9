"""What a sandbox can run of a form: built-in workloads as they are, pods of operators from the table.

No operator runs, so the pods that it would make are made here. What has nothing to do with devices (volumes, priority
classes, accounts, images) goes from the copies of both forms: the sandbox has none of it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.kube.paths import value_at
from drakkar.migration.converting.workloads import known_kind, pod_places
from drakkar.migration.documents import Document
from drakkar.migration.verifying.fleets import Demand

__all__ = ["Form", "Template", "form_of"]

Object = dict[str, Any]
_BUILT_IN: Final = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
_OF_CONTAINER: Final = frozenset({"name", "image", "resources", "restartPolicy", "env"})
_POD_FIELDS: Final = frozenset({
    "containers", "initContainers", "resourceClaims", "nodeSelector", "affinity", "tolerations", "overhead",
})  # fmt: skip
MAX_PODS: Final = 64


@dataclass(frozen=True)
class Template:
    """One pod template of an object: the spec that the sandbox gets, and how many pods are made of it."""

    reference: str
    role: str
    namespace: str
    spec: Object
    labels: Mapping[str, str]
    replicas: int

    @property
    def key(self) -> str:
        """What both forms call it."""
        return f"{self.namespace}/{self.reference}" + (f" ({self.role})" if self.role else "")

    @property
    def demand(self) -> Demand:
        """What it asks of the device plugin."""
        found: dict[str, int] = {}
        for part in ("containers", "initContainers"):
            for container in self.spec.get(part) or ():
                for name, amount in (value_at(container, ("resources", "limits")) or {}).items():
                    if str(name).startswith("nvidia.com/") and str(amount).isdigit():
                        found[name] = found.get(name, 0) + int(amount)
        return Demand(self.spec, found, self.replicas)

    def pod(self, name: str) -> Object:
        """A pod of it."""
        metadata = {"name": name, "namespace": self.namespace, "labels": dict(self.labels)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(self.spec)}


@dataclass(frozen=True)
class Form:
    """One form of the manifests: templates, built-in workloads to roll out, and what stands around."""

    templates: tuple[Template, ...]
    workloads: tuple[Object, ...]
    claims: tuple[Object, ...]
    classes: tuple[Object, ...]
    quotas: tuple[Object, ...]

    @property
    def namespaces(self) -> set[str]:
        """Every namespace it needs."""
        objects = (*self.workloads, *self.claims, *self.quotas)
        return {template.namespace for template in self.templates} | {_namespace(obj) for obj in objects}


def form_of(documents: Sequence[Document], namespace: str) -> Form:
    """The form that these documents have. `namespace` is where those go that name none."""
    templates: list[Template] = []
    workloads, claims, classes, quotas = [], [], [], []
    values = [copy.deepcopy(document.value) for document in documents if not document.chart]
    jobs = [value for value in values if value.get("kind") == "TrainJob"]
    for document, value in zip([each for each in documents if not each.chart], values, strict=True):
        metadata = value.setdefault("metadata", {})
        if isinstance(metadata, dict) and value.get("kind") not in ("DeviceClass",):
            metadata["namespace"] = document.namespace or namespace
        match value.get("kind"):
            case "ResourceClaimTemplate" | "ResourceClaim":
                claims.append(_plain(value))
            case "DeviceClass":
                classes.append(_plain(value))
            case "ResourceQuota":
                quotas.append(_plain(value))
            case _ if known_kind(value):
                templates += _templates(document.reference, value, jobs, namespace)
                if value["kind"] in _BUILT_IN:
                    workloads.append(_runnable(value))
    return Form(tuple(templates), tuple(workloads), tuple(claims), tuple(classes), tuple(quotas))


def _plain(value: Object) -> Object:
    metadata = {key: inner for key, inner in value["metadata"].items() if key in ("name", "namespace", "labels")}
    return {**{key: inner for key, inner in value.items() if key != "status"}, "metadata": metadata}


def _namespace(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("namespace") or "default")


def _templates(reference: str, value: Object, jobs: Sequence[Object], namespace: str) -> Iterator[Template]:
    for place in pod_places(value):
        spec = _sandboxed(place.spec(value), place.extra)
        labels = value_at(value, (*place.steps, "metadata", "labels")) if place.steps else None
        own = {str(key): str(each) for key, each in labels.items()} if isinstance(labels, dict) else {}
        if not value["kind"].endswith("TrainingRuntime"):
            yield Template(reference, place.role, _namespace(value), spec, own, place.replicas)
            continue
        for job in jobs:
            if value_at(job, ("spec", "runtimeRef", "name")) == value["metadata"].get("name"):
                nodes = value_at(job, ("spec", "trainer", "numNodes"))
                count = nodes if type(nodes) is int else place.replicas
                of_job = _with_resources(spec, value_at(job, ("spec", "trainer", "resourcesPerNode")))
                name = f"TrainJob/{job['metadata'].get('name')}"
                yield Template(name, place.role, _namespace(job) or namespace, of_job, own, count)


def _with_resources(spec: Object, resources: Any) -> Object:
    """A runtime's pod with what a TrainJob sets for its trainer."""
    made = copy.deepcopy(spec)
    for container in made.get("containers") or ():
        if container.get("name") == "node" and isinstance(resources, dict):
            container["resources"] = {**(container.get("resources") or {}), **resources}
    return made


def _sandboxed(spec: Mapping[str, Any], extra: Sequence[str]) -> Object:
    made: Object = {key: copy.deepcopy(value) for key, value in spec.items() if key in _POD_FIELDS}
    made.setdefault("containers", [])
    for name in extra:
        if isinstance(spec.get(name), dict):
            made["containers"].append({**copy.deepcopy(spec[name]), "name": name})
    for part in ("containers", "initContainers"):
        if part in made:
            made[part] = [
                _container(each, number) for number, each in enumerate(made[part] or ()) if isinstance(each, dict)
            ]
    made["terminationGracePeriodSeconds"] = 0
    affinity = made.get("affinity")
    if isinstance(affinity, dict):
        made["affinity"] = {key: value for key, value in affinity.items() if key == "nodeAffinity"}
    made.pop("restartPolicy", None)
    return made


def _container(container: Mapping[str, Any], number: int) -> Object:
    made = {key: value for key, value in container.items() if key in _OF_CONTAINER}
    made.pop("env", None)
    name = re.sub(r"[^a-z0-9-]+", "-", str(made.get("name") or f"c{number}").lower()).strip("-")
    return {**made, "name": name or f"c{number}", "image": "pause"}


def _runnable(value: Object) -> Object:
    """A built-in workload with the sandbox's pods."""
    made = _plain(value)
    [place] = pod_places(made)
    made["spec"]["template"]["spec"] = _sandboxed(place.spec(made), place.extra)
    made["spec"].pop("volumeClaimTemplates", None)
    metadata = made["spec"]["template"].get("metadata") or {}
    selector = value_at(made, ("spec", "selector", "matchLabels"))
    if not isinstance(selector, dict):
        made["spec"]["selector"] = {"matchLabels": metadata.get("labels") or {"verify": "pods"}}
        selector = made["spec"]["selector"]["matchLabels"]
    made["spec"]["template"]["metadata"] = {"labels": {**selector, **(metadata.get("labels") or {})}}
    if made["kind"] == "StatefulSet":
        made["spec"].setdefault("serviceName", "verify")
    return made
