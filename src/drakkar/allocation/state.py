"""The state of the cluster that allocation looks at: slices, classes, claims; fed one change at a time.

A scheduler feeds it from its informers and asks `allocate` for many nodes per pod. What can be prepared is prepared
per set of features in a `World` and thrown away as narrowly as possible: a changed slice costs its own node's view,
a changed claim a few bits. Nothing handed in is ever changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from drakkar.allocation.demand import Demand
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import Features
from drakkar.allocation.plans import Plan
from drakkar.allocation.pools import NodeView, PoolBody, gather
from drakkar.allocation.requests import ClaimShape, ClassRecord
from drakkar.allocation.selection import Answers, Selector, environment_of
from drakkar.allocation.shapes import Claim, Node, check
from drakkar.allocation.slices import SliceRecord
from drakkar.allocation.taint_rules import TaintRule, merged
from drakkar.allocation.usage import ClaimKey, ClaimUse, Holder, Usage
from drakkar.api.identities import DeviceKey, PoolKey
from drakkar.cel import Environment
from drakkar.kube.quantity import QuantityError

_SHAPE_LIMIT: Final = 4096
_PASSED_LIMIT: Final = 64
_SELECTOR_LIMIT: Final = 1024

_encode = msgspec.json.encode


class ClusterState:
    """Slices, classes and allocated claims, as of now."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.classes: dict[str, ClassRecord] = {}
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._rules: dict[str, TaintRule] = {}
        self._slices: dict[str, SliceRecord] = {}
        self._local: dict[str, dict[str, SliceRecord]] = {}
        self._everywhere: dict[str, SliceRecord] = {}
        self._pools: dict[PoolKey, dict[str, SliceRecord]] = {}
        self._observed: dict[ClaimKey, ClaimUse] = {}
        self._assumed: dict[ClaimKey, ClaimUse] = {}
        self._worlds: dict[Features, World] = {}
        self._world: World | None = None
        # Answers of selectors depend on content only, so copies share them.
        self._selectors: dict[Features, dict[str, Selector]] = {}

    def upsert_slice(self, obj: Mapping[str, Any]) -> None:
        """Add or replace a ResourceSlice (v1 JSON); raises `AllocationError` if it is not shaped like one."""
        self._take_slice(SliceRecord(self._with_rules(obj)), obj)

    def remove_slice(self, obj: Mapping[str, Any]) -> None:
        """Forget a ResourceSlice; unknown ones are ignored."""
        record = self._slices.get((obj.get("metadata") or {}).get("name") or "")
        if record is not None:
            self._remove(record)

    def upsert_taint_rule(self, obj: Mapping[str, Any]) -> None:
        """Add or replace a DeviceTaintRule; its taint is merged into the devices it selects."""
        rule = TaintRule.from_object(obj)
        before = self._rules.get(rule.name)
        self._rules[rule.name] = rule
        self._rule_changed([rule] if before is None else [before, rule])

    def remove_taint_rule(self, obj: Mapping[str, Any]) -> None:
        """Forget a DeviceTaintRule; unknown ones are ignored."""
        rule = self._rules.pop((obj.get("metadata") or {}).get("name") or "", None)
        if rule is not None:
            self._rule_changed([rule])

    def upsert_class(self, obj: Mapping[str, Any]) -> None:
        """Add or replace a DeviceClass."""
        record = ClassRecord(obj)
        self.classes[record.name] = record
        self._classes_changed()

    def remove_class(self, obj: Mapping[str, Any]) -> None:
        """Forget a DeviceClass; unknown ones are ignored."""
        if self.classes.pop((obj.get("metadata") or {}).get("name") or "", None) is not None:
            self._classes_changed()

    def upsert_claim(self, obj: Mapping[str, Any]) -> None:
        """Take over what a claim holds now, which may be nothing.

        An assumed allocation stays in force until the claim shows an allocation of its own, is replaced by another
        claim of the same name, or is removed or forgotten.
        """
        use = ClaimUse(obj)
        key = (use.holder.namespace, use.holder.name)
        if (obj.get("status") or {}).get("allocation") is not None:
            self._observed[key] = use
            self._assumed.pop(key, None)
        else:
            self._observed.pop(key, None)
            assumed = self._assumed.get(key)
            if assumed is not None and assumed.holder.uid != use.holder.uid:
                del self._assumed[key]
        self._claim_changed(key)

    def remove_claim(self, obj: Mapping[str, Any]) -> None:
        """The claim is gone; whatever it held is free."""
        metadata = obj.get("metadata") or {}
        key = (metadata.get("namespace") or "", metadata.get("name") or "")
        self._observed.pop(key, None)
        self._assumed.pop(key, None)
        self._claim_changed(key)

    def assume(self, claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> None:
        """Count an allocation that is decided but not yet seen through the API (in flight)."""
        status = {**(claim.get("status") or {}), "allocation": allocation}
        use = ClaimUse({"metadata": claim.get("metadata"), "status": status}, assumed=True)
        key = (use.holder.namespace, use.holder.name)
        self._assumed[key] = use
        self._claim_changed(key)

    def forget(self, claim: Mapping[str, Any]) -> None:
        """Take an assumed allocation back; what was seen through the API stays in force."""
        metadata = claim.get("metadata") or {}
        key = (metadata.get("namespace") or "", metadata.get("name") or "")
        if self._assumed.pop(key, None) is not None:
            self._claim_changed(key)

    def in_flight(self, claim: Mapping[str, Any]) -> bool:
        """Whether the claim has an assumed allocation."""
        metadata = claim.get("metadata") or {}
        return (metadata.get("namespace") or "", metadata.get("name") or "") in self._assumed

    def holders(self, driver: str, pool: str, device: str) -> list[Holder]:
        """The claims that hold a device now, shares included, admin access not."""
        return self.usage.holders(DeviceKey(driver, pool, device))

    def copy(self) -> ClusterState:
        """An independent state with the same content, for "what if"; objects are shared, being never changed."""
        other = ClusterState()
        other._rules = dict(self._rules)
        other._selectors = self._selectors
        for obj in self._objects.values():
            other.upsert_slice(obj)
        other.classes = dict(self.classes)
        other._observed, other._assumed = dict(self._observed), dict(self._assumed)
        for key in {**self._observed, **self._assumed}:
            other._claim_changed(key)
        return other

    def part(self, pools: Iterable[PoolKey]) -> ClusterState:
        """A state of its own with some pools only, and with the claims that hold devices in them.

        Everything that is asked about nodes which see no other pool has the same answer there, and trials cost what
        those pools cost, not what the cluster costs.
        """
        wanted = set(pools)
        other = ClusterState()
        other._rules = dict(self._rules)
        other._selectors = self._selectors
        other.classes = dict(self.classes)
        for key in wanted:
            for name in self._pools.get(key, ()):
                other.upsert_slice(self._objects[name])
        holders = {
            claim
            for key in wanted
            for use in self.usage.pools.get((key.driver, key.pool), {}).values()
            for claim in use.holders()
        }
        other._observed = {key: use for key, use in self._observed.items() if key in holders}
        other._assumed = {key: use for key, use in self._assumed.items() if key in holders}
        for claim in self.usage.claims:
            if claim in holders:
                other._claim_changed(claim)
        return other

    def slices(self) -> Iterator[SliceRecord]:
        """All slices in the order in which they came."""
        return iter(self._slices.values())

    def world(self, features: Features) -> World:
        """What is prepared for a set of features."""
        world = self._world
        if world is not None and world.features is features:
            return world
        world = self._worlds.get(features)
        if world is None:
            selectors = self._selectors.setdefault(features, {})
            world = self._worlds[features] = World(self, features, selectors)
        self._world = world
        return world

    def local_slices(self, node_name: str) -> list[SliceRecord]:
        """The slices that belong to a node, in the order in which they came."""
        return list(self._local.get(node_name, {}).values())

    def shared_slices(self) -> list[SliceRecord]:
        """The slices without a node name."""
        return list(self._everywhere.values())

    def slices_of_pool(self, key: PoolKey) -> list[SliceRecord]:
        """All slices of a pool, whatever node they are for."""
        return list(self._pools.get(key, {}).values())

    def _take_slice(self, record: SliceRecord, obj: Mapping[str, Any]) -> None:
        before = self._slices.get(record.name)
        if before is not None and (before.key != record.key or before.node_name != record.node_name):
            self._remove(before)
            before = None
        self._slices[record.name] = record
        if record.node_name:
            self._local.setdefault(record.node_name, {})[record.name] = record
        else:
            self._everywhere[record.name] = record
        self._pools.setdefault(record.key, {})[record.name] = record
        self._slice_changed(record)
        self._objects[record.name] = obj

    def _with_rules(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        return merged(obj, list(self._rules.values())) if self._rules else obj

    def _rule_changed(self, rules: Sequence[TaintRule]) -> None:
        for name, record in list(self._slices.items()):
            if any(rule.covers_pool(record.key.driver, record.key.pool) for rule in rules):
                obj = self._objects[name]
                self._take_slice(SliceRecord(self._with_rules(obj)), obj)

    def _remove(self, record: SliceRecord) -> None:
        self._objects.pop(record.name, None)
        del self._slices[record.name]
        if record.node_name:
            local = self._local[record.node_name]
            del local[record.name]
            if not local:
                del self._local[record.node_name]
        else:
            del self._everywhere[record.name]
        pool = self._pools[record.key]
        del pool[record.name]
        if not pool:
            del self._pools[record.key]
        self._slice_changed(record)

    def _slice_changed(self, record: SliceRecord) -> None:
        for world in self._worlds.values():
            world.slice_changed(record)

    def _classes_changed(self) -> None:
        for world in self._worlds.values():
            world.classes_changed()

    def _claim_changed(self, key: ClaimKey) -> None:
        use = self._assumed.get(key) or self._observed.get(key)
        changed = self.usage.replace(key, use)
        if changed:
            for world in self._worlds.values():
                world.devices_changed(changed)


class World:
    """Everything prepared for one set of features: node views, pool bodies, compiled claims and selectors."""

    def __init__(self, state: ClusterState, features: Features, selectors: dict[str, Selector]) -> None:
        self.state = state
        self.features = features
        self.shapes: dict[bytes, ClaimShape] = {}
        self._selectors = selectors
        self.answers = Answers(self.selector, features)
        self.plans: dict[Any, Plan] = {}  # shared by nodes with equal hardware
        self._environment: Environment | None = None
        self._views: dict[str, NodeView] = {}
        # Nodes without a view that were too full: for these pods, or (None) for any.
        self._passed: dict[str, set[Any]] = {}
        self._passed_by: dict[PoolKey, str] = {}  # those nodes by pool
        self._viewers: dict[PoolKey, set[str]] = {}
        self._bodies: dict[PoolKey, dict[tuple[SliceRecord, ...], PoolBody]] = {}

    def view(self, node: Mapping[str, Any]) -> NodeView:
        """The node's devices, gathered anew only if something about them changed."""
        try:
            view = self.known_view(node)
        except (AttributeError, TypeError):
            view = None
        if view is not None:
            return view
        check(node, Node, "Node")
        name = (node.get("metadata") or {}).get("name") or ""
        state = self.state
        view, pools = gather(
            node,
            state.local_slices(name),
            state.shared_slices(),
            state.slices_of_pool,
            self._body,
            self.features,
        )
        self._views[name] = view
        for key in pools:
            self._viewers.setdefault(key, set()).add(name)
        return view

    def too_full(self, node: Mapping[str, Any], pod: Demand) -> bool:
        """Whether a node surely has fewer free devices than a pod wants, seen without preparing the node's view.

        Only where nothing else could happen on the way: the node's pools are whole and plain, and no selector fails on
        a device that is free.
        """
        name = (node.get("metadata") or {}).get("name") or ""
        passed = self._passed.get(name)
        if passed is not None and (None in passed or pod.key in passed):
            return True
        local = self.state._local.get(name)
        if not local or self.state._everywhere:
            return False
        pools, wholes = self.state.usage.pools, self.state.usage.wholes
        free: dict[PoolKey, list[int]] = {}
        left = pod.wanted
        for record in local.values():
            key = record.key
            uses = pools.get(key)
            if not record.lonely or uses is None or key in free or wholes.get(key) != len(uses):
                return False
            if len(record.names) - len(uses) >= left:
                return False
            free[key] = numbers = [number for number, name in enumerate(record.names) if name not in uses]
            left -= len(numbers)
            if left <= 0:
                return False
        nothing = left == pod.wanted
        if not nothing:
            if not pod.plain or not all(record.simple for record in local.values()):
                return False
            for record in local.values():
                if not pod.answered_on(record, free[record.key], self.answers):
                    return False
        self._pass_over(name, None if nothing else pod.key, list(free))
        return True

    def _pass_over(self, node: str, pod: Any, pools: list[PoolKey]) -> None:
        """Remember it until something of the node changes."""
        if any(self._passed_by.get(key, node) != node for key in pools):
            return  # two nodes with a pool of the same name are looked at anew
        keys = self._passed.setdefault(node, set())
        if len(keys) >= _PASSED_LIMIT:
            keys.clear()
        keys.add(pod)
        for key in pools:
            self._passed_by[key] = node

    def known_view(self, node: Mapping[str, Any]) -> NodeView | None:
        """The node's view if it is ready."""
        view = self._views.get((node.get("metadata") or {}).get("name") or "")
        if view is None or view.node is node:
            return view
        if not _same_node(view.node, node):
            return None
        view.node = node
        return view

    def shape(self, claim: Mapping[str, Any]) -> ClaimShape:
        """The claim's specification, compiled."""
        try:
            devices = (claim.get("spec") or {}).get("devices") or {}
            key = _encode(devices)
        except (AttributeError, TypeError):
            devices, key = {}, b""
        shape = self.shapes.get(key)
        if shape is None:
            check(claim, Claim, "ResourceClaim")
            if len(self.shapes) >= _SHAPE_LIMIT:
                self.shapes.clear()
            try:
                shape = self.shapes[key] = ClaimShape(devices, self.state.classes, self.features)
            except QuantityError as error:
                metadata = claim.get("metadata") or {}
                subject = f"ResourceClaim/{metadata.get('namespace', '')}/{metadata.get('name', '')}"
                raise AllocationError(
                    f"{subject}: {error.message}", reason="MalformedObject", subject=subject
                ) from error
        return shape

    def selector(self, text: str) -> Selector:
        """A compiled selector with the answers it gave so far."""
        found = self._selectors.get(text)
        if found is None:
            if len(self._selectors) >= _SELECTOR_LIMIT:
                self._selectors.clear()
            found = self._selectors[text] = Selector(text, self.environment())
        return found

    def environment(self) -> Environment:
        """The CEL environment of these features."""
        if self._environment is None:
            self._environment = environment_of(self.features)
        return self._environment

    def classes_changed(self) -> None:
        """A class came, changed or went: forget what depends on what claims ask for."""
        self.shapes.clear()
        self.plans.clear()
        self._passed.clear()
        self._passed_by.clear()

    def slice_changed(self, record: SliceRecord) -> None:
        """A slice came, changed or went: forget the views that may see it."""
        self._bodies.pop(record.key, None)
        if not record.node_name:
            self._passed.clear()
            self._passed_by.clear()
            self._views.clear()
            self._viewers.clear()
            return
        self._passed.pop(record.node_name, None)
        self._views.pop(record.node_name, None)
        for name in self._viewers.pop(record.key, ()):
            self._views.pop(name, None)

    def devices_changed(self, devices: list[DeviceKey]) -> None:
        """Devices were taken or given back."""
        shares, used = self.features.consumable_capacity, self.state.usage.devices
        for key in devices:
            pool = PoolKey(key.driver, key.pool)
            if pool in self._passed_by:
                self._passed.pop(self._passed_by.pop(pool), None)
            for body in self._bodies.get(pool, {}).values():
                body.note_use(key.device, used.get(key), shares=shares)

    def _body(self, key: PoolKey, slices: tuple[SliceRecord, ...], wide: tuple[SliceRecord, ...]) -> PoolBody:
        bodies = self._bodies.setdefault(key, {})
        body = bodies.get(slices + wide)
        if body is None or len(body.slices) != len(slices):
            body = bodies[slices + wide] = PoolBody(key, slices, wide, self.features)
            uses = self.state.usage.pools.get((key.driver, key.pool))
            if uses:
                body.note_all(uses, shares=self.features.consumable_capacity)
        return body


def _same_node(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    if old.get("labels") != new.get("labels"):
        return False
    return bool(
        (before.get("status") or {}).get("declaredFeatures") == (after.get("status") or {}).get("declaredFeatures")
    )
