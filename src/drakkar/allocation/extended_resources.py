"""Extended resources that device classes provide (KEP-5004): old pods ask for `nvidia.com/gpu: 2`, a claim is made.

The scheduler makes one special claim per pod with one request per container and resource, named
`container-<i>-request-<j>`: i counts init containers before containers, j is the place of the resource among the
container's sorted resource names. A device plugin that offers the resource on the node wins.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from drakkar.kube.quantity import Quantity

Json = dict[str, Any]

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"


class Mapped(NamedTuple):
    """One container's extended resource and the request that stands for it."""

    container: str
    resource: str
    request: str
    class_name: str
    devices: int


def class_for(resource: str, classes: Iterable[Mapping[str, Any]]) -> str | None:
    """The name of the class that provides a resource: by explicit name, or by its implicit one.

    Of several classes with the same explicit name the newest counts, then the first by name.
    """
    named = []
    for item in classes:
        metadata = item.get("metadata") or {}
        name = metadata.get("name") or ""
        if resource == IMPLICIT_PREFIX + name:
            return name
        if (item.get("spec") or {}).get("extendedResourceName") == resource:
            named.append((metadata.get("creationTimestamp") or "", name))
    if not named:
        return None
    newest = max(stamp for stamp, _ in named)
    return min(name for stamp, name in named if stamp == newest)


def mapped_resources(
    pod: Mapping[str, Any], classes: Iterable[Mapping[str, Any]], offered_by_plugins: Container[str] = ()
) -> list[Mapped]:
    """The extended resources of a pod (core/v1 JSON) that classes provide and no device plugin of the node offers."""
    known = list(classes)
    found = []
    for number, container in enumerate(_containers(pod)):
        wanted = _requests(container)
        for place, resource in enumerate(sorted(wanted)):
            if "/" not in resource or resource in offered_by_plugins:
                continue
            count = Quantity.from_json(wanted[resource]).value()
            class_name = class_for(resource, known)
            if class_name is not None and count > 0:
                request = f"container-{number}-request-{place}"
                found.append(Mapped(container.get("name", ""), resource, request, class_name, count))
    return found


def claim_spec(mapped: Iterable[Mapped]) -> Json:
    """The specification of the special claim."""
    return {
        "devices": {
            "requests": [
                {
                    "name": item.request,
                    "exactly": {
                        "deviceClassName": item.class_name,
                        "allocationMode": "ExactCount",
                        "count": item.devices,
                    },
                }
                for item in mapped
            ]
        }
    }


def special_claim(pod: Mapping[str, Any], mapped: Iterable[Mapped]) -> Json:
    """The ResourceClaim to create for a pod, owned by it; the API server completes the name."""
    metadata = pod.get("metadata") or {}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata.get("name", ""),
        "uid": metadata.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{metadata.get('name', '')}-extended-resources-",
            "namespace": metadata.get("namespace", ""),
            "annotations": {CLAIM_ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": claim_spec(mapped),
    }


def claim_status(claim_name: str, mapped: Iterable[Mapped]) -> Json:
    """`pod.status.extendedResourceClaimStatus` for the claim that was made."""
    return {
        "requestMappings": [
            {"containerName": item.container, "resourceName": item.resource, "requestName": item.request}
            for item in mapped
        ],
        "resourceClaimName": claim_name,
    }


def is_special(claim: Mapping[str, Any]) -> bool:
    """Whether a claim stands for a pod's extended resources."""
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(CLAIM_ANNOTATION) == "true")


def _containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    spec = pod.get("spec") or {}
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a container asks for; limits stand in where the API server has not defaulted requests yet."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
