"""Quotas and LimitRanges that were made for counted GPUs, and limits that nobody serves any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drakkar.migration.claims import Claim
from drakkar.migration.documents import Document
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule
from drakkar.migration.rules.pods import GPU_RESOURCES

_PER_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_OBJECTS: Final = ("count/resourceclaims.resource.k8s.io", "count/resourceclaimtemplates.resource.k8s.io")


@rule("quotas")
def counts_objects(review: Review) -> Iterator[Finding]:
    """A quota on claim objects."""
    for document in review.kind("ResourceQuota"):
        hard = document.at(("spec", "hard"))
        hard = hard if isinstance(hard, dict) else {}
        if any(key.endswith(_PER_CLASS) for key in hard):
            continue
        for key in _OBJECTS:
            if key in hard:
                yield document.finding(
                    "quota-counts-objects",
                    ("spec", "hard", key),
                    f"{key} counts objects: one claim may hold 32 devices; devices are limited per class with"
                    f" gpu.nvidia.com{_PER_CLASS}",
                )


@rule("quotas")
def not_charged(review: Review) -> Iterator[Finding]:
    """A quota on an extended resource, in a namespace whose pods use claims."""
    for document in review.kind("ResourceQuota"):
        hard = document.at(("spec", "hard"))
        for key in hard if isinstance(hard, dict) else ():
            resource = key.removeprefix("requests.")
            if resource == key or not resource.startswith(GPU_RESOURCES):
                continue
            classes = _classes(review, document, resource)
            if not classes or any(_charges(review, name, resource) for name in classes):
                continue
            name = sorted(classes)[0]
            why = (
                f"needs DRAExtendedResource, off by default in Kubernetes {review.context.kubernetes}"
                if not review.gate("DRAExtendedResource")
                else f"needs a class with extendedResourceName: {resource}"
            )
            yield document.finding(
                "quota-extended-resource-not-charged",
                ("spec", "hard", key),
                f"claims are not charged to {key} ({why}), so this limits nothing for pods with claims; add"
                f" {name}{_PER_CLASS}",
                f"{name}{_PER_CLASS}: {hard[key]!r}",
            )


def _classes(review: Review, quota: Document, resource: str) -> set[str]:
    """Classes of the claims in the quota's namespace that stand for this resource."""
    wanted = "mig" if "/mig-" in resource else "gpu"
    return {
        request.class_name
        for claim in review.claims
        if _beside(claim, quota)
        for request in claim.requests()
        if any(
            kind.driver == "gpu.nvidia.com" and kind.type == wanted for kind in review.device_kinds(request.class_name)
        )
    }


def _beside(claim: Claim, document: Document) -> bool:
    namespaces = claim.document.namespace, document.namespace
    return "" in namespaces or namespaces[0] == namespaces[1]


def _charges(review: Review, class_name: str, resource: str) -> bool:
    """Whether claims of the class count for the resource; the class of the driver's chart maps to nvidia.com/gpu."""
    if not review.gate("DRAExtendedResource"):
        return False
    mapped = review.extended_resource(class_name)
    if mapped is None:
        return class_name == "gpu.nvidia.com" and resource == "nvidia.com/gpu" and not review.kind("GPUCluster")
    return mapped == resource


@rule("quotas")
def limit_range(review: Review) -> Iterator[Finding]:
    """A default for containers that use claims already."""
    for document in review.kind("LimitRange"):
        limits = document.at(("spec", "limits"))
        for number, entry in enumerate(limits if isinstance(limits, list) else ()):
            if not isinstance(entry, dict) or entry.get("type", "Container") != "Container":
                continue
            for part in ("default", "defaultRequest"):
                values = entry.get(part)
                names = [name for name in values if name.startswith(GPU_RESOURCES)] if isinstance(values, dict) else []
                if names and _users(review, document):
                    yield document.finding(
                        "limitrange-adds-gpu",
                        ("spec", "limits", number, part, names[0]),
                        f"the LimitRange adds {names[0]} to every container that names none, so"
                        f" {', '.join(_users(review, document))} would ask for a GPU twice: by claim and by limit",
                    )
                    break


def _users(review: Review, document: Document) -> list[str]:
    found = []
    for pod in review.pods:
        if "" not in (pod.document.namespace, document.namespace) and pod.document.namespace != document.namespace:
            continue
        gpus = {entry.name for entry in review.gpu_claims(pod, unknown=True)}
        if gpus and pod.document.reference not in found:
            found.append(pod.document.reference)
    return found


@rule("quotas")
def nobody_serves(review: Review) -> Iterator[Finding]:
    """Limits in a cluster whose device plugin is off and whose driver does not serve extended resources."""
    operators = review.chart("operator")
    if not operators or any(values.get("devicePlugin", "enabled") is not False for values in operators):
        return
    if not review.chart("dra") and not review.kind("GPUCluster"):
        return
    for pod in review.pods:
        for container in pod.containers:
            for steps, resource in container.extended():
                if resource.startswith(GPU_RESOURCES) and not _served(review, resource):
                    yield pod.document.finding(
                        "limits-without-provider",
                        steps,
                        f"nothing serves {resource}: the device plugin is off in these values, and"
                        f" {_missing(review, resource)}; the pod stays Pending; use a claim",
                    )


def _served(review: Review, resource: str) -> bool:
    if not review.gate("DRAExtendedResource") or not review.dra_serves_gpus:
        return False
    mapped = [review.extended_resource(name) for name in review.classes]
    if resource in mapped:
        return True
    return resource == "nvidia.com/gpu" and _charges(review, "gpu.nvidia.com", resource)


def _missing(review: Review, resource: str) -> str:
    if not review.dra_serves_gpus:
        return "the DRA driver does not serve GPUs in these values either"
    if not review.gate("DRAExtendedResource"):
        return f"Kubernetes {review.context.kubernetes} has DRAExtendedResource off (on from 1.36)"
    return f"no DeviceClass has extendedResourceName: {resource}"
