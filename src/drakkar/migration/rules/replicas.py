"""Workloads of several pods: one claim for all of them, and templates that live elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule


@rule("replicas")
def shared_claim(review: Review) -> Iterator[Finding]:
    """Several replicas name one claim."""
    for pod in review.pods:
        if pod.replicas < 2:
            continue
        for entry in pod.claims:
            field, kind, name = entry.target
            if kind == "ResourceClaim" and field in entry.value:
                many = "the pods" if pod.document.kind == "DaemonSet" else f"all {pod.replicas} replicas"
                yield pod.document.finding(
                    "claim-shared-by-replicas",
                    (*entry.steps, field),
                    f"{many} use the one claim {name}: they share its devices and can run on its node only; for devices"
                    " of their own name a ResourceClaimTemplate in resourceClaimTemplateName",
                )


@rule("replicas")
def other_namespace(review: Review) -> Iterator[Finding]:
    """The template or claim exists in another namespace."""
    for pod in review.pods:
        own = pod.document.namespace
        for entry in pod.claims:
            field, kind, name = entry.target
            if not name or not own or field not in entry.value or review.claim(pod, entry) is not None:
                continue
            others = review.namespaces_of(kind, name)
            if others:
                yield pod.document.finding(
                    "template-other-namespace",
                    (*entry.steps, field),
                    f"{kind} {name} is in namespace {', '.join(others)}, the pods are in {own}: claims and templates"
                    " are"
                    " looked up in the pod's own namespace only",
                    f"create {kind} {name} in namespace {own}",
                )
