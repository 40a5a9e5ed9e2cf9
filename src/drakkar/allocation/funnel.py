"""Where the candidates of a request went: a funnel from all devices of the node to those that could be allocated now.

The stages follow the life of a device in the search: class, selectors (clause by clause), node, gates, taints, in use
(by whom), counters, capacity. For each device every obstacle is found, not only the first one, so that the nearest
misses (those with the fewest obstacles) can be named. Nothing of this is needed to allocate; it is worked out when
somebody asks why not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from drakkar.allocation.errors import AllocationError
from drakkar.allocation.plans import AskPlan
from drakkar.allocation.pools import NodeView, PoolBody, device_is_for
from drakkar.allocation.selection import Failure, amounts_of, operations_known, value_of
from drakkar.allocation.slices import Device
from drakkar.allocation.taints import untolerated

if TYPE_CHECKING:
    from drakkar.allocation.state import World

CLASS: Final = "class"
SELECTORS: Final = "selectors"
NODE: Final = "node"
GATES: Final = "gates"
TAINTS: Final = "taints"
IN_USE: Final = "in use"
COUNTERS: Final = "counters"
CAPACITY: Final = "capacity"
STAGES: Final = (CLASS, SELECTORS, NODE, GATES, TAINTS, IN_USE, COUNTERS, CAPACITY)
_NEAREST: Final = 3


class Obstacle(NamedTuple):
    """One thing that keeps one device from one request; equal `about` means the same thing for several devices."""

    stage: str
    about: str  # the clause, the taint, the counter, …
    wanted: str = ""
    actual: str = ""
    by: tuple[str, ...] = ()  # who holds the device
    clause: Any = None  # the clause's result, for looking at values

    @property
    def text(self) -> str:
        """The obstacle in words."""
        if self.wanted and self.actual:
            return f"{self.about}: {self.wanted} wanted, {self.actual} found"
        return self.about

    def to_dict(self) -> dict[str, Any]:
        fields = {"stage": self.stage, "about": self.about, "wanted": self.wanted, "actual": self.actual}
        found: dict[str, Any] = {key: value for key, value in fields.items() if value}
        if self.by:
            found["by"] = list(self.by)
        return found


class Reason(NamedTuple):
    """One thing that removed devices at a stage."""

    about: str
    wanted: str
    actual: tuple[str, ...]  # the different values found
    by: tuple[str, ...]
    devices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"about": self.about, "count": len(self.devices), "devices": list(self.devices)}
        for key, value in (("wanted", self.wanted), ("actual", list(self.actual)), ("by", list(self.by))):
            if value:
                found[key] = value
        return found


class Stage(NamedTuple):
    """What one stage removed and what it left."""

    name: str
    removed: int
    left: int
    reasons: tuple[Reason, ...]

    def to_dict(self) -> dict[str, Any]:
        reasons = [reason.to_dict() for reason in self.reasons]
        return {"stage": self.name, "removed": self.removed, "left": self.left, "reasons": reasons}


class Miss(NamedTuple):
    """A device that nearly fits."""

    device: str
    obstacles: tuple[Obstacle, ...]


class RequestFunnel(NamedTuple):
    """The way of one request's (or alternative's) candidates."""

    claim: str
    request: str
    class_name: str
    wanted: int  # devices; for mode All those that match
    all_devices: bool
    candidates: int
    stages: tuple[Stage, ...]
    left: int
    nearest: tuple[Miss, ...]
    bits: int  # the devices that are left, as numbered in the view
    plan: AskPlan

    @property
    def enough(self) -> bool:
        """Whether the request alone could be served."""
        return self.left >= self.wanted and (self.wanted > 0 or not self.all_devices)

    def stage(self, name: str) -> Stage:
        """One stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def to_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "request": self.request,
            "class": self.class_name,
            "wanted": "all" if self.all_devices else self.wanted,
            "candidates": self.candidates,
            "stages": [stage.to_dict() for stage in self.stages if stage.removed],
            "left": self.left,
            "nearest": [
                {"device": miss.device, "obstacles": [obstacle.to_dict() for obstacle in miss.obstacles]}
                for miss in self.nearest
            ],
        }


def funnel_of(world: World, view: NodeView, claim: str, plan: AskPlan) -> RequestFunnel:
    """The funnel of one request on one node, with nothing else of the pod allocated."""
    found = [
        (device, tuple(obstacles(world, view, body, number, device, plan)))
        for body, _ in view.parts
        for number, device in enumerate(body.devices)
    ]
    left = len(found)
    stages = []
    for name in STAGES:
        here = [(device, first) for device, (first, *_) in ((d, o) for d, o in found if o) if first.stage == name]
        left -= len(here)
        stages.append(Stage(name, len(here), left, tuple(_reasons(here))))
    missed = sorted((item for item in found if item[1]), key=lambda item: len(item[1]))
    fewest = len(missed[0][1]) if missed else 0
    nearest = tuple(Miss(str(device.key), what) for device, what in missed[:_NEAREST] if len(what) == fewest)
    bits = sum(1 << number for number, (_, what) in enumerate(found) if not what)
    ask = plan.ask
    return RequestFunnel(
        claim, ask.name, ask.class_record.name, plan.size, ask.all_devices, len(found), tuple(stages), left, nearest,
        bits, plan,
    )  # fmt: skip


def obstacles(
    world: World, view: NodeView, body: PoolBody, number: int, device: Device, plan: AskPlan
) -> Iterator[Obstacle]:
    """Everything that keeps a device from a request now, in the order of the stages."""
    ask, features, raw = plan.ask, world.features, device.raw
    yield from _failed_clauses(world, device, CLASS, ask.query.of_class)
    yield from _failed_clauses(world, device, SELECTORS, ask.query.of_request)
    if device.slice.per_device:
        try:
            mine = device_is_for(raw, view.node)
        except AllocationError as error:
            yield Obstacle(NODE, error.message)
            mine = True
        if not mine:
            yield Obstacle(NODE, "the device is for other nodes")
    if not features.device_binding_and_status and raw.get("bindingConditions"):
        yield Obstacle(GATES, "the device has binding conditions and their feature gate is off")
    if not features.partitionable_devices and raw.get("consumesCounters"):
        yield Obstacle(GATES, "the device consumes shared counters and their feature gate is off")
    if not operations_known(device, view, features):
        yield Obstacle(GATES, f"the node cannot skip {', '.join(device.slice.skip_operations)}")
    if features.device_taints:
        for taint in untolerated(raw.get("taints") or (), ask.tolerations):
            yield Obstacle(TAINTS, taint_text(taint))
    bit = 1 << number
    if body.in_use & bit and not ask.admin:
        holders = world.state.usage.holders(device.key)
        yield Obstacle(IN_USE, "the device is in use", by=tuple(dict.fromkeys(holder.people for holder in holders)))
    ledger = body.ledger
    pays = ledger is not None and ledger.consumes(device.name) and not (body.shareable & bit and body.shared & bit)
    if ledger is not None and pays and (ask.admin or not body.in_use & bit):
        for shortage in ledger.shortages(device.name)[:1]:
            about = f"counter {shortage.counter} of {shortage.counter_set}"
            yield Obstacle(COUNTERS, about, shortage.wanted, f"{shortage.left} left")
    if features.consumable_capacity:
        yield from _capacity_obstacles(world, device, plan)


def taint_text(taint: Mapping[str, Any]) -> str:
    """A taint as people write it: key=value:Effect."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def _failed_clauses(world: World, device: Device, stage: str, texts: Sequence[str]) -> Iterator[Obstacle]:
    for text in texts:
        selector = world.selector(text)
        if selector.problem:
            yield Obstacle(stage, f"{text}: {selector.problem}")
            continue
        value = value_of(device)
        if value.problem:
            yield Obstacle(stage, value.problem)
            continue
        for result in selector.program.evaluate_clauses({"device": value}):
            if result.value is True:
                continue
            actual = result.actual if result.actual is not None else (result.error or "false")
            yield Obstacle(stage, result.clause.text, result.wanted or "true", actual, clause=result)


def _capacity_obstacles(world: World, device: Device, plan: AskPlan) -> Iterator[Obstacle]:
    found = amounts_of(device, plan.ask, world.features, always=True)
    if isinstance(found, Failure):
        yield Obstacle(CAPACITY, found.text)
        return
    if found is None:
        return
    use = world.state.usage.devices.get(device.key)
    shortage = found.refusal or found.shortage(use.consumed if use is not None else {})
    if shortage is not None:
        left = f"{shortage.left} left" if found.refusal is None else shortage.why
        yield Obstacle(CAPACITY, f"capacity {shortage.name}", shortage.wanted, left)


def _reasons(removed: Iterable[tuple[Device, Obstacle]]) -> Iterator[Reason]:
    """Obstacles of one stage, put together by what they are about, most frequent first."""
    grouped: dict[tuple[str, str], list[tuple[Device, Obstacle]]] = {}
    for device, obstacle in removed:
        grouped.setdefault((obstacle.about, obstacle.wanted), []).append((device, obstacle))
    for (about, wanted), items in sorted(grouped.items(), key=lambda item: -len(item[1])):
        actual = dict.fromkeys(obstacle.actual for _, obstacle in items if obstacle.actual)
        by = dict.fromkeys(holder for _, obstacle in items for holder in obstacle.by)
        yield Reason(about, wanted, tuple(actual), tuple(by), tuple(device.name for device, _ in items))
