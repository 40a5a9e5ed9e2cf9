"""ComputeDomains: images whose NCCL is too old to use the fabric (multi-node NVLink needs 2.25)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from drakkar.migration.findings import Finding
from drakkar.migration.pods import Container, PodTemplate
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_ENOUGH: Final = (2, 25)
_RELEASE: Final = re.compile(r"(?:^|/)nvidia/(?:pytorch|tensorflow|jax|nemo)[^:@]*:(\d{2})\.(\d{2})(?![\d.])")
_FIRST: Final = (25, 1)
"""The first monthly release of NVIDIA's framework images that has NCCL 2.25."""
_NAMED: Final = re.compile(r"nccl[-_:]?(?:tests[-_:]?)?v?(\d+)\.(\d+)", re.IGNORECASE)


@rule("fabrics")
def nccl(review: Review) -> Iterator[Finding]:
    """Images and variables that name an NCCL version, in pods of a ComputeDomain."""
    for pod in review.pods:
        if not _in_domain(review, pod):
            continue
        for container in pod.containers:
            told = _too_old(container)
            if told:
                yield pod.document.finding(
                    "nccl-too-old",
                    (*container.steps, "image"),
                    f"{told}: before NCCL 2.25 jobs do not use the NVLink fabric of their ComputeDomain, and fall back"
                    " to the network",
                )


def _in_domain(review: Review, pod: PodTemplate) -> bool:
    return any("compute-domain.nvidia.com" in (review.drivers(pod, entry) or ()) for entry in pod.claims)


def _too_old(container: Container) -> str:
    image = container.image
    release = _RELEASE.search(image)
    if release and (int(release[1]), int(release[2])) < _FIRST:
        return f"the image of {release[1]}.{release[2]} has an NCCL older than 2.25"
    named = _NAMED.search(image)
    if named and (int(named[1]), int(named[2])) < _ENOUGH:
        return f"the image has NCCL {named[1]}.{named[2]}"
    for _, name, value in container.environment():
        match = re.match(r"(\d+)\.(\d+)", value) if name == "NCCL_VERSION" else None
        if match and (int(match[1]), int(match[2])) < _ENOUGH:
            return f"NCCL_VERSION is {value}"
    return ""
