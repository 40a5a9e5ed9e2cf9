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
        self._names: set[str] = set()
        # Of several classes with one resource name the newest counts, then the lexically first.
        ordered = sorted(classes, key=lambda one: one["metadata"]["name"], reverse=True)
        for one in sorted(ordered, key=lambda one: one["metadata"].get("creationTimestamp") or ""):
            self._names.add(one["metadata"]["name"])
            resource = (one.get("spec") or {}).get("extendedResourceName")
            if resource:
                self._explicit[resource] = one["metadata"]["name"]

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
    """Device requests for what the pod asks of device classes on a node with these `allocatable` resources."""
    found = ExtendedRequests()
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for index, container in enumerate(containers):
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for position, resource in enumerate(sorted(asked)):
            class_name = classes.class_of(resource) if is_extended(resource) else None
            count = amount(resource, asked[resource])
            if class_name is None or resource in allocatable or not count:
                continue
            name = f"container-{index}-request-{position}"
            exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
            found.requests.append({"name": name, "exactly": exactly})
            found.mappings.append({"containerName": container["name"], "resourceName": resource, "requestName": name})
    return found


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
