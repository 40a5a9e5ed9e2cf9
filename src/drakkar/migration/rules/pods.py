"""Pods: claims that nobody uses or nobody declared, and things of the old way left beside a claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drakkar.migration.findings import Finding
from drakkar.migration.pods import PodTemplate
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_RUNTIME_CLASSES: Final = ("nvidia", "nvidia-cdi", "nvidia-legacy")
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_HARMLESS: Final = ("", "void", "none")
_CDI_ANNOTATION: Final = "cdi.k8s.io/"
GPU_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/mig-")


@rule("pods")
def claim_source(review: Review) -> Iterator[Finding]:
    """The wrapper `source` is gone since 1.31."""
    for pod in review.pods:
        for entry in pod.claims:
            source = entry.value.get("source")
            if source is None:
                continue
            field, _, name = entry.target
            right = f"{field or 'resourceClaimTemplateName'}: {name or '…'}"
            yield pod.document.finding(
                "pod-claim-source",
                (*entry.steps, "source"),
                f"`source` was removed in Kubernetes 1.31, so this entry names no claim; `{right}` belongs directly"
                f" into the entry (resourceClaimName or resourceClaimTemplateName)",
                f"replace `source:` by `{right}`",
            )


@rule("pods")
def pod_level_claims(review: Review) -> Iterator[Finding]:
    """`resources.claims` of the pod instead of a container."""
    for pod in review.pods:
        resources = pod.spec.get("resources")
        if isinstance(resources, dict) and "claims" in resources:
            yield pod.document.finding(
                "pod-level-claims",
                (*pod.steps, "resources", "claims"),
                "pod-level resources take no claims: a claim is used by a container, under"
                " containers[].resources.claims",
                "move `claims` into the resources of the containers that use the devices",
            )


@rule("pods")
def claim_undeclared(review: Review) -> Iterator[Finding]:
    """A container uses a name that the pod does not declare."""
    for pod in review.pods:
        for steps, name in _undeclared(pod):
            declared = ", ".join(entry.name for entry in pod.claims if entry.name) or "none"
            yield pod.document.finding(
                "claim-undeclared",
                steps,
                f"the pod declares no claim {name!r} in resourceClaims (declared: {declared}), so it is refused",
            )


@rule("pods")
def claim_unused(review: Review) -> Iterator[Finding]:
    """A claim is reserved and no container gets its devices."""
    for pod in review.pods:
        if next(_undeclared(pod), None):
            continue
        used = {name for container in pod.containers for _, name in container.claims} | set(_pod_level(pod))
        for entry in pod.claims:
            if entry.name and entry.name not in used:
                yield pod.document.finding(
                    "claim-unused",
                    entry.steps,
                    f"no container uses claim {entry.name!r}: its devices are reserved for the pod and visible to"
                    " nobody;"
                    f" add `claims: [{{name: {entry.name}}}]` to the resources of the container that needs them",
                )


@rule("pods")
def node_name(review: Review) -> Iterator[Finding]:
    """spec.nodeName leaves the scheduler out, and with it the allocation."""
    for pod in review.pods:
        if "uid" in pod.document.metadata:
            continue  # taken from a cluster: the scheduler wrote it
        if pod.claims and pod.spec.get("nodeName"):
            host = pod.spec["nodeName"]
            yield pod.document.finding(
                "node-name-with-claim",
                (*pod.steps, "nodeName"),
                "nodeName bypasses the scheduler, which allocates claims: the pod stays in ContainerCreating for ever;"
                f" choose the node with nodeSelector (kubernetes.io/hostname: {host}) or an affinity instead",
                f"nodeSelector: {{kubernetes.io/hostname: {host}}}",
            )


@rule("pods")
def runtime_class(review: Review) -> Iterator[Finding]:
    """The runtime class of the old way."""
    for pod in review.pods:
        name = pod.spec.get("runtimeClassName")
        if name in _RUNTIME_CLASSES and review.gpu_claims(pod, unknown=True):
            yield pod.document.finding(
                "runtimeclass-beside-claim",
                (*pod.steps, "runtimeClassName"),
                f"runtimeClassName {name} is not needed beside a claim, since CDI injects the allocated devices; its"
                " hook"
                " can expose further GPUs of the node",
                "remove runtimeClassName",
            )


@rule("pods")
def visible_devices(review: Review) -> Iterator[Finding]:
    """NVIDIA_VISIBLE_DEVICES, with indexes or UUIDs, or with a CDI name."""
    for pod in review.pods:
        if not review.gpu_claims(pod, unknown=True):
            continue
        for container in pod.containers:
            for steps, name, value in container.environment():
                if name != _VISIBLE or value in _HARMLESS:
                    continue
                if "/" in value and "=" in value:
                    yield pod.document.finding("cdi-device-by-hand", steps, _by_hand(value))
                else:
                    yield pod.document.finding(
                        "visible-devices-env",
                        steps,
                        f"{_VISIBLE}={value} can expose other GPUs than the allocated ones; beside a claim the driver"
                        " sets"
                        " it itself (to void)",
                        "remove the variable",
                    )


@rule("pods")
def cdi_by_hand(review: Review) -> Iterator[Finding]:
    """CDI names in annotations."""
    for pod in review.pods:
        if not pod.claims:
            continue
        steps, annotations = pod.annotations
        for key, value in annotations.items():
            if key.startswith(_CDI_ANNOTATION):
                yield pod.document.finding("cdi-device-by-hand", (*steps, key), _by_hand(str(value)))


def _by_hand(value: str) -> str:
    return (
        f"{value} names a CDI device by hand; the driver names the devices of a claim itself"
        " (k8s.gpu.nvidia.com/claim=<claim UID>-<device>), and a fixed name injects a device that was not allocated"
    )


@rule("pods")
def limits_and_claim(review: Review) -> Iterator[Finding]:
    """One container asks twice."""
    for pod in review.pods:
        gpus = {entry.name for entry in review.gpu_claims(pod, unknown=False)}
        for container in pod.containers:
            if not any(name in gpus for _, name in container.claims):
                continue
            for steps, resource in container.extended():
                if resource.startswith(GPU_RESOURCES):
                    yield pod.document.finding(
                        "limits-and-claim",
                        steps,
                        f"the container asks for a GPU twice: by its claim and by {resource}; it gets both, or waits"
                        " for both",
                        f"remove {resource}",
                    )


@rule("pods")
def priority(review: Review) -> Iterator[Finding]:
    """Priority frees cpu and memory, never devices of claims."""
    passive = {
        document.name
        for document in review.kind("PriorityClass")
        if document.value.get("preemptionPolicy") == "Never" or _not_positive(document.value.get("value"))
    }
    for pod in review.pods:
        name = pod.spec.get("priorityClassName")
        if not isinstance(name, str) or not name or name.startswith("system-") or name in passive:
            continue
        if review.gpu_claims(pod, unknown=True):
            yield pod.document.finding(
                "priority-does-not-free-devices",
                (*pod.steps, "priorityClassName"),
                f"priority {name} orders the queue, but the scheduler evicts no pod to free devices that it holds"
                " through"
                " a claim: there is no preemption for claims (KEP-5690)",
            )


def _not_positive(value: object) -> bool:
    return isinstance(value, int) and value <= 0


def _undeclared(pod: PodTemplate) -> Iterator[tuple[tuple[str | int, ...], str]]:
    declared = {entry.name for entry in pod.claims}
    for container in pod.containers:
        for steps, name in container.claims:
            if name not in declared:
                yield steps, name


def _pod_level(pod: PodTemplate) -> Iterator[str]:
    resources = pod.spec.get("resources")
    claims = resources.get("claims") if isinstance(resources, dict) else None
    for entry in claims if isinstance(claims, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield entry["name"]
