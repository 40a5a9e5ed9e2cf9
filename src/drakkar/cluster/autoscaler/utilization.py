"""How much of a node is in use: what decides whether it is a candidate for removal. Pure.

A node with devices is judged by its devices alone, by the pool that is used most; CPU and memory do not count there
(cluster-autoscaler 1.35, `simulator/dynamicresources/utils`). Partitions of one GPU count as one device: the counter of
its set that is used most, averaged over the sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drakkar.kube.quantity import Quantity
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts

__all__ = ["Utilization", "pool_utilization", "utilization_of"]

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Utilization:
    """The share in use, 0 to 1, and of what: ``cpu``, ``memory`` or ``driver/pool``."""

    share: float
    resource: str


def utilization_of(
    node: NodeState, slices: Sequence[Object], claims: Iterable[Object], *, ignored: Iterable[PodFacts] = ()
) -> Utilization:
    """The utilization of a node.

    Args:
        slices: the node's own.
        claims: allocated claims of its pods.
        ignored: pods whose CPU and memory count neither as used nor as room (daemon pods, if so set).
    """
    if slices:
        return _devices(slices, claims)
    left_out = list(ignored)
    shares = []
    for resource in ("cpu", "memory"):
        aside = sum(pod.requests.get(resource, 0) for pod in left_out)
        room = node.allocatable.get(resource, 0) - aside
        shares.append(Utilization((node.requested.get(resource, 0) - aside) / room if room > 0 else 0.0, resource))
    cpu, memory = shares
    return cpu if cpu.share > memory.share else memory


def _devices(slices: Sequence[Object], claims: Iterable[Object]) -> Utilization:
    used: dict[tuple[str, str], set[str]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if not result.get("adminAccess"):
                used.setdefault((result["driver"], result["pool"]), set()).add(result["device"])
    pools: dict[tuple[str, str], list[Object]] = {}
    for piece in slices:
        spec = piece["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    best = Utilization(0.0, "")
    for key in sorted(pools):
        share = pool_utilization(pools[key], used.get(key, set()))
        if share >= best.share:
            best = Utilization(share, "/".join(key))
    return best


def pool_utilization(specs: Sequence[Object], used: set[str]) -> float:
    """The share of a pool in use; `specs` are those of its slices, `used` the names of allocated devices."""
    newest = max(int(spec["pool"].get("generation") or 0) for spec in specs)
    current = [spec for spec in specs if int(spec["pool"].get("generation") or 0) == newest]
    devices = [device for spec in current for device in spec.get("devices") or ()]
    whole = [device for device in devices if not device.get("consumesCounters")]
    parts = [device for device in devices if device.get("consumesCounters")]
    used_whole = [device for device in whole if device["name"] in used]
    used_parts = [device for device in parts if device["name"] in used]
    of_whole = len(used_whole) / len(whole) if whole else 0.0
    if not used_parts:
        return of_whole
    of_parts, sets = _counters(current, parts, used_parts)
    if not used_whole:
        return of_parts
    return (of_parts * sets + of_whole * len(whole)) / (sets + len(whole))


def _counters(specs: Sequence[Object], parts: Sequence[Object], used: Sequence[Object]) -> tuple[float, int]:
    """The mean over counter sets of the counter used most, and how many sets the partitions draw from."""
    sets = {entry["counterSet"] for device in parts for entry in device["consumesCounters"]}
    total: dict[tuple[str, str], int] = {}
    for spec in specs:
        for one in spec.get("sharedCounters") or ():
            _add(total, one["name"], one["counters"])
    taken: dict[tuple[str, str], int] = {}
    for device in used:
        for entry in device["consumesCounters"]:
            _add(taken, entry["counterSet"], entry["counters"])
    most: dict[str, float] = {}
    for (name, counter), value in total.items():
        if value:
            most[name] = max(most.get(name, 0.0), taken.get((name, counter), 0) / value)
    return (sum(most.values()) / len(sets) if sets else 0.0), len(sets)


def _add(amounts: dict[tuple[str, str], int], name: str, counters: Mapping[str, Any]) -> None:
    for counter, value in counters.items():
        amounts[name, counter] = amounts.get((name, counter), 0) + Quantity.parse(value["value"]).value()
