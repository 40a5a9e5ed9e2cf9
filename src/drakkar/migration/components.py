"""Feature gates and flags of Kubernetes' own components, in every file that may hold them.

kubeadm's ClusterConfiguration (v1beta4 has lists of name and value, older versions mappings), the kubelet's own file,
kind's Cluster, and the command lines of static pods: each becomes a `Component` with the gates it sets, and where.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.migration.documents import Document, Steps
from drakkar.migration.pods import pod_templates

__all__ = ["Component", "GateSetting", "components_of"]

_KUBEADM: Final = {
    ("ClusterConfiguration", "apiServer", "extraArgs"): "apiserver",
    ("ClusterConfiguration", "controllerManager", "extraArgs"): "controller-manager",
    ("ClusterConfiguration", "scheduler", "extraArgs"): "scheduler",
    ("InitConfiguration", "nodeRegistration", "kubeletExtraArgs"): "kubelet",
    ("JoinConfiguration", "nodeRegistration", "kubeletExtraArgs"): "kubelet",
}
_BINARIES: Final = {
    "kube-apiserver": "apiserver", "kube-controller-manager": "controller-manager",
    "kube-scheduler": "scheduler", "kubelet": "kubelet",
}  # fmt: skip
_ALL: Final = ("apiserver", "controller-manager", "scheduler", "kubelet")


@dataclass(frozen=True)
class GateSetting:
    """One gate, set to a value at a place."""

    name: str
    value: bool
    steps: Steps


@dataclass(frozen=True)
class Component:
    """apiserver, controller-manager, scheduler or kubelet, as a document configures it."""

    name: str
    document: Document
    gates: list[GateSetting] = field(default_factory=list)
    runtime_config: dict[str, bool] = field(default_factory=dict)


def components_of(document: Document) -> list[Component]:
    """The components that a document configures."""
    if document.kind == "KubeletConfiguration":
        return [Component("kubelet", document, _mapped(document, ("featureGates",)))]
    if document.kind == "Cluster" and document.group == "kind.x-k8s.io":
        gates = _mapped(document, ("featureGates",))
        runtime = document.at(("runtimeConfig",))
        served = {key: _true(value) for key, value in runtime.items()} if isinstance(runtime, dict) else {}
        # A gate is one setting in one place, though kind hands it to every component.
        return [Component(name, document, gates if name == "apiserver" else [], served) for name in _ALL]
    found = [
        _with_flags(name, document, _extra_args(document, steps))
        for (kind, *steps), name in _KUBEADM.items()
        if document.kind == kind
    ]
    if document.kind == "Pod":
        found += _static_pods(document)
    return found


def _static_pods(document: Document) -> Iterator[Component]:
    for pod in pod_templates(document):
        for container in pod.containers:
            words = list(container.arguments())
            binary = words[0][1].rpartition("/")[2] if words else ""
            if binary in _BINARIES:
                flags = [
                    (steps, *word.removeprefix("--").partition("=")[::2])
                    for steps, word in words
                    if word.startswith("--")
                ]
                yield _with_flags(_BINARIES[binary], document, flags)


Flags = list[tuple[Steps, str, str]]


def _extra_args(document: Document, steps: list[str]) -> Flags:
    arguments = document.at(steps)
    if isinstance(arguments, dict):
        return [((*steps, name), str(name), str(value)) for name, value in arguments.items()]
    return [
        ((*steps, number, "value"), str(entry.get("name")), str(entry.get("value")))
        for number, entry in enumerate(arguments if isinstance(arguments, list) else ())
        if isinstance(entry, dict)
    ]


def _with_flags(name: str, document: Document, flags: Flags) -> Component:
    component = Component(name, document)
    for steps, flag, value in flags:
        if flag == "feature-gates":
            for setting in value.split(","):
                gate, _, switch = setting.strip().partition("=")
                component.gates.append(GateSetting(gate, _true(switch), steps))
        elif flag == "runtime-config":
            for setting in value.split(","):
                version, _, switch = setting.strip().partition("=")
                component.runtime_config[version] = _true(switch or "true")
    return component


def _mapped(document: Document, steps: Steps) -> list[GateSetting]:
    gates = document.at(steps)
    return [
        GateSetting(name, _true(value), (*steps, name))
        for name, value in (gates.items() if isinstance(gates, dict) else ())
    ]


def _true(value: Any) -> bool:
    return str(value).lower() == "true"
