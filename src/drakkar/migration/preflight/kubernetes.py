"""Whether Kubernetes has what the driver needs: versions, served APIs, feature gates of the control plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drakkar.evidence.snapshot import name_of
from drakkar.migration.context import kubernetes as known
from drakkar.migration.context import release
from drakkar.migration.preflight.facts import ClusterFacts
from drakkar.migration.preflight.plan import OURS, Plan
from drakkar.migration.preflight.results import FAILED, OK, UNKNOWN, WARNING, Result

_OLDEST: Final = 34
_NEWEST: Final = 37
_RESOURCES: Final = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
_POLICIES: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")

#: The driver's features and the gate of Kubernetes without which they do nothing.
_NEEDS: Final = {
    "DynamicMIG": "DRAPartitionableDevices",
    "ConsumableShares": "DRAConsumableCapacity",
    "NVMLDeviceHealthCheck": "DRADeviceTaints",
    "DRAListTypeAttributes": "DRAListTypeAttributes",
}


def versions(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """The API server's version and that of every kubelet."""
    version, minor = facts.snapshot.kubernetes_version.removeprefix("v"), facts.minor
    if minor is None:
        yield Result("kubernetes-version", UNKNOWN, "API server", "the API server's version is unknown")
    elif minor < _OLDEST:
        yield Result(
            "kubernetes-version",
            FAILED,
            "API server",
            f"Kubernetes {version} does not serve resource.k8s.io/v1",
            f"upgrade to 1.{_OLDEST} or newer",
        )
    elif minor > _NEWEST:
        message = f"Kubernetes {version} is newer than 1.{_NEWEST}, the newest that was tried"
        yield Result("kubernetes-version", WARNING, "API server", message)
    else:
        yield Result("kubernetes-version", OK, "API server", f"Kubernetes {version}")
    for node in facts.snapshot.all("Node"):
        text = ((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", "")
        numbers = release(text)
        if len(numbers) > 1 and numbers[1] < _OLDEST:
            message = f"the kubelet of {name_of(node)} is {text}: before 1.{_OLDEST} it has no DRA v1"
            yield Result("kubernetes-version", FAILED, f"Node/{name_of(node)}", message, "upgrade the node first")


def apis(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """What of the APIs that the chart uses is served."""
    wanted = [f"resource.k8s.io/v1/{resource}" for resource in _RESOURCES]
    policies = plan.chart == OURS and (
        plan.get("policies", "slices") or plan.get("policies", "configurations") or plan.get("tenancy", "enabled")
    )
    if policies:
        wanted += [f"admissionregistration.k8s.io/v1/{resource}" for resource in _POLICIES]
    monitored = plan.chart == OURS and plan.get("metrics", "serviceMonitor", "enabled") is True
    if monitored:
        wanted.append("monitoring.coreos.com/v1/servicemonitors")
    if facts.served is None:
        yield Result("api-versions", UNKNOWN, "API server", f"what is served is unknown: {facts.why('served')}")
        return
    missing = [one for one in wanted if one not in facts.served]
    if not missing:
        yield Result("api-versions", OK, "API server", "every API that the chart uses is served")
    for one in missing:
        yield Result("api-versions", FAILED, one, f"the API server does not serve {one}", _how_to_serve(one))


def _how_to_serve(api: str) -> str:
    if api.startswith("monitoring"):
        return "install the Prometheus operator, or leave metrics.serviceMonitor.enabled false"
    if api.startswith("admission"):
        return "switch policies and tenancy off, or serve admissionregistration.k8s.io/v1"
    return "switch the API on: --runtime-config=resource.k8s.io/v1=true, gate DynamicResourceAllocation"


def gates(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """Gates of Kubernetes that features of the driver need."""
    needed = {"DynamicResourceAllocation": "the driver"}
    needed |= {_NEEDS[name]: f"the driver's {name}" for name, on in plan.gates.items() if on and name in _NEEDS}
    if plan.chart == OURS and plan.get("deviceClasses", "gpu") and plan.get("deviceClasses", "extendedResource"):
        needed["DRAExtendedResource"] = "deviceClasses.extendedResource"
    if plan.chart == OURS and plan.get("driver", "claimStatus"):
        needed["DRAResourceClaimDeviceStatus"] = "driver.claimStatus"
    fine = True
    for gate, what in needed.items():
        enabled = _enabled(facts, gate)
        if enabled is None:
            fine = False
            message = f"whether {gate} is on is unknown: {facts.why('gates')}"
            yield Result("kubernetes-gates", UNKNOWN, gate, message)
        elif not enabled:
            fine = False
            status = FAILED if gate == "DynamicResourceAllocation" else WARNING
            message = f"{what} needs the feature gate {gate}, which is off"
            yield Result("kubernetes-gates", status, gate, message, f"set {gate}=true on all components")
    if fine:
        yield Result("kubernetes-gates", OK, ", ".join(needed), "every feature gate that is needed is on")


def _enabled(facts: ClusterFacts, gate: str) -> bool | None:
    """As the API server reports it; by the version's default if it does not."""
    if facts.gates is not None and gate in facts.gates:
        return facts.gates[gate]
    entry = known().gates.get(gate)
    if facts.minor is None or entry is None:
        return None
    return entry.fixed(facts.minor) or entry.enabled(facts.minor)
