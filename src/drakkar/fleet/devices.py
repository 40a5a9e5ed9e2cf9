"""Every published device with the one word that matters to whoever waits for one: held, tainted, stranded or free.

The four states exclude each other, so that sums are right: a held device is held whatever else is true of it, a tainted
one is refused by its taints (KEP-5055, rules of DeviceTaintRule included), a stranded one is neither and can still not
be had (its node is gone, silent or cordoned, its pool is incomplete, or its partners took the shared counters,
KEP-4815). What is left is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from drakkar.allocation.funnel import taint_text
from drakkar.allocation.taint_rules import TaintRule, merged
from drakkar.api.identities import DeviceKey
from drakkar.evidence.snapshot import Snapshot, name_of
from drakkar.fleet.counters import Counters
from drakkar.fleet.holdings import Holding, holdings
from drakkar.kube import resources

__all__ = ["STATES", "Fleet", "FleetDevice", "State"]

Object = Mapping[str, Any]
State = Literal["held", "tainted", "stranded", "free"]

STATES: Final[tuple[State, ...]] = ("held", "tainted", "stranded", "free")
_REFUSING: Final = ("NoSchedule", "NoExecute")
_LOST: Final = frozenset(
    {"gpu-lost", "device-lost", "lost"}
)  # names of taint keys; each driver has a domain of its own


@dataclass(frozen=True, slots=True)
class FleetDevice:
    """One device of the newest generation of its pool.

    Attributes:
        node: where it is; "" for a device that more than one node can reach.
        reasons: why it is tainted or stranded, for people.
        holdings: the claims that hold it; several where it is shared.
        device: as the slice has it, with the taints of rules.
    """

    key: DeviceKey
    node: str
    state: State
    reasons: tuple[str, ...]
    holdings: tuple[Holding, ...]
    device: Object

    def attribute(self, name: str) -> str:
        """An attribute of the driver's own domain as text, "" if it has none of that name."""
        attributes = self.device.get("attributes") or {}
        value = attributes.get(name) or attributes.get(f"{self.key.driver}/{name}") or {}
        for kind in ("string", "version", "int", "bool"):
            if kind in value:
                return str(value[kind]).lower() if kind == "bool" else str(value[kind])
        return ""

    @property
    def product(self) -> str:
        return self.attribute("productName")

    @property
    def uuid(self) -> str:
        return self.attribute("uuid")

    @property
    def kind(self) -> str:
        """The attribute `type`, with the profile of a partition: ``gpu``, ``mig 1g.10gb``."""
        return " ".join(word for word in (self.attribute("type"), self.attribute("profile")) if word)

    @property
    def taints(self) -> Sequence[Object]:
        return self.device.get("taints") or ()

    @property
    def lost(self) -> bool:
        """Whether a taint of its driver says that the device is no longer there."""
        return any(str(taint.get("key", "")).rpartition("/")[2] in _LOST for taint in self.taints)

    def to_dict(self) -> dict[str, Any]:
        """The device as plain JSON."""
        return {
            "device": str(self.key),
            "node": self.node,
            "state": self.state,
            "reasons": list(self.reasons),
            "type": self.kind,
            "product": self.product,
            "uuid": self.uuid,
            "holdings": [holding.to_dict() for holding in self.holdings],
        }


class Fleet:
    """The devices of a snapshot; everything is worked out once, when first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        """Everything that claims hold, in the order of claims."""
        return tuple(holdings(self.snapshot))

    @cached_property
    def devices(self) -> tuple[FleetDevice, ...]:
        """Every device, by node, pool and place in its slices."""
        held: dict[DeviceKey, list[Holding]] = {}
        for holding in self.holdings:
            held.setdefault(holding.device, []).append(holding)
        found = [device for pool in self._pools.values() for device in self._of_pool(pool, held)]
        return tuple(sorted(found, key=lambda device: (device.node, device.key.driver, device.key.pool)))

    def counters(self, driver: str, pool: str) -> Counters:
        """What is left of a pool's shared counters."""
        return self._counters.get((driver, pool)) or Counters((), ())

    @cached_property
    def _counters(self) -> dict[tuple[str, str], Counters]:
        taken: dict[tuple[str, str], list[str]] = {}
        for holding in self.holdings:
            if not holding.admin:
                taken.setdefault((holding.device.driver, holding.device.pool), []).append(holding.device.device)
        return {
            key: Counters(pool, taken.get(key, ()))
            for key, pool in self._pools.items()
            if any(piece["spec"].get("sharedCounters") for piece in pool)
        }

    @cached_property
    def _pools(self) -> dict[tuple[str, str], list[Object]]:
        """The slices of the newest generation of each pool, taints of rules merged in."""
        rules = [TaintRule.from_object(rule) for rule in self.snapshot.all("DeviceTaintRule")]
        pools: dict[tuple[str, str], list[Object]] = {}
        for piece in sorted(self.snapshot.all("ResourceSlice"), key=name_of):
            spec = piece.get("spec") or {}
            pool = spec.get("pool") or {}
            known = pools.setdefault((spec.get("driver") or "", pool.get("name") or ""), [])
            generation = pool.get("generation") or 0
            if known and generation > _generation(known[0]):
                known.clear()
            if not known or generation == _generation(known[0]):
                known.append(merged(piece, rules))
        return pools

    def _of_pool(self, pool: list[Object], held: Mapping[DeviceKey, list[Holding]]) -> Iterator[FleetDevice]:
        announced = pool[0]["spec"]["pool"].get("resourceSliceCount") or len(pool)
        missing = f"pool has {len(pool)} of {announced} slices" if len(pool) < announced else ""
        for piece in pool:
            spec = piece["spec"]
            driver, name = spec.get("driver") or "", spec["pool"].get("name") or ""
            for device in spec.get("devices") or ():
                key = DeviceKey(driver, name, device.get("name") or "")
                node = device.get("nodeName") or spec.get("nodeName") or ""
                mine = tuple(held.get(key, ()))
                state, reasons = self._state(key, node, device, mine, missing)
                yield FleetDevice(key, node, state, reasons, mine, device)

    def _state(
        self, key: DeviceKey, node: str, device: Object, mine: tuple[Holding, ...], missing: str
    ) -> tuple[State, tuple[str, ...]]:
        taints = tuple(taint_text(taint) for taint in device.get("taints") or () if taint.get("effect") in _REFUSING)
        if any(not holding.admin for holding in mine):
            return "held", taints
        if taints:
            return "tainted", taints
        short = self.counters(key.driver, key.pool).short(device)
        taken = f"what is in use leaves too little of {short}" if short else ""
        reasons = tuple(reason for reason in (self.unreachable(node), missing, taken) if reason)
        return ("stranded", reasons) if reasons else ("free", ())

    def unreachable(self, node: str) -> str:
        """Why no pod can go to a node, "" if one can or if it is not known."""
        if not node or self.snapshot.why_unread(resources.NODES.group_resource):
            return ""
        return self._nodes.get(node, f"there is no node {node}")

    @cached_property
    def _nodes(self) -> dict[str, str]:
        return {name_of(node): _closed(node) for node in self.snapshot.all("Node")}


def _closed(node: Object) -> str:
    if (node.get("spec") or {}).get("unschedulable"):
        return "the node is cordoned"
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return "the node is not ready"
    return ""


def _generation(piece: Object) -> int:
    return int(((piece.get("spec") or {}).get("pool") or {}).get("generation") or 0)
