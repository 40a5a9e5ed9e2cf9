"""How many more fit: for each class and kind of device, on each node and in all, counted as the allocator would give.

Free devices are the wrong number where devices overlap: of seven free slices no 3g can be made if they lie in four GPUs
or at the wrong places (partitionable devices, KEP-4815), and what is left of a shared device is counted in shares
(consumable capacity, KEP-5075). So each kind is handed out one by one until nothing more fits, and beside that number
stands what the same rest would be good for if it lay in one piece: the difference is fragmentation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from drakkar.allocation import AllocationError
from drakkar.allocation.allocate import Pod
from drakkar.allocation.capacity import amounts_for
from drakkar.allocation.features import DEFAULT_FEATURES
from drakkar.allocation.pools import NodeView, PoolBody
from drakkar.allocation.units import billionths
from drakkar.kube.quantity import Quantity
from drakkar.planning.cluster import PlannedCluster
from drakkar.planning.counters import Counters, Field, fits, take
from drakkar.scheduling.nodes import NodeState

__all__ = ["SIZES", "Capacity", "Kind", "Row", "capacity_of"]

SIZES: Final = (1, 2, 4, 8)
_PATIENCE: Final = 5.0  # seconds for one class
_UNLIMITED: Final = 1 << 30
_SHOWN: Final = 4
_BILLION: Final = 10**9


class Kind(NamedTuple):
    """What people tell devices apart by: driver, type with profile, product."""

    driver: str
    type: str
    product: str

    def __str__(self) -> str:
        return self.type or self.driver


@dataclass
class Row:
    """One class and kind.

    Attributes:
        total: devices there are, in use or not.
        share: what one share takes of a device that is shared, "" for devices that are given as a whole.
        by_node: how many more fit on each node; nodes without such a device are not there.
        whole: what the rest would be enough for if it lay in one piece.
        remark: why that is more than what fits.
    """

    class_name: str
    kind: Kind
    total: int = 0
    share: str = ""
    by_node: dict[str, int] = field(default_factory=dict)
    whole: int = 0
    remark: str = ""

    @property
    def fits(self) -> int:
        return sum(self.by_node.values())

    @property
    def unlimited(self) -> bool:
        return self.fits >= _UNLIMITED

    def pods(self, size: int) -> int:
        """How many pods that want `size` of them, on one node each, could be served at once."""
        return sum(count // size for count in self.by_node.values())

    def to_dict(self) -> dict[str, Any]:
        """The row as plain JSON; null stands for unlimited."""
        found: dict[str, Any] = {
            "class": self.class_name,
            "driver": self.kind.driver,
            "type": self.kind.type,
            "product": self.kind.product,
            "total": self.total,
            "fits": None if self.unlimited else self.fits,
            "byNode": {name: None if count >= _UNLIMITED else count for name, count in self.by_node.items()},
            "pods": {str(size): None if self.unlimited else self.pods(size) for size in SIZES},
        }
        if self.share:
            found["share"] = self.share
        if self.whole > self.fits:
            found |= {"ifPacked": self.whole, "remark": self.remark}
        return found


@dataclass(frozen=True)
class Capacity:
    """All rows; `problems` are classes that cannot be evaluated and nodes that were left out, with the reason."""

    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The capacity as plain JSON."""
        return {"rows": [row.to_dict() for row in self.rows], "problems": list(self.problems)}


def capacity_of(cluster: PlannedCluster, shares: Mapping[str, Quantity] | None = None) -> Capacity:
    """How many more devices of each class and kind fit now.

    Args:
        shares: what one more share would ask for, by capacity (``memory: 10Gi``); otherwise what devices give when
            nothing is asked for.
    """
    counted = _Counting(cluster, shares or {})
    for name in cluster.devices.state.classes:
        counted.add_class(name)
    rows = sorted(counted.rows.values(), key=lambda row: (row.class_name, row.kind))
    return Capacity(tuple(rows), tuple(counted.problems))


class _Counting:
    def __init__(self, cluster: PlannedCluster, shares: Mapping[str, Quantity]) -> None:
        self.cluster, self.shares = cluster, shares
        self.rows: dict[tuple[str, Kind], Row] = {}
        self.problems: dict[str, None] = {}
        self._groups: dict[int, tuple[Any, list[tuple[Kind, int]]]] = {}
        self._known: dict[tuple[Any, ...], int] = {}
        self._ledgers: dict[int, tuple[PoolBody, Counters]] = {}
        self._pieces: dict[tuple[str, Kind], list[_Set]] = {}

    def add_class(self, name: str) -> None:
        exactly = {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}
        claim = {
            "metadata": {"namespace": "drakkar-plan", "name": name, "uid": name},
            "spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
        }
        state = self.cluster.devices.state
        seen: set[tuple[Any, ...]] = set()
        try:
            asked = Pod(state, [claim], deadline=time.monotonic() + _PATIENCE, now=time.monotonic)
        except AllocationError as error:
            self.problems[f"class {name}: {error.message}"] = None
            return
        for node in sorted(self.cluster.view.existing(), key=lambda node: node.name):
            if node.unschedulable or node.node is None:
                continue
            view = asked.world.view(node.node)
            plan = view.plans.get(asked.key)
            if plan is None:
                try:
                    asked.on(node.node)
                except AllocationError as error:
                    self.problems[f"node {node.name}, class {name}: {error.message}"] = None
                    if error.timed_out:
                        return  # the others would take as long
                plan = view.plans.get(asked.key)
            if plan is not None:
                self._add_node(name, node, view, plan, seen)
        for (class_name, kind), pieces in self._pieces.items():
            if class_name == name:
                _in_one_piece(self.rows[class_name, kind], pieces)

    def _add_node(
        self, class_name: str, node: NodeState, view: NodeView, plan: Any, seen: set[tuple[Any, ...]]
    ) -> None:
        (ask,) = plan.claims[0].requests[0].asks
        groups = self._groups.get(id(plan))
        if groups is None:
            groups = self._groups[id(plan)] = plan, list(_by_kind(view, ask.ok))
        for kind, bits in groups[1]:
            row = self.rows.setdefault((class_name, kind), Row(class_name, kind))
            fresh = self._fresh(view, bits, seen)
            if not fresh:
                continue  # devices that several nodes can reach are counted once
            row.total += fresh.bit_count()
            row.by_node[node.name] = row.by_node.get(node.name, 0) + self._fits(view, plan, kind, fresh, row)
            if fresh & view.consuming:
                for body, offset in view.parts:
                    mine = (fresh >> offset) & ((1 << body.size) - 1)
                    if mine:
                        counters = self._counters(body)
                        names = list(body.index)
                        devices = [names[number] for number in _numbers(mine)]
                        found = _sets(view.name, counters, counters.left(self._in_use(body)), devices)
                        self._pieces.setdefault((class_name, kind), []).extend(found)

    def _fresh(self, view: NodeView, bits: int, seen: set[tuple[Any, ...]]) -> int:
        if all(record.node_name for body, _ in view.parts for record in body.slices):
            return bits
        found = 0
        for number in _numbers(bits):
            key = view.devices[number].key
            if key not in seen:
                seen.add(key)
                found |= 1 << number
        return found

    def _fits(self, view: NodeView, plan: Any, kind: Kind, bits: int, row: Row) -> int:
        used = view.in_use()
        if bits & view.shareable:
            return self._shares(view, bits & ~used, row)
        if not bits & view.consuming:
            return (bits & ~used).bit_count()
        key = id(plan), kind, bits, used
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._one_by_one(view, bits & ~used)
        return found

    def _one_by_one(self, view: NodeView, bits: int) -> int:
        """Devices handed out in search order until nothing more fits, as claims for one device each get them."""
        count = 0
        for body, offset in view.parts:
            counters = self._counters(body)
            left = counters.left(self._in_use(body))
            over = any(amount < 0 for amount in left.values())  # blocks all that takes from counters
            names = list(body.index)
            for number in _numbers((bits >> offset) & ((1 << body.size) - 1)):
                wanted = counters.wants(names[number])
                if not wanted or (not over and fits(left, wanted)):
                    take(left, wanted)
                    count += 1
        return count

    def _counters(self, body: PoolBody) -> Counters:
        found = self._ledgers.get(id(body))
        if found is None:
            found = self._ledgers[id(body)] = body, Counters([*body.slices, *body.wide])
        return found[1]

    def _in_use(self, body: PoolBody) -> list[str]:
        uses = self.cluster.devices.state.usage.pools.get((body.key.driver, body.key.pool), {})
        return [name for name, use in uses.items() if use.wholes]

    def _shares(self, view: NodeView, bits: int, row: Row) -> int:
        usage = self.cluster.devices.state.usage
        count = 0
        for number in _numbers(bits):
            device = view.devices[number]
            use = usage.devices.get(device.key)
            consumed = use.consumed if use is not None else {}
            wanted = {
                name: amount for name, amount in self.shares.items() if name in (device.raw.get("capacity") or {})
            }
            amounts = amounts_for(device.raw.get("capacity") or {}, wanted, DEFAULT_FEATURES)
            taken = {name: amount for name, amount in amounts.taken.items() if amount.sign > 0}
            if not row.share:
                row.share = ", ".join(f"{name} {amount}" for name, amount in taken.items()) or "nothing"
            if amounts.refusal is not None:
                continue
            count += min(
                (_times(device.raw, name, amount, consumed) for name, amount in taken.items()), default=_UNLIMITED
            )
        return min(count, _UNLIMITED)


def _times(raw: Mapping[str, Any], name: str, amount: Quantity, consumed: Mapping[str, int]) -> int:
    """How often an amount fits into what is left of a capacity."""
    total = billionths(raw["capacity"][name].get("value"))
    each = billionths(str(amount))
    return max(0, (total - consumed.get(name, 0)) // each)


def _numbers(bits: int) -> Iterator[int]:
    while bits:
        bit = bits & -bits
        yield bit.bit_length() - 1
        bits ^= bit


def _by_kind(view: NodeView, bits: int) -> Iterator[tuple[Kind, int]]:
    found: dict[Kind, int] = {}
    for number in _numbers(bits):
        device = view.devices[number]
        kind = kind_of(device.key.driver, device.raw)
        found[kind] = found.get(kind, 0) | 1 << number
    yield from found.items()


def kind_of(driver: str, raw: Mapping[str, Any]) -> Kind:
    """The kind of a device, by the attributes that drivers publish in their own domain."""
    kind = " ".join(word for word in (_text(driver, raw, "type"), _text(driver, raw, "profile")) if word)
    return Kind(driver, kind, _text(driver, raw, "productName"))


def _text(driver: str, raw: Mapping[str, Any], name: str) -> str:
    attributes = raw.get("attributes") or {}
    value = attributes.get(name) or attributes.get(f"{driver}/{name}") or {}
    return str(value.get("string") or "")


# --- fragmentation ----------------------------------------------------------------------------------------------------


class _Set(NamedTuple):
    """What is left of one counter set for one kind: by family of counters, and at which places the kind can lie."""

    node: str
    name: str
    left: Mapping[str, int]
    total: Mapping[str, int]
    need: Mapping[str, int]
    most: int  # how many fit while nothing is in use
    free: Mapping[str, tuple[str, ...]]
    places: tuple[str, ...]


def _in_one_piece(row: Row, sets: Sequence[_Set]) -> None:
    """What the rest of all counter sets together would be enough for, and why it is not what fits."""
    if not sets:
        return
    need = sets[0].need
    families = [family for family, amount in need.items() if amount > 0]
    if not families:
        return
    total = {family: sum(one.left.get(family, 0) for one in sets) for family in families}
    most = max(one.most for one in sets)
    # All that is left, moved together: as many untouched sets as that makes, and one with the remainder.
    row.whole = min(
        total[family] // size * most + min(most, total[family] % size // need[family])
        for family in families
        if (size := max(one.total.get(family, 0) for one in sets))
    )
    apart = sum(max(0, min(one.left.get(family, 0) // need[family] for family in families)) for one in sets)
    if row.whole <= row.fits:
        row.whole = row.fits  # spread over many sets is as good, or better where a set takes few of the kind
        return
    # What people know best are the places (memory slices), so they are told of these where they tell the story.
    numbered = [family for family in families if any(one.free.get(family) for one in sets)]
    scattered = [name for name in families if sum(one.left.get(name, 0) // need[name] for one in sets) < row.whole]
    spread = row.fits >= apart and bool(scattered)
    choice = [name for name in numbered if not spread or name in scattered] or scattered or families
    family = choice[0]
    some = [one for one in sets if one.left.get(family, 0) > 0]
    shown = ", ".join(f"{_amount(one.left[family])} in {one.name} on {one.node}" for one in some[:_SHOWN])
    more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    start = (
        f"{_amount(total[family])} × {family} are left in all ({shown}{more}), which packed would be enough for"
        f" {row.whole} × {row.kind}, but {row.fits} fit{'s' if row.fits == 1 else ''}"
    )
    if spread:
        row.remark = f"{start}: one takes {_amount(need[family])} of the same set"
        return
    one = next((one for one in some if one.left[family] >= need[family] and one.places), some[0])
    free = _span(list(one.free.get(family, ()))) or "none"
    row.remark = f"{start}: free in {one.name} are {free}, and one can only lie at {' or '.join(one.places[:_SHOWN])}"


def _sets(node: str, counters: Counters, left_of: Mapping[Field, int], devices: Iterable[str]) -> Iterator[_Set]:
    wanted: dict[str, list[dict[str, int]]] = {}
    for device in devices:
        by_set: dict[str, dict[str, int]] = {}
        for (set_name, counter), amount in counters.wants(device).items():
            by_set.setdefault(set_name, {})[counter] = amount
        for set_name, want in by_set.items():
            wanted.setdefault(set_name, []).append(want)
    for set_name, wants in wanted.items():
        mine = {field.counter: amount for field, amount in counters.total.items() if field.set == set_name}
        left: dict[str, int] = {}
        total: dict[str, int] = {}
        free: dict[str, list[str]] = {}
        for counter, amount in mine.items():
            family, rest = _family(counter), left_of[Field(set_name, counter)]
            left[family] = left.get(family, 0) + max(0, rest)
            total[family] = total.get(family, 0) + amount
            if rest > 0 and family != counter:
                free.setdefault(family, []).append(counter)
        need: dict[str, int] = {}
        for counter, amount in wants[0].items():
            need[_family(counter)] = need.get(_family(counter), 0) + amount
        places = [_span([name for name, amount in want.items() if amount and _family(name) != name]) for want in wants]
        yield _Set(
            node,
            set_name,
            left,
            total,
            need,
            _most(wants, mine),
            {name: tuple(found) for name, found in free.items()},
            tuple(dict.fromkeys(place for place in places if place)),
        )


def _most(wants: Sequence[Mapping[str, int]], total: Mapping[str, int]) -> int:
    """How many fit into a set while nothing is in use, handed out in their order."""
    rest = dict(total)
    count = 0
    for want in wants:
        if all(rest.get(counter, 0) >= amount for counter, amount in want.items()):
            for counter, amount in want.items():
                rest[counter] -= amount
            count += 1
    return count


def _family(counter: str) -> str:
    """Counters that differ in a number at the end only are places of the same thing: ``memory-slice-3``."""
    return re.sub(r"-?\d+$", "", counter)


def _span(counters: list[str]) -> str:
    """Places as people write them: `memory-slice-0 to 3, 6`."""
    numbers = sorted(int(match[0]) for name in counters if (match := re.search(r"\d+$", name)))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    return f"{_family(counters[0])}-{shown}" if shown else ""


def _amount(value: int) -> str:
    return str(value // _BILLION) if value % _BILLION == 0 else f"{value / _BILLION:g}"
