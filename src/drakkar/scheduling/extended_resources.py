"""Extended resources that device classes provide (KEP-5004).

A pod that asks for ``nvidia.com/gpu: 2`` in the old way gets devices through a claim that the scheduler makes for it,
when a DeviceClass names that resource and the node does not offer it through a device plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drakkar.scheduling.requests import amount, is_extended

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IN_MEMORY_NAME = "<extended-resources>"


class ClassNames:
    """Which device class stands behind an extended resource name."""

    def __init__(self, classes: Iterable[Mapping[str, Any]]) -> None:
        self._explicit: dict[str, str] = {}
        self._resources: dict[str, str] = {}
        self._names: set[str] = set()
        # Of several classes with one resource name the newest counts, then the lexically first.
        ordered = sorted(classes, key=lambda one: one["metadata"]["name"], reverse=True)
        for one in sorted(ordered, key=lambda one: one["metadata"].get("creationTimestamp") or ""):
            self._names.add(one["metadata"]["name"])
            resource = (one.get("spec") or {}).get("extendedResourceName")
            if resource:
                self._explicit[resource] = one["metadata"]["name"]
                self._resources[one["metadata"]["name"]] = resource

    def resource_of(self, class_name: str) -> str | None:
        """The extended resource that the class names itself, whether or not another class provides it."""
        return self._resources.get(class_name)

    def class_of(self, resource: str) -> str | None:
        """The class name, or None if no class provides `resource`."""
        if resource.startswith(IMPLICIT_PREFIX):
            name = resource.removeprefix(IMPLICIT_PREFIX)
            return name if name in self._names else None
        return self._explicit.get(resource)

    def backed(self, resources: Iterable[str]) -> frozenset[str]:
        """Those of `resources` that a class provides."""
        return frozenset(one for one in resources if is_extended(one) and self.class_of(one) is not None)


@dataclass(slots=True)
class ExtendedRequests:
    """The requests of the special claim and which container and resource each stands for."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    mappings: list[dict[str, str]] = field(default_factory=list)


def extended_requests(spec: Mapping[str, Any], allocatable: Mapping[str, int], classes: ClassNames) -> ExtendedRequests:
    """Device requests for what the pod asks of device classes on a node with these `allocatable` resources.

    Containers and sidecars get devices of their own. Init containers that end use those of the containers after them,
    and what one of them needs beyond that it shares with the others: the largest such request stands for all.
    """
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    asked = [_asked(container) for container in containers]
    inits = len(spec.get("initContainers") or ())
    passing = [index < inits and one.get("restartPolicy") != "Always" for index, one in enumerate(containers)]
    found = ExtendedRequests()
    for resource in sorted({name for one in asked for name in one}):
        class_name = classes.class_of(resource) if is_extended(resource) else None
        if class_name is None or resource in allocatable:
            continue
        own: list[_Own | None] = [
            None if passing[index] else _Own.of(index, one, resource, 0) for index, one in enumerate(asked)
        ]
        mapped = [(index, one.name) for index, one in enumerate(own) if one is not None]
        extra: list[tuple[int, _Own]] = []
        for index in (index for index, passes in enumerate(passing) if passes):
            needed, covered = amount(resource, asked[index].get(resource, 0)), 0
            for one in own[index:]:
                if one is not None and covered < needed:
                    covered += one.count
                    mapped.append((index, one.name))
            more = _Own.of(index, asked[index], resource, covered)
            if more is not None:
                extra.append((len(mapped), more))
                mapped.append((index, more.name))
        if extra:
            largest = max((one for _, one in extra), key=lambda one: one.count)  # the first of several
            for place, _ in extra:
                mapped[place] = mapped[place][0], largest.name
            own.append(largest)
        for one in own:
            if one is not None:
                exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": one.count}
                found.requests.append({"name": one.name, "exactly": exactly})
        found.mappings += [
            {"containerName": containers[index]["name"], "resourceName": resource, "requestName": name}
            for index, name in mapped
        ]
    found.requests.sort(key=lambda one: one["name"])
    return found


@dataclass(frozen=True, slots=True)
class _Own:
    """A request of one container for one resource."""

    name: str
    count: int

    @classmethod
    def of(cls, index: int, asked: Mapping[str, Any], resource: str, covered: int) -> _Own | None:
        """The request for what is asked beyond `covered`; None if that is nothing."""
        count = amount(resource, asked.get(resource, 0)) - covered
        return cls(f"container-{index}-request-{sorted(asked).index(resource)}", count) if count > 0 else None


def _asked(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def is_special(claim: Mapping[str, Any]) -> bool:
    """Whether the claim stands for extended resources of a pod."""
    return (claim["metadata"].get("annotations") or {}).get(ANNOTATION) == "true"


def special_owner(claim: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference to the pod whose extended resources the claim stands for; None for ordinary claims."""
    owners = (claim["metadata"].get("ownerReferences") or ()) if is_special(claim) else ()
    return next((one for one in owners if one.get("controller")), None)


def special_claim(pod: Mapping[str, Any], requests: list[dict[str, Any]], name: str = "") -> dict[str, Any]:
    """The claim object for these requests: named only while it lives in memory, generated names otherwise."""
    metadata = pod["metadata"]
    identity = {"name": name} if name else {"generateName": metadata["name"] + "-extended-resources-"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            **identity,
            "namespace": metadata["namespace"],
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"devices": {"requests": requests}},
    }
