"""Routes and rules on event texts that Kubernetes never prints.

A route on a wrong text is silent for ever. What components print about claims is listed here by reason; a pattern about
devices or claims that fits none of it is reported, and so are phrases known from articles wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from drakkar.kube import yamltext
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_PRINTED: Final = {
    "FailedScheduling": (
        "0/3 nodes are available: 1 cannot allocate all claims, 2 node(s) had untolerated taint"
        " {nvidia.com/gpu: present}."
        " still not schedulable, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        "0/3 nodes are available: 3 resourceclaim not available on the node.",
        "0/3 nodes are available: 3 timed out trying to allocate devices.",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "0/3 nodes are available: 3 cannot fit resource.",
        "waiting for dynamic resource controller to create the resourceclaim \"train-gpu\"",
        "resourceclaim \"train-gpu\" is being deleted",
        "resourceclaim in use",
        "request gpu: device class gpu.nvidia.com does not exist",
        "no new claims to deallocate",
        "deallocation of ResourceClaim completed",
        "device binding timeout",
        "claim default/train, request gpu: selector #0: CEL runtime error: no such key: profile",
    ),
    "FailedPrepareDynamicResources": (
        "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed: rpc error",
        "Failed to prepare dynamic resources: NodePrepareResources failed for ResourceClaim train: error preparing"
        " devices",
        "Failed to prepare dynamic resources: DRA driver gpu.nvidia.com is not registered",
        "NodePrepareResources skipped 1 ResourceClaims",
    ),
    "FailedResourceClaimCreation": ("PodResourceClaim gpu: resourceclaimtemplate not found",),
    "Failed": ("Error: failed to create containerd task: CDI device injection failed: unresolvable CDI devices x",),
}  # fmt: skip
_ABOUT: Final = re.compile(r"device|claim|selector|allocat|\bdra\b", re.IGNORECASE)
_NEVER: Final = ("no devices match selector", "no device matches selector", "no matching devices", "no devices matched")
_RIGHT: Final = "cannot allocate all claims"


@rule("events")
def event_texts(review: Review) -> Iterator[Finding]:
    """Texts in routes of event exporters, and in rules over events."""
    for document in review.kind("ConfigMap"):
        data = document.value.get("data")
        for key, text in data.items() if isinstance(data, dict) else ():
            wrong = _wrong(text) if isinstance(text, str) else ""
            if wrong:
                yield document.finding("event-text-unknown", ("data", key), _message(wrong))
    for document in review.kind("PrometheusRule"):
        groups = document.at(("spec", "groups"))
        for number, group in enumerate(groups if isinstance(groups, list) else ()):
            rules = group.get("rules") if isinstance(group, dict) else None
            for place, entry in enumerate(rules if isinstance(rules, list) else ()):
                expression = entry.get("expr") if isinstance(entry, dict) else None
                wrong = _known_phrase(str(expression))
                if wrong:
                    steps = ("spec", "groups", number, "rules", place, "expr")
                    yield document.finding("event-text-unknown", steps, _message(wrong))


def _message(wrong: str) -> str:
    right = f"a pod without devices gets FailedScheduling with {_RIGHT!r}"
    return f"Kubernetes never prints {wrong!r}, so this never matches; {right}"


def _known_phrase(text: str) -> str:
    return next((phrase for phrase in _NEVER if phrase in text.lower()), "")


def _wrong(text: str) -> str:
    phrase = _known_phrase(text)
    if phrase or "reason" not in text:
        return phrase
    try:
        return next(_unprinted(yamltext.load(text)), "")
    except yamltext.YamlError:
        return ""


def _unprinted(value: Any) -> Iterator[str]:
    """Patterns beside a reason that match nothing the reason is printed with."""
    if isinstance(value, list):
        for item in value:
            yield from _unprinted(item)
    elif isinstance(value, dict):
        reason, message = value.get("reason"), value.get("message")
        texts = _PRINTED.get(reason, ()) if isinstance(reason, str) else ()
        if isinstance(message, str) and texts and _ABOUT.search(message) and not _matches(message, texts):
            yield message
        for inner in value.values():
            yield from _unprinted(inner)


def _matches(pattern: str, texts: tuple[str, ...]) -> bool:
    import re2  # patterns come from files: no backtracking

    try:
        compiled = re2.compile(pattern)
    except re2.error:
        return True
    return any(compiled.search(text) for text in texts)
