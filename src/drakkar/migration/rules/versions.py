"""What the target version does not serve, does not enable yet, or has locked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from drakkar.migration.context import kubernetes
from drakkar.migration.documents import Document, Steps
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_PODRESOURCES: Final = "KubeletPodResourcesDynamicResources"
_DRIVER_GATES: Final = {
    "DynamicMIG": "DRAPartitionableDevices",
    "ConsumableShares": "DRAConsumableCapacity",
    "NVMLDeviceHealthCheck": "DRADeviceTaints",
    "DRAListTypeAttributes": "DRAListTypeAttributes",
}
"""Gates of the GPU driver, and the gate of Kubernetes without which they do nothing."""


@rule("versions")
def api_version(review: Review) -> Iterator[Finding]:
    """API versions that are gone, not there yet, or off by default."""
    known = kubernetes()
    for document in review.documents:
        if not document.kind or document.group not in known.versions or review.served(document):
            continue
        right = known.successors[document.group]
        if document.group == "resource.k8s.io" and review.minor < 34:
            right += " needs Kubernetes 1.34; before, --runtime-config switches v1beta1 on"
        if document.kind == "DeviceTaintRule" and review.minor < 37:
            right += " has DeviceTaintRule from 1.37; before, v1beta2 must be switched on in --runtime-config"
        yield document.finding(
            "api-version-not-served",
            ("apiVersion",),
            f"Kubernetes {review.context.kubernetes} does not serve {document.api_version} {document.kind}"
            f" (by default); {right}",
            f"apiVersion: {known.successors[document.group]}",
        )


@rule("versions")
def gates(review: Review) -> Iterator[Finding]:
    """Gates of components that are locked, gone, or hide claims from exporters."""
    known = kubernetes().gates
    target = f"Kubernetes {review.context.kubernetes}"
    for component in review.components:
        for setting in component.gates:
            gate = known.get(setting.name)
            if gate is None:
                continue
            if gate.fixed(review.minor) and not gate.gone(review.minor) and not setting.value:
                yield component.document.finding(
                    "gate-cannot-be-off",
                    setting.steps,
                    f"{setting.name} is locked to true since 1.{gate.locked}: {component.name} of {target} refuses to"
                    " start"
                    " with false",
                    f"remove {setting.name}",
                )
            elif gate.gone(review.minor) or gate.fixed(review.minor):
                state = (
                    f"is gone since 1.{gate.removed}" if gate.gone(review.minor) else f"is locked since 1.{gate.locked}"
                )
                yield component.document.finding(
                    "gate-locked",
                    setting.steps,
                    f"{setting.name} {state}: the setting has no effect at {target}, and a later version that no longer"
                    " knows the gate refuses to start",
                    f"remove {setting.name}",
                )
            elif setting.name == _PODRESOURCES and not setting.value:
                yield component.document.finding(
                    "podresources-dra-off",
                    setting.steps,
                    f"without {_PODRESOURCES} the kubelet's podresources API hides claims, so exporters cannot tell"
                    " which"
                    " pod has which device",
                    "remove the setting (on by default since 1.34)" if review.minor >= 34 else "set it to true",
                )


@rule("versions")
def field_enabled(review: Review) -> Iterator[Finding]:
    """Fields that are dropped without their gate."""
    fields = kubernetes().gated_fields
    for claim in review.claims:
        for steps, entry in claim.entries():
            yield from _gated(review, claim.document, steps, entry, fields["requestEntry"])
        for request in claim.requests():
            yield from _gated(review, claim.document, request.steps, request.value, fields["request"])
        for steps, entry in claim.constraints():
            yield from _gated(review, claim.document, steps, entry, fields["constraint"])
    for document in review.kind("DeviceClass", "ResourceSlice"):
        spec = document.at(("spec",))
        if not isinstance(spec, dict) or not review.served(document):
            continue
        part = "classSpec" if document.kind == "DeviceClass" else "sliceSpec"
        yield from _gated(review, document, ("spec",), spec, fields[part])
        devices = spec.get("devices")
        for number, device in enumerate(devices if isinstance(devices, list) else ()):
            if isinstance(device, dict):
                yield from _device(review, document, ("spec", "devices", number), device)


def _device(review: Review, document: Document, steps: Steps, device: Mapping[str, Any]) -> Iterator[Finding]:
    fields = kubernetes().gated_fields
    yield from _gated(review, document, steps, device, fields["device"])
    attributes = device.get("attributes")
    for name, value in attributes.items() if isinstance(attributes, dict) else ():
        if isinstance(value, dict):
            yield from _gated(review, document, (*steps, "attributes", name), value, fields["attribute"])


def _gated(
    review: Review, document: Document, steps: Steps, value: Mapping[str, Any], fields: Mapping[str, str]
) -> Iterator[Finding]:
    for name, gate in fields.items():
        if value.get(name) is not None and not review.gate(gate):
            yield document.finding(
                "field-not-enabled",
                (*steps, name),
                f"{name} needs the feature gate {gate}, which is off by default in Kubernetes"
                f" {review.context.kubernetes}"
                f"{_since(gate)}: the API server drops the field silently",
            )


@rule("versions")
def driver_gates(review: Review) -> Iterator[Finding]:
    """Gates of the driver that need a gate of Kubernetes."""
    for values in review.chart("dra"):
        for gate, needed in _DRIVER_GATES.items():
            if values.get("featureGates", gate) is True and not review.gate(needed):
                yield values.finding(
                    "gate-needs-cluster-feature",
                    ("featureGates", gate),
                    f"{gate} needs Kubernetes' {needed}, which is off by default in {review.context.kubernetes}"
                    f"{_since(needed)}: what the driver publishes with it is dropped or never allocated",
                )


def _since(gate: str) -> str:
    known = kubernetes().gates.get(gate)
    return f" (on from 1.{known.on})" if known is not None and known.on is not None else ""
