"""A pod as the scheduler sees it: parsed once when the object arrives, compared many times.

`signature` is what decides about placement apart from device claims. Pods of one workload share it, so what was found
out about nodes for one of them holds for the next as long as the node has not changed (KEP-5598 does the same).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from drakkar.scheduling.node_affinity import NodeAffinity
from drakkar.scheduling.pod_affinity import PodAffinity
from drakkar.scheduling.requests import Amounts, pod_requests, pod_score_requests
from drakkar.scheduling.spreading import SpreadConstraint, parse_constraints

HostPort = tuple[str, str, int]
"""Address, protocol and port that a container wants on the host."""

_PLACEMENT_FIELDS = (
    "nodeName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead", "resources",
    "hostNetwork",
)  # fmt: skip
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """One entry of `spec.resourceClaims` and what `status.resourceClaimStatuses` says of it.

    `claim_name` is None until the claim exists, and `skipped` is true where the status says that none is needed.
    """

    name: str
    claim_name: str | None
    from_template: bool
    skipped: bool = False


class PodFacts:
    """One version of a pod. `key` is (namespace, name), `uid` its identity; everything else is derived from `pod`."""

    def __init__(self, pod: Mapping[str, Any]) -> None:
        self.pod = pod
        metadata = pod["metadata"]
        self.namespace: str = metadata.get("namespace") or ""
        self.name: str = metadata["name"]
        self.uid: str = metadata.get("uid") or ""
        self.labels: Mapping[str, str] = metadata.get("labels") or {}
        self.spec: Mapping[str, Any] = pod.get("spec") or {}
        self.node_name: str = self.spec.get("nodeName") or ""
        self.priority: int = self.spec.get("priority") or 0

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def deleting(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    @property
    def finished(self) -> bool:
        return (self.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    @property
    def gates(self) -> list[Mapping[str, Any]]:
        return list(self.spec.get("schedulingGates") or ())

    @property
    def tolerations(self) -> list[Mapping[str, Any]]:
        return list(self.spec.get("tolerations") or ())

    @cached_property
    def requests(self) -> Amounts:
        """Shared by pods that ask for the same: only to be read."""
        return _asked_by(self.spec)[0]

    @cached_property
    def score_requests(self) -> tuple[int, int]:
        return _asked_by(self.spec)[1]

    @cached_property
    def node_affinity(self) -> NodeAffinity:
        return NodeAffinity.parse(self.spec)

    @cached_property
    def pod_affinity(self) -> PodAffinity | None:
        return PodAffinity.parse(self.spec, self.namespace)

    @cached_property
    def spread_constraints(self) -> tuple[SpreadConstraint, ...]:
        return parse_constraints(self.spec, self.labels)

    @cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        return tuple(_host_ports(self.spec))

    @cached_property
    def claims(self) -> tuple[ClaimReference, ...]:
        return tuple(_claim_references(self.pod))

    @property
    def depends_on_other_pods(self) -> bool:
        """Whether a node's verdict may change because of pods on other nodes."""
        return self.pod_affinity is not None or bool(self.spread_constraints)

    @cached_property
    def signature(self) -> bytes:
        """Equal for pods that every node judges alike, leaving aside their claims and pods on other nodes."""
        spec = self.spec
        fields = {name: spec[name] for name in _PLACEMENT_FIELDS if spec.get(name)}
        fields["requests"] = self.requests
        fields["score"] = self.score_requests
        fields["ports"] = self.host_ports
        if self.depends_on_other_pods:
            fields["labels"] = self.labels
        fields["namespace"] = self.namespace
        return _encode(fields)


def _asked_by(spec: Mapping[str, Any]) -> tuple[Amounts, tuple[int, int]]:
    """What a spec requests, and what it counts when load is spread; worked out once for pods that ask for the same."""
    listed = [
        [(one.get("resources"), one.get("restartPolicy")) for one in spec.get(field) or ()]
        for field in ("containers", "initContainers")
    ]
    return _worked_out(_encode([listed, spec.get("resources"), spec.get("overhead")]))


@lru_cache(maxsize=4096)
def _worked_out(asked: bytes) -> tuple[Amounts, tuple[int, int]]:
    (containers, first), resources, overhead = _decode(asked)
    spec = {
        "containers": [{"resources": one} for one, _ in containers],
        "initContainers": [{"resources": one, "restartPolicy": policy} for one, policy in first],
        "resources": resources,
        "overhead": overhead,
    }
    return pod_requests(spec), pod_score_requests(spec)


def claim_name_of(reference: Mapping[str, Any], statuses: Mapping[str, str | None]) -> tuple[str | None, bool]:
    """The claim behind one `spec.resourceClaims` entry, and whether the pod runs without one on purpose."""
    direct = reference.get("resourceClaimName")
    if direct:
        return direct, False
    if reference["name"] in statuses:
        generated = statuses[reference["name"]]
        return generated, generated is None
    return None, False


def _claim_references(pod: Mapping[str, Any]) -> Iterator[ClaimReference]:
    statuses = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for reference in (pod.get("spec") or {}).get("resourceClaims") or ():
        name, skipped = claim_name_of(reference, statuses)
        yield ClaimReference(reference["name"], name, bool(reference.get("resourceClaimTemplateName")), skipped)


def _host_ports(spec: Mapping[str, Any]) -> Iterator[HostPort]:
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or ()), *sidecars]:
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"]  # noqa: S104
