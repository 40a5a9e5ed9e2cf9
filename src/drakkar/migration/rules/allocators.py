"""Two that hand out the same GPUs, and settings of the one that do nothing for the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from drakkar.kube import yamltext
from drakkar.migration.charts import Values
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_PLUGIN_LABEL: Final = "nvidia.com/gpu.deploy.device-plugin"
_GENERIC_LABELS: Final = (
    "nvidia.com/gpu.present", "nvidia.com/gpu.deploy.client", "nvidia.com/dra-kubelet-plugin", "kubernetes.io/os",
    "kubernetes.io/arch",
)  # fmt: skip
_PLUGIN_IMAGE: Final = "k8s-device-plugin"


@rule("allocators")
def two_allocators(review: Review) -> Iterator[Finding]:
    """Device plugin and DRA driver on the same nodes."""
    clusters = review.kind("GPUCluster")
    if clusters and review.kind("ClusterPolicy"):
        for document in clusters:
            yield document.finding(
                "two-allocators",
                ("kind",),
                "ClusterPolicy (device plugin) and GPUCluster (DRA driver) exclude each other: both would hand out"
                " the same"
                " GPUs; keep one",
            )
        return
    if not any(_serves(values) for values in review.chart("dra")) and not clusters:
        return
    for values in review.chart("operator"):
        if values.get("devicePlugin", "enabled") is True:
            yield values.finding(
                "two-allocators",
                ("devicePlugin", "enabled"),
                "devicePlugin is enabled beside the DRA driver: both would hand out the same GPUs, and neither knows"
                " of the"
                " other; separate node pools or one of them",
                "devicePlugin.enabled: false",
            )
    for pod in review.pods:
        for container in pod.containers:
            if pod.document.kind == "DaemonSet" and _PLUGIN_IMAGE in container.image:
                yield pod.document.finding(
                    "two-allocators",
                    (*container.steps, "image"),
                    "this device plugin would hand out the same GPUs as the DRA driver; keep one of them per node",
                )


def _serves(values: Values) -> bool:
    """Whether the driver serves GPUs on nodes that a device plugin may serve, too."""
    selector = values.mapping("kubeletPlugin", "nodeSelector")
    apart = any(
        (key == _PLUGIN_LABEL and str(value).lower() == "false")
        or (key != _PLUGIN_LABEL and key not in _GENERIC_LABELS)
        for key, value in selector.items()
    )
    return values.get("resources", "gpus", "enabled") is True and not apart


@rule("allocators")
def time_slicing(review: Review) -> Iterator[Finding]:
    """Replicas in the device plugin's configuration."""
    if not review.dra_serves_gpus:
        return
    if any(values.get("devicePlugin", "enabled") is True for values in review.chart("operator")):
        return
    for document in review.kind("ConfigMap"):
        data = document.value.get("data")
        for key, text in data.items() if isinstance(data, dict) else ():
            if isinstance(text, str) and "timeSlicing" in text and _has_replicas(text):
                yield document.finding(
                    "timeslicing-replicas-no-effect",
                    ("data", key),
                    "replicas are the device plugin's: the DRA driver publishes one device per GPU all the same;"
                    " share a"
                    " device through one claim, with sharing.strategy TimeSlicing",
                )


def _has_replicas(text: str) -> bool:
    try:
        config: Any = yamltext.load(text)
    except yamltext.YamlError:
        return False
    for step in ("sharing", "timeSlicing", "resources"):
        config = config.get(step) if isinstance(config, dict) else None
    return isinstance(config, list) and any(isinstance(entry, dict) and "replicas" in entry for entry in config)
