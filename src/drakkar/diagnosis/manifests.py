"""What is about to be applied and would be refused or silently changed: checked before anything else.

Only what a server of the recorded version certainly refuses or drops is named; everything softer is lint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from drakkar.diagnosis.funnel import requests_of
from drakkar.diagnosis.verdict import Evidence, Finding
from drakkar.evidence.snapshot import Manifest, Snapshot, reference

__all__ = ["findings"]

Object = dict[str, Any]

_TEMPLATE_PATHS: Final = {
    "Pod": (),
    "Deployment": ("spec", "template"), "ReplicaSet": ("spec", "template"), "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"), "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}  # fmt: skip


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Manifests that a server would refuse or change."""
    for manifest in snapshot.manifests:
        yield from _claim_source(manifest)
        yield from _selectors(manifest)


def _claim_source(manifest: Manifest) -> Iterator[Finding]:
    """``resourceClaims[].source`` was flattened in Kubernetes 1.31; the wrapper is dropped as an unknown field."""
    path = _TEMPLATE_PATHS.get(manifest.object.get("kind", ""))
    if path is None:
        return
    template: Any = manifest.object
    for step in path:
        template = (template or {}).get(step) or {}
    for number, entry in enumerate((template.get("spec") or {}).get("resourceClaims") or ()):
        source = entry.get("source")
        if not isinstance(source, dict):
            continue
        names = ", ".join(f"{key}: {value}" for key, value in source.items())
        field = ".".join([*path, "spec", f"resourceClaims[{number}]"])
        yield Finding(
            "manifest-invalid",
            reference(manifest.object),
            f"{reference(manifest.object)} wraps its claim in `source`, a field that no longer exists:"
            " the server refuses or drops it",
            (
                Evidence(f"source: {{{names}}}", f"{manifest.file} (document at line {manifest.line}) {field}.source"),
                Evidence("since Kubernetes 1.31: resourceClaimName or resourceClaimTemplateName directly in the entry"),
            ),
            f"write `{names}` in place of `source:`",
        )


def _selectors(manifest: Manifest) -> Iterator[Finding]:
    kind = manifest.object.get("kind")
    spec = manifest.object.get("spec") or {}
    expressions: list[str] = []
    if kind in ("ResourceClaim", "ResourceClaimTemplate"):
        devices = (spec if kind == "ResourceClaim" else spec.get("spec") or {}).get("devices") or {}
        expressions = [text for request in requests_of(devices) for text in request.expressions]
    elif kind == "DeviceClass":
        expressions = [
            text for selector in spec.get("selectors") or () if (text := (selector.get("cel") or {}).get("expression"))
        ]
    if not expressions:
        return
    from drakkar.cel import CelError, device_environment

    environment = device_environment(mode="new")
    for text in expressions:
        try:
            environment.compile(text)
        except CelError as error:
            yield Finding(
                "selector-invalid",
                reference(manifest.object),
                f"the server refuses {reference(manifest.object)}: its selector `{text}` does not compile",
                (
                    Evidence(text, f"{manifest.file} (document at line {manifest.line})"),
                    Evidence(str(error)),
                ),
                "compare quantities with compareTo, isGreaterThan or isLessThan; correct the expression",
            )
