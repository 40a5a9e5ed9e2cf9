"""The exporter's side of attribution: DRA support, its version, labels that Prometheus renames or never gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from drakkar.migration.alerts import alerts_of
from drakkar.migration.context import release
from drakkar.migration.documents import Document, Steps
from drakkar.migration.findings import Finding
from drakkar.migration.pods import Container
from drakkar.migration.promql import Binary, Call, Selector, walk
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_SWITCH: Final = "KUBERNETES_ENABLE_DRA"
_FLAG: Final = "--kubernetes-enable-dra"
_FIXED: Final = (4, 8, 3)
_IMAGE: Final = "/dcgm-exporter"
_KSM: Final = "/kube-state-metrics"
_ALLOWLIST: Final = "--metric-labels-allowlist"
_LABELS: Final = (
    "nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/mig.capable", "nvidia.com/mig.strategy",
    "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.present",
    "nvidia.com/gpu.clique", "nvidia.com/gpu-driver-upgrade-state", "nvidia.com/gpu.deploy.client",
)  # fmt: skip
"""Node labels whose names Prometheus' form cannot be turned back into."""


@rule("exporters")
def exporters(review: Review) -> Iterator[Finding]:
    """Exporters in manifests: switched off, or too old for the served API version."""
    for pod in review.pods:
        for container in pod.containers:
            name, _, tag = container.image.partition("@")[0].rpartition(":")
            if not f"/{name}".endswith(_IMAGE):
                continue
            steps, enabled = _switch(container)
            if not enabled and review.wants_gpus:
                yield pod.document.finding("exporter-dra-off", steps, _OFF)
            elif enabled and _too_old(review, tag):
                yield pod.document.finding("exporter-too-old", (*container.steps, "image"), _old(review, tag))


@rule("exporters")
def exporter_values(review: Review) -> Iterator[Finding]:
    """Exporters in chart values."""
    for values in review.chart("dcgm-exporter"):
        enabled = values.get("kubernetesDRA", "enabled")
        tag = str(values.get("image", "tag") or "")
        if enabled is False and review.wants_gpus:
            yield values.finding("exporter-dra-off", ("kubernetesDRA", "enabled"), _OFF)
        elif enabled is True and _too_old(review, tag):
            yield values.finding("exporter-too-old", ("image", "tag"), _old(review, tag))
        if enabled is not True and review.wants_gpus:
            places: tuple[tuple[str, ...], ...] = (("kubernetes", "enablePodLabels"), ("enablePodLabels",))
            for steps in places:
                if values.get(*steps) is True:
                    yield values.finding("exporter-podlabels-not-attribution", steps, _POD_LABELS)
        if values.get("serviceMonitor", "honorLabels") is False and not _reads_exported(review):
            yield values.finding("servicemonitor-renames-labels", ("serviceMonitor", "honorLabels"), _RENAMED)
    for values in review.chart("operator"):
        if values.get("dcgmExporter", "enablePodLabels") is True and review.wants_gpus:
            yield values.finding("exporter-podlabels-not-attribution", ("dcgmExporter", "enablePodLabels"), _POD_LABELS)
        if values.get("dcgmExporter", "serviceMonitor", "honorLabels") is False and not _reads_exported(review):
            place = ("dcgmExporter", "serviceMonitor", "honorLabels")
            yield values.finding("servicemonitor-renames-labels", place, _RENAMED)


_OFF: Final = (
    f"the exporter's DRA support is off, so no series carries the pod of a claim; switch it on ({_SWITCH}=true, chart:"
    " kubernetesDRA.enabled)"
)
_POD_LABELS: Final = (
    "enablePodLabels copies labels of pods that are known already; it does not attribute claims to pods (that needs"
    " kubernetesDRA.enabled in the exporter's own chart)"
)
_RENAMED: Final = (
    "without honorLabels the exporter's pod, namespace and container become exported_pod, exported_namespace and"
    " exported_container, and pod is the exporter itself; set honorLabels: true"
)


def _switch(container: Container) -> tuple[Steps, bool]:
    """Where DRA support is switched, and whether it is on."""
    for steps, word in container.arguments():
        flag, _, value = word.partition("=")
        if flag == _FLAG:
            return steps, value.lower() != "false"
    for steps, name, value in container.environment():
        if name == _SWITCH:
            return (*steps, "value"), value.lower() in ("true", "1")
    return ((*container.steps, "env") if "env" in container.value else container.steps), False


def _too_old(review: Review, tag: str) -> bool:
    exporter = release(tag.partition("-")[2])
    served = review.runtime_config.get("resource.k8s.io/v1beta1", False) and review.minor < 38
    return bool(exporter) and exporter < _FIXED and review.minor >= 34 and not served


def _old(review: Review, tag: str) -> str:
    return (
        f"exporter {tag} reads resource.k8s.io/v1beta1 only, which Kubernetes {review.context.kubernetes} does not"
        " serve, so"
        " nothing is attributed; 4.6.0-4.8.3 finds the version itself"
    )


@rule("exporters")
def service_monitors(review: Review) -> Iterator[Finding]:
    """ServiceMonitors and PodMonitors of the exporter."""
    if _reads_exported(review):
        return
    for document in review.kind("ServiceMonitor", "PodMonitor"):
        if "dcgm-exporter" not in f"{document.name} {document.at(('spec', 'selector'))}":
            continue
        field = "endpoints" if document.kind == "ServiceMonitor" else "podMetricsEndpoints"
        endpoints = document.at(("spec", field))
        for number, endpoint in enumerate(endpoints if isinstance(endpoints, list) else ()):
            if not isinstance(endpoint, dict) or endpoint.get("honorLabels") is True:
                continue
            steps: Steps = ("spec", field, number)
            if "honorLabels" in endpoint:
                steps = (*steps, "honorLabels")
            yield document.finding("servicemonitor-renames-labels", steps, _RENAMED, "honorLabels: true")


def _reads_exported(review: Review) -> bool:
    return any("exported_pod" in alert.text or "exported_namespace" in alert.text for alert in alerts_of(review))


@rule("exporters")
def allowed_labels(review: Review) -> Iterator[Finding]:
    """Node labels that rules read and kube-state-metrics does not export."""
    read = _labels_read(review)
    if not read:
        return
    for document, steps, text in _allowlists(review):
        allowed = _allowed(text)
        if "*" in allowed:
            continue
        exported = {_sanitized(label) for label in allowed}
        for label in read:
            if label not in exported:
                name = next((each for each in _LABELS if _sanitized(each) == label), label)
                yield document.finding(
                    "ksm-label-not-allowed",
                    steps,
                    f"a rule reads node label {name}, which kube-state-metrics does not export: add it to"
                    f" {_ALLOWLIST}=nodes=[…]",
                )


def _labels_read(review: Review) -> list[str]:
    """Labels of kube_node_labels that rules match, group by or join, each once."""
    found: dict[str, None] = {}
    for alert in alerts_of(review):
        if "kube_node_labels" not in alert.metrics:
            continue
        for node, _ in walk(alert.tree):
            names: tuple[str, ...] = ()
            if isinstance(node, Selector) and node.metric == "kube_node_labels":
                names = tuple(matcher.label for matcher in node.matchers)
            elif isinstance(node, Call):
                names = node.by
            elif isinstance(node, Binary):
                names = node.labels
            found |= dict.fromkeys(name for name in names if name.startswith("label_"))
    return list(found)


def _allowlists(review: Review) -> Iterator[tuple[Document, Steps, str]]:
    """Where kube-state-metrics is told which labels to export; a missing flag is an empty list."""
    for pod in review.pods:
        for container in pod.containers:
            name = container.image.partition("@")[0].rpartition(":")[0]
            if not f"/{name}".endswith(_KSM):
                continue
            words = list(container.arguments())
            flags = [(steps, word) for steps, word in words if word.startswith(_ALLOWLIST)]
            if flags:
                yield pod.document, flags[0][0], flags[0][1].partition("=")[2]
            else:
                part = "args" if "args" in container.value else "command" if "command" in container.value else ""
                yield pod.document, (*container.steps, part) if part else container.steps, ""
    for values in review.chart("kube-state-metrics"):
        allowed = values.get("metricLabelsAllowlist")
        if isinstance(allowed, list):
            yield values.document, (*values.prefix, "metricLabelsAllowlist"), ",".join(str(each) for each in allowed)


def _allowed(text: str) -> list[str]:
    match = re.search(r"(?:^|,)\s*(?:nodes|\*)=\[([^\]]*)\]", text)
    return [label.strip() for label in match[1].split(",")] if match else []


def _sanitized(label: str) -> str:
    return "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", label)
