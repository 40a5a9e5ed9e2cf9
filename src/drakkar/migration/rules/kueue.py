"""Kueue: which claims it counts and which it does not admit (KueueDRAIntegration, Configuration v1beta2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from drakkar.kube import yamltext
from drakkar.migration.claims import Claim
from drakkar.migration.documents import Steps
from drakkar.migration.findings import Finding
from drakkar.migration.pods import PodTemplate
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_QUEUE: Final = "kueue.x-k8s.io/queue-name"


@rule("kueue")
def direct_claim(review: Review) -> Iterator[Finding]:
    """A queued workload with a claim of its own making."""
    for pod in _queued(review):
        for entry in pod.claims:
            field, kind, name = entry.target
            if kind == "ResourceClaim" and field in entry.value:
                yield pod.document.finding(
                    "kueue-direct-claim",
                    (*entry.steps, field),
                    f"Kueue counts claims made from templates only; the devices of claim {name} are not charged to"
                    " the queue:"
                    " use resourceClaimTemplateName",
                )


@rule("kueue")
def templates(review: Review) -> Iterator[Finding]:
    """Templates of queued workloads: what Kueue refuses, and classes it does not know."""
    mapped = _mapped_classes(review)
    seen: list[Claim] = []
    for pod in _queued(review):
        for entry in pod.claims:
            claim = review.claim(pod, entry)
            if claim is None or entry.target[1] != "ResourceClaimTemplate" or claim in seen:
                continue
            seen.append(claim)
            yield from _unsupported(claim)
            if mapped is not None:
                yield from _unmapped(claim, mapped)


def _queued(review: Review) -> Iterator[PodTemplate]:
    for pod in review.pods:
        beside = pod.document.at((*pod.steps[:-1], "metadata", "labels"))
        for labels in (pod.document.metadata.get("labels"), beside):
            if isinstance(labels, dict) and _QUEUE in labels:
                yield pod
                break


def _unsupported(claim: Claim) -> Iterator[Finding]:
    places: list[tuple[Steps, str]] = [
        ((*claim.steps, name), name) for name in ("constraints", "config") if claim.devices.get(name)
    ]
    for steps, entry in claim.entries():
        if "firstAvailable" in entry:
            places.append(((*steps, "firstAvailable"), "alternatives (firstAvailable)"))
    for request in claim.requests():
        if request.value.get("adminAccess"):
            places.append(((*request.steps, "adminAccess"), "adminAccess"))
        if request.all:
            places.append(((*request.steps, "allocationMode"), "allocationMode All"))
    for steps, what in places:
        yield claim.document.finding(
            "kueue-unsupported-claim",
            steps,
            f"Kueue does not admit workloads whose claims have {what}: it takes `exactly` with ExactCount, without"
            " constraints, configuration, alternatives or admin access",
        )


def _unmapped(claim: Claim, mapped: set[str]) -> Iterator[Finding]:
    for request in claim.requests():
        if request.class_name and request.class_name not in mapped:
            yield claim.document.finding(
                "kueue-class-unmapped",
                (*request.steps, "deviceClassName"),
                f"DeviceClass {request.class_name} is not mapped in Kueue's resources.deviceClassMappings (mapped:"
                f" {', '.join(sorted(mapped)) or 'none'}), so Kueue does not admit the workload",
            )


def _mapped_classes(review: Review) -> set[str] | None:
    """The classes that Kueue's configuration maps; None if the input has no configuration of Kueue."""
    found: set[str] | None = None
    for document in review.documents:
        for configuration in _configurations(document.kind, document.group, document.value):
            resources = configuration.get("resources")
            mappings = resources.get("deviceClassMappings") if isinstance(resources, dict) else None
            found = found or set()
            for mapping in mappings if isinstance(mappings, list) else ():
                names = mapping.get("deviceClassNames") if isinstance(mapping, dict) else None
                found |= {str(name) for name in (names if isinstance(names, list) else ())}
    return found


def _configurations(kind: str, group: str, value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if kind == "Configuration" and group == "config.kueue.x-k8s.io":
        yield value
    elif kind == "ConfigMap":
        data = value.get("data")
        for text in data.values() if isinstance(data, dict) else ():
            if isinstance(text, str) and "config.kueue.x-k8s.io" in text:
                yield _parsed(text)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Mapping[str, Any]:
    try:
        value = yamltext.load(text)
    except yamltext.YamlError:
        return {}
    return value if isinstance(value, dict) else {}
