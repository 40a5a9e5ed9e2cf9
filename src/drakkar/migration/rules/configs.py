"""Opaque configuration: what the driver refuses when it prepares, which is long after the object was accepted.

The driver's own strict decoder reads it, so that this review and preparation never disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from drakkar.drivers.gpu.configs import decode
from drakkar.drivers.kit import PreparationError
from drakkar.migration.documents import Document, Steps
from drakkar.migration.drivers import drivers
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_DRIVER: Final = "gpu.nvidia.com"
_FIELDS: Final = (
    "sharing", "strategy", "timeSlicingConfig", "mpsConfig", "interval", "defaultActiveThreadPercentage",
    "defaultPinnedDeviceMemoryLimit", "defaultPerDevicePinnedMemoryLimit", "multiUser", "iommu", "backendPolicy",
    "enableAPIDevice",
)  # fmt: skip


@rule("configs")
def parameters(review: Review) -> Iterator[Finding]:
    """Parameters for the GPU driver, in claims and classes."""
    for claim in review.claims:
        for steps, entry in claim.configs():
            yield from _check(review, claim.document, steps, entry)
    for document in review.kind("DeviceClass"):
        entries = document.at(("spec", "config"))
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                yield from _check(review, document, ("spec", "config", number), entry)


def _check(review: Review, document: Document, steps: Steps, entry: Mapping[str, Any]) -> Iterator[Finding]:
    opaque = entry.get("opaque")
    if not isinstance(opaque, dict) or opaque.get("driver") != _DRIVER or "parameters" not in opaque:
        return
    place = (*steps, "opaque", "parameters")
    content = opaque["parameters"]
    try:
        config = decode(content, "$")
    except PreparationError as error:
        yield _refused(document, place, error)
        return
    except TypeError as error:  # a list or object where the decoder looks a word up
        message = f"the driver cannot decode this configuration: a value has another type than it needs ({error})"
        yield document.finding("config-unknown-field", place, message)
        return
    gates = drivers()[_DRIVER]
    for field, value, gate in (
        (("sharing", "strategy"), config.strategy, gates.gate_of_strategy.get(config.strategy)),
        (("kind",), config.kind, gates.gate_of_config.get(config.kind)),
    ):
        if gate and _off(review, gate):
            yield document.finding(
                "config-gate-missing",
                (*place, *field),
                f"{value} needs the driver's feature gate {gate}, which is off: preparing the claim fails",
                f"featureGates: {{{gate}: true}} in the driver's values",
            )


def _refused(document: Document, place: Steps, error: PreparationError) -> Finding:
    inner = tuple(re.findall(r"\.([^.\[\]]+)|\[([^\]]+)\]", error.subject.removeprefix("$")))
    steps: Steps = (*place, *(name or key for name, key in inner))
    problem = error.message.partition(": ")[2] or error.message
    expected = f"; expected {error.expected}" if error.expected else ""
    return document.finding(
        "config-unknown-field",
        steps,
        "the driver decodes its configuration strictly and refuses this when it prepares the claim:"
        f" {problem}{expected}"
        f"{_near(str(steps[-1]), problem)}",
    )


def _near(name: str, problem: str) -> str:
    if "unknown field" not in problem:
        return ""
    from difflib import get_close_matches

    near = get_close_matches(name, _FIELDS, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _off(review: Review, gate: str) -> bool:
    """Whether the input installs the driver without the gate; without the driver's values nobody knows."""
    charts = review.chart("dra")
    return bool(charts) and not any(values.get("featureGates", gate) is True for values in charts)
