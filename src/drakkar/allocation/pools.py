"""Pools as seen from a node: which slices belong together, whether they are whole and sound, and the device numbers.

Rules of KEP-4381 as the 1.37 allocator applies them: slices for the node first, then those without a node name; a
newer generation replaces an older one; a pool that does not reach the announced number of slices is looked up in the
whole cluster, and is then obsolete, incomplete or complete. Devices are numbered in the order of the search, pools by
(driver, name) with pools that have binding conditions last, slices by name, devices by index.

A `PoolBody` is shared by all nodes that see the same slices of a pool, a `NodeView` is one node's list of bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from drakkar.allocation.counters import CounterLedger, GroupState, compatible, problem_in_counters
from drakkar.allocation.features import Features
from drakkar.allocation.nodes import node_selector_matches, node_selector_problem
from drakkar.allocation.slices import Device, SliceRecord
from drakkar.allocation.usage import DeviceUse
from drakkar.api.identities import PoolKey

INCOMPLETE: Final = "incomplete"
INVALID: Final = "invalid"
_COUNTED_LIMIT: Final = 512
UNKNOWN: Final = -1  # never a vector: what a device takes, packed, is not below zero unless it fits trivially


class PoolBody:
    """The numbered devices of one pool and everything derived from their content."""

    __slots__ = (
        "_devices",
        "_index",
        "bits",
        "in_use",
        "key",
        "late",
        "ledger",
        "names",
        "problem",
        "shareable",
        "shared",
        "simple",
        "size",
        "slices",
        "status",
        "wide",
    )

    def __init__(
        self, key: PoolKey, slices: Sequence[SliceRecord], wide: Sequence[SliceRecord], features: Features
    ) -> None:
        self.key = key
        self.slices = sorted(slices, key=_slice_name) if len(slices) > 1 else list(slices)
        self.wide = wide  # further slices of the pool, for other nodes
        plain = len(slices) == 1 and not wide and slices[0].lonely
        self.problem = "" if plain else _problem(self.slices, wide, features)
        self.status = INVALID if self.problem else ""
        self.late = False
        self.simple = True  # see `contents`
        self.shareable = 0
        self.size = 0
        self.names: list[str] = []
        self._devices: list[Device] | None = None
        self._index: dict[str, int] | None = None
        self.in_use = 0  # devices that are taken as a whole
        self.shared = 0  # devices of which at least one share is in use
        self.bits: dict[Any, Any] = {}  # per predicate: its bit set over these devices
        self.ledger: CounterLedger | None = None
        if self.problem:
            return
        for record in self.slices:
            self.late = self.late or record.binding
            self.simple = self.simple and record.simple and not record.consuming
            if features.consumable_capacity:
                self.shareable |= record.shareable << self.size
            self.size += len(record.names)
        if len(self.slices) == 1:
            self.names = self.slices[0].names
        else:
            self.names = [name for record in self.slices for name in record.names]
        if features.partitionable_devices and not plain:
            everything = [*self.slices, *wide]
            if any(record.consuming for record in everything):
                self.ledger = CounterLedger(everything)

    @property
    def devices(self) -> list[Device]:
        """The devices by number."""
        if self._devices is None:
            self._devices = [] if self.problem else [d for record in self.slices for d in record.all_devices()]
        return self._devices

    def device(self, number: int) -> Device:
        """One device, without making those before it."""
        for record in self.slices:
            size = len(record.names)
            if number < size:
                return record.device(number)
            number -= size
        raise IndexError(number)

    @property
    def index(self) -> dict[str, int]:
        """The number of each device, by name."""
        if self._index is None:
            if len(self.slices) == 1 and not self.problem:
                self._index = self.slices[0].index
            else:
                self._index = dict(zip(self.names, range(self.size), strict=True))
        return self._index

    def note_all(self, uses: Mapping[str, DeviceUse], *, shares: bool) -> None:
        """Take over how all devices of the pool are in use."""
        if self.ledger is not None or not shares:
            for name, use in uses.items():
                self.note_use(name, use, shares=shares)
            return
        in_use = shared = 0
        index = self.index
        for name, use in uses.items():
            number = index.get(name)
            if number is not None:
                if use.wholes:
                    in_use |= 1 << number
                if use.shares:
                    shared |= 1 << number
        self.in_use, self.shared = in_use, shared

    def note_use(self, device: str, use: DeviceUse | None, *, shares: bool) -> None:
        """Take over how a device is in use; without `shares` any use takes the whole device."""
        whole = use is not None and (bool(use.wholes) or (not shares and bool(use.shares)))
        shared = use is not None and shares and bool(use.shares)
        number = self.index.get(device)
        if number is not None:
            bit = 1 << number
            self.in_use = self.in_use | bit if whole else self.in_use & ~bit
            self.shared = self.shared | bit if shared else self.shared & ~bit
        if self.ledger is not None:
            self.ledger.set_in_use(device, whole or shared)


class BrokenPool:
    """A pool whose devices cannot be used now; it keeps its place in the order."""

    __slots__ = ("key", "late", "problem", "size", "status")

    def __init__(self, key: PoolKey, status: str, problem: str) -> None:
        self.key = key
        self.status = status
        self.problem = problem
        self.late = False
        self.size = 0


class NodeView:
    """One node's devices, numbered over all its pools."""

    __slots__ = (
        "_counted",
        "_devices",
        "amounts",
        "bits",
        "body",
        "broken",
        "capable",
        "consuming",
        "error",
        "group_of",
        "guards",
        "invalid",
        "members",
        "name",
        "node",
        "obsolete",
        "part_of",
        "parts",
        "plans",
        "pools",
        "shareable",
        "simple",
        "size",
        "vectors",
    )

    def __init__(self, node: Mapping[str, Any], pools: Sequence[PoolBody | BrokenPool], error: str = "") -> None:
        self.node = node
        self.name: str = (node.get("metadata") or {}).get("name") or ""
        self.error = error
        self.pools = pools if len(pools) == 1 else sorted(pools, key=_pool_order)
        self.parts: list[tuple[PoolBody, int]] = []
        self.size = 0
        self._devices: list[Device] | None = None
        self.broken: list[BrokenPool | PoolBody] = []
        self.obsolete: list[PoolKey] = []
        self.invalid = counting = False
        self.shareable = 0
        self.simple = True
        for pool in self.pools:
            if isinstance(pool, BrokenPool) or pool.status:
                self.broken.append(pool)
                self.invalid = self.invalid or pool.status == INVALID
                continue
            self.parts.append((pool, self.size))
            self.shareable |= pool.shareable << self.size
            self.simple = self.simple and pool.simple
            counting = counting or pool.ledger is not None
            self.size += pool.size
        self.body = self.parts[0][0] if len(self.parts) == 1 else None
        self.simple = self.simple and not self.broken
        self.consuming = 0  # devices that take from shared counters
        self.part_of: list[int] = []
        self.group_of: list[int] = []  # of counter sets; the lists below are by group
        self.vectors: list[int | None] = []  # per device, `UNKNOWN` until `vector` was asked
        self.guards: list[int] = []
        self.members: list[int] = []
        self._counted: list[dict[int, int]] = []
        if counting:
            self._lay_out_counters()
        self.bits: dict[Any, Any] = {}
        self.plans: dict[Any, Any] = {}  # see `plans`
        self.amounts: dict[Any, dict[int, Any]] = {}  # by what is asked and device, see `capacity`
        status = node.get("status") or {}
        self.capable = frozenset(status.get("declaredFeatures") or ())

    @property
    def devices(self) -> list[Device]:
        """The devices by number."""
        if self._devices is None:
            self._devices = [device for body, _ in self.parts for device in body.devices]
        return self._devices

    def device(self, number: int) -> Device:
        """One device, without making all the others."""
        if self.body is not None:
            return self.body.device(number)
        if self._devices is None:
            for body, offset in self.parts:
                if number < offset + body.size:
                    return body.device(number - offset)
        return self.devices[number]

    def in_use(self) -> int:
        """The devices that are taken as a whole."""
        if self.body is not None:
            return self.body.in_use
        bits = 0
        for body, offset in self.parts:
            bits |= body.in_use << offset
        return bits

    def shared(self) -> int:
        """The devices of which shares are in use."""
        bits = 0
        for body, offset in self.parts:
            bits |= body.shared << offset
        return bits

    def counters_left(self) -> tuple[list[int], list[bool]]:
        """By group of counter sets what is left, packed, and whether the pool is over-allocated."""
        left: list[int] = []
        over: list[bool] = []
        for body, _ in self.parts:
            if body.ledger is not None:
                left += body.ledger.left
                over += [body.ledger.over_allocated] * len(body.ledger.left)
        return left, over

    def vector(self, device: int) -> int | None:
        """What a device takes from the counters of its group, packed; None if it never fits."""
        found = self.vectors[device]
        if found == UNKNOWN:
            body, offset = self.parts[self.part_of[device]]
            ledger = body.ledger
            found = None if ledger is None else ledger.vector(body.names[device - offset])
            self.vectors[device] = found
        return found

    def counted(self, group: int, left: int) -> int:
        """The devices of a group of counter sets that so much suffices for, each alone."""
        known = self._counted[group]
        found = known.get(left)
        if found is None:
            found, bits, guard = 0, self.members[group], self.guards[group]
            lifted = left | guard
            while bits:
                bit = bits & -bits
                bits ^= bit
                vector = self.vector(bit.bit_length() - 1)
                if vector is not None and (lifted - vector) & guard == guard:
                    found |= bit
            if len(known) >= _COUNTED_LIMIT:
                known.clear()
            known[left] = found
        return found

    def groups_in_use(self) -> GroupState:
        """The compatibility groups that the devices in use leave, per part and counter set."""
        state: GroupState = {}
        for part, (body, _) in enumerate(self.parts):
            for record in (*body.slices, *body.wide) if body.ledger is not None else ():
                for raw in record.raw_devices:
                    if body.ledger is not None and body.ledger.in_use(raw["name"]):
                        state = compatible(part, state, raw.get("consumesCounters") or ()) or state
        return state

    def _lay_out_counters(self) -> None:
        for part, (body, offset) in enumerate(self.parts):
            ledger, first = body.ledger, len(self.guards)
            self.part_of += [part] * body.size
            if ledger is None:
                self.group_of += [first] * body.size
                continue
            self.guards += ledger.guards
            self.members += [0] * len(ledger.guards)
            members, groups = self.members, ledger.groups
            for number, name in enumerate(body.names, offset):
                group = first + groups.get(name, 0)
                self.group_of.append(group)
                if name in groups:
                    members[group] |= 1 << number
        self.vectors = [UNKNOWN] * self.size
        self._counted = [{} for _ in self.guards]
        for bits in self.members:
            self.consuming |= bits


def gather(
    node: Mapping[str, Any],
    local: Sequence[SliceRecord],
    everywhere: Sequence[SliceRecord],
    slices_of_pool: Callable[[PoolKey], Iterable[SliceRecord]],
    body_of: Callable[[PoolKey, tuple[SliceRecord, ...], tuple[SliceRecord, ...]], PoolBody],
    features: Features,
) -> tuple[NodeView, list[PoolKey]]:
    """The node's view, and the pools whose slices it depends on."""
    if len(local) == 1 and local[0].lonely and not everywhere:
        record = local[0]
        return NodeView(node, [body_of(record.key, (record,), ())]), [record.key]
    groups: dict[PoolKey, list[SliceRecord]] = {}
    for record in (*local, *everywhere):
        try:
            if not _for_node(record, node, features):
                continue
        except _Unreadable as unreadable:
            return NodeView(node, (), f"gather pool information: {unreadable}"), list(groups)
        group = groups.get(record.key)
        if group is None or record.generation > group[0].generation:
            groups[record.key] = [record]
        elif record.generation == group[0].generation:
            group.append(record)
    pools: list[PoolBody | BrokenPool] = []
    obsolete = []
    for key, group in groups.items():
        wide: list[SliceRecord] = []
        count, generation = group[0].count, group[0].generation
        if len(group) != count:
            found = list(slices_of_pool(key))
            if any(record.generation > generation for record in found):
                obsolete.append(key)
                continue
            found = [r for r in found if r.generation == generation and not _ignored(r, features)]
            if len(found) != count:
                text = f"{len(found)} of {count} slices of generation {generation}"
                pools.append(BrokenPool(key, INCOMPLETE, text))
                continue
            ours = set(map(id, group))
            wide = [record for record in found if id(record) not in ours]
        pools.append(body_of(key, tuple(group), tuple(wide)))
    view = NodeView(node, pools)
    view.obsolete = obsolete
    return view, list(groups)


class _Unreadable(Exception):
    """A node selector of a slice or device that cannot be parsed."""


def _for_node(record: SliceRecord, node: Mapping[str, Any], features: Features) -> bool:
    if _ignored(record, features):
        return False
    if not features.partitionable_devices and (record.per_device or record.counter_sets):
        return False
    if record.node_name or record.all_nodes:
        return True
    if record.selector is not None:
        problem = node_selector_problem(record.selector)
        if problem:
            raise _Unreadable(f"failed to perform node selection for slice {record.name}: {problem}")
        return node_selector_matches(record.selector, node)
    return record.per_device and any(_device_for_node(raw, record, node) for raw in record.raw_devices)


def _device_for_node(raw: Mapping[str, Any], record: SliceRecord, node: Mapping[str, Any]) -> bool:
    selector = raw.get("nodeSelector")
    if selector is not None and not raw.get("nodeName"):
        problem = node_selector_problem(selector)
        if problem:
            where = f"device {raw['name']} in slice {record.name}"
            raise _Unreadable(f"failed to perform node selection for {where}: {problem}")
    return device_is_for(raw, node)


def device_is_for(raw: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether a device with its own node selection is for this node; raises `AllocationError` if unreadable."""
    if raw.get("nodeName"):
        return bool(raw["nodeName"] == (node.get("metadata") or {}).get("name"))
    if raw.get("allNodes") is True:
        return True
    selector = raw.get("nodeSelector")
    return selector is not None and node_selector_matches(selector, node)


def _ignored(record: SliceRecord, features: Features) -> bool:
    """Slices with compatibility groups do not exist for a scheduler that does not know them."""
    return record.grouped and not features.compatibility_groups


def _problem(slices: Sequence[SliceRecord], wide: Sequence[SliceRecord], features: Features) -> str:
    seen: set[str] = set()
    for record in slices:
        twice = record.duplicate or (next(iter(seen.intersection(record.names)), "") if seen else "")
        if twice:
            return f"device {twice} is published twice"
        if len(slices) > 1:
            seen.update(record.names)
    return problem_in_counters([*slices, *wide]) if features.partitionable_devices else ""


def _slice_name(record: SliceRecord) -> bytes:
    return record.name.encode()


def _pool_order(pool: PoolBody | BrokenPool) -> tuple[bool, bytes, bytes]:
    return pool.late, pool.key.driver.encode(), pool.key.pool.encode()
