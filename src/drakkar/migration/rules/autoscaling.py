"""Autoscalers that do not see claims, and so never add a node for a pod that waits for a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drakkar.migration.context import release
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_IMAGE: Final = "/cluster-autoscaler"
_FIRST: Final = (1, 35)


@rule("autoscaling")
def cluster_autoscaler(review: Review) -> Iterator[Finding]:
    """cluster-autoscaler before 1.35."""
    if not review.claims and not any(pod.claims for pod in review.pods):
        return
    for pod in review.pods:
        for container in pod.containers:
            name, _, tag = container.image.partition("@")[0].rpartition(":")
            version = release(tag)
            if f"/{name}".endswith(_IMAGE) and version and version < _FIRST:
                yield pod.document.finding(
                    "autoscaler-ignores-claims",
                    (*container.steps, "image"),
                    f"cluster-autoscaler {tag} does not take claims into account, so it adds no node for a pod that"
                    " waits for"
                    " a device; 1.35 does",
                )


@rule("autoscaling")
def karpenter(review: Review) -> Iterator[Finding]:
    """Karpenter ignores claims unless told otherwise."""
    if not review.claims and not any(pod.claims for pod in review.pods):
        return
    for values in review.chart("karpenter"):
        settings = values.mapping("settings")
        told = settings.get("ignoreDRARequests")
        if told is False or (told is None and settings.get("enableDRA") is True):
            continue
        field = next((name for name in ("ignoreDRARequests", "enableDRA") if name in settings), "")
        steps = ("settings", field) if field else ("settings",) if settings else ()
        yield values.finding(
            "autoscaler-ignores-claims",
            steps,
            "Karpenter ignores claims by default (ignoreDRARequests), so it adds no node for a pod that waits for a"
            " device;"
            " its AWS provider has settings.enableDRA from 1.15 (alpha)",
        )
