"""Claims, slices, classes and taint rules as the scheduler knows them, with allocations that the API does not show yet.

This is the DynamicResources plugin's state (KEP-4381). An allocation counts from the moment it is decided: between
Reserve and the API write it is in flight, afterwards the written object is trusted until the informer has caught up,
so that no device is handed out twice however fast pods come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drakkar.allocation.state import ClusterState
from drakkar.allocation.taint_rules import TaintRule
from drakkar.scheduling.cluster_view import ClusterView
from drakkar.scheduling.extended_resources import ClassNames, special_owner
from drakkar.scheduling.node_affinity import NodeSelector

Object = Mapping[str, Any]
ClaimKey = tuple[str, str]
PoolKey = tuple[str, str]


class DeviceState:
    """Feeds `drakkar.allocation` from informers; tells `view` which nodes must be judged again.

    `share_id` makes the IDs of devices that are given out in shares; random ones by default.
    """

    def __init__(self, view: ClusterView, *, share_id: Callable[[], str] | None = None) -> None:
        self.share_id = share_id
        self.state = ClusterState()
        self.class_names = ClassNames(())
        self._view = view
        self._classes: dict[str, Object] = {}
        self._claims: dict[ClaimKey, Object] = {}
        self._special: dict[str, ClaimKey] = {}
        self._ahead: dict[str, Object] = {}
        self._in_flight: set[str] = set()
        self._slices: dict[str, Object] = {}
        self._rules: dict[str, Object] = {}
        self._wide: dict[PoolKey, int] = {}

    # Reading

    def claim(self, namespace: str, name: str) -> Object | None:
        """The newest version of a claim that is known, including what is only in flight."""
        claim = self._claims.get((namespace, name))
        return claim if claim is None else self._ahead.get(claim["metadata"]["uid"], claim)

    def special_claim(self, pod_uid: str) -> Object | None:
        """The claim for extended resources that was made for a pod earlier, perhaps before a restart."""
        key = self._special.get(pod_uid)
        return None if key is None else self.claim(*key)

    def in_flight(self, uid: str) -> bool:
        """Whether devices were chosen for the claim and the API server has not confirmed it yet."""
        return uid in self._in_flight

    def has_class(self, name: str) -> bool:
        return name in self._classes

    # What informers say

    def set_claim(self, claim: Object) -> bool:
        """A claim appeared or changed; true if devices became free."""
        key = _key(claim)
        uid = claim["metadata"]["uid"]
        before = self._claims.get(key)
        if before is not None and before["metadata"]["uid"] != uid:
            self.drop_claim(before)
            before = None
        self._claims[key] = claim
        owner = _special_owner(claim)
        if owner:
            self._special[owner] = key
        ahead = self._ahead.get(uid)
        if ahead is not None:
            if uid in self._in_flight or _version(claim) < _version(ahead):
                return False
            del self._ahead[uid]
            before = ahead
        return self._account(before, claim)

    def drop_claim(self, claim: Object) -> bool:
        """A claim is gone; true if that freed devices."""
        known = self._claims.pop(_key(claim), None)
        uid = claim["metadata"]["uid"]
        self._special.pop(_special_owner(claim), None)
        held = self._ahead.pop(uid, known)
        self._in_flight.discard(uid)
        if held is None:
            return False
        self.state.remove_claim(held)
        return self._touch_for(held)

    def set_slice(self, piece: Object) -> None:
        name = piece["metadata"]["name"]
        before = self._slices.get(name)
        if before is not None:
            self._widen(before, -1)
            self._touch_slice(before)
        self._slices[name] = piece
        self._widen(piece, 1)
        self.state.upsert_slice(piece)
        self._touch_slice(piece)

    def drop_slice(self, piece: Object) -> None:
        known = self._slices.pop(piece["metadata"]["name"], None)
        if known is not None:
            self._widen(known, -1)
            self.state.remove_slice(known)
            self._touch_slice(known)

    def set_class(self, device_class: Object) -> bool:
        """A class appeared or changed; false if only its status or metadata did."""
        name = device_class["metadata"]["name"]
        before = self._classes.get(name)
        self._classes[name] = device_class
        if before is not None and before.get("spec") == device_class.get("spec"):
            return False
        self.state.upsert_class(device_class)
        self._reclassify()
        return True

    def drop_class(self, device_class: Object) -> None:
        if self._classes.pop(device_class["metadata"]["name"], None) is not None:
            self.state.remove_class(device_class)
            self._reclassify()

    def set_rule(self, rule: Object) -> bool:
        """A taint rule appeared or changed; false if only its status did."""
        name = rule["metadata"]["name"]
        before = self._rules.get(name)
        self._rules[name] = rule
        if before is not None and before.get("spec") == rule.get("spec"):
            return False
        self.state.upsert_taint_rule(rule)
        self._touch_pools([rule] if before is None else [before, rule])
        return True

    def drop_rule(self, rule: Object) -> None:
        before = self._rules.pop(rule["metadata"]["name"], None)
        if before is not None:
            self.state.remove_taint_rule(before)
            self._touch_pools([before])

    # What the scheduler itself decides

    def assume(self, claim: Object) -> None:
        """Count `claim` (a copy that carries its allocation) as allocated from now on."""
        uid = claim["metadata"]["uid"]
        self._ahead[uid] = claim
        self._in_flight.add(uid)
        self.state.upsert_claim(claim)
        self._touch_for(claim)

    def confirm(self, claim: Object) -> None:
        """The API server took it: `claim` is what it answered."""
        uid = claim["metadata"]["uid"]
        self._in_flight.discard(uid)
        known = self._claims.get(_key(claim))
        if known is None or known["metadata"]["uid"] != uid:
            self._claims[_key(claim)] = claim
        elif _version(known) >= _version(claim):
            before = self._ahead.pop(uid, None)
            self._account(before, known)
            return
        before = self._ahead.get(uid)
        self._ahead[uid] = claim
        self._account(before, claim)

    def forget(self, uid: str, claim: Object) -> None:
        """The decision did not come about: the claim is again what the API server last said.

        What was confirmed already is not touched; it is taken back by writing.
        """
        if uid not in self._in_flight:
            return
        self._in_flight.discard(uid)
        ahead = self._ahead.pop(uid, None)
        if ahead is None:
            return
        known = self._claims.get(_key(claim))
        if known is not None and known["metadata"]["uid"] == uid:
            self._account(ahead, known)
        else:
            self.state.remove_claim(ahead)
            self._touch_for(ahead)

    # Bookkeeping

    def _account(self, before: Object | None, after: Object) -> bool:
        """Bring the allocator up to date; true if devices became free."""
        old, new = _allocation(before), _allocation(after)
        if old == new and (before is not None or new is None):  # what holds nothing is no business of the allocator
            return False
        self.state.upsert_claim(after)
        if before is not None:
            self._touch_for(before)
        self._touch_for(after)
        return old is not None

    def _touch_for(self, claim: Object) -> bool:
        allocation = _allocation(claim)
        if allocation is None:
            return False
        if not self._view.nodes:
            return True  # nobody has judged a node yet
        results = (allocation.get("devices") or {}).get("results") or ()
        selector = allocation.get("nodeSelector")
        names = _named_by(selector) if selector else None
        if names is None or any((one["driver"], one["pool"]) in self._wide for one in results):
            self._view.touch_all()
        else:
            for name in names:
                self._view.touch(name)
        return True

    def _touch_slice(self, piece: Object) -> None:
        node = (piece.get("spec") or {}).get("nodeName")
        if node:
            self._view.touch(node)
        else:
            self._view.touch_all()

    def _widen(self, piece: Object, step: int) -> None:
        # Devices or counters of such a pool can be reached from several nodes, so taking one concerns all of them.
        spec = piece.get("spec") or {}
        if spec.get("nodeName"):
            return
        key = spec["driver"], spec["pool"]["name"]
        count = self._wide.get(key, 0) + step
        if count > 0:
            self._wide[key] = count
        else:
            self._wide.pop(key, None)

    def _reclassify(self) -> None:
        self.class_names = ClassNames(self._classes.values())
        self._view.touch_all()

    def _touch_pools(self, rules: Iterable[Object]) -> None:
        concerned = [TaintRule.from_object(rule) for rule in rules]
        for piece in self._slices.values():
            spec = piece["spec"]
            if any(rule.covers_pool(spec["driver"], spec["pool"]["name"]) for rule in concerned):
                self._touch_slice(piece)


def _named_by(selector: Mapping[str, Any]) -> Iterable[str] | None:
    """The only nodes that can satisfy a selector. Most allocations name one node, which is seen without parsing."""
    terms: Sequence[Mapping[str, Any]] = selector.get("nodeSelectorTerms") or []
    if len(terms) == 1 and not terms[0].get("matchExpressions"):
        fields: Sequence[Mapping[str, Any]] = terms[0].get("matchFields") or []
        if len(fields) == 1 and fields[0].get("key") == "metadata.name" and fields[0].get("operator") == "In":
            named: Iterable[str] = fields[0].get("values") or ()
            return named
    return NodeSelector.parse(selector).names()


def _key(claim: Object) -> ClaimKey:
    return claim["metadata"].get("namespace") or "", claim["metadata"]["name"]


def _version(claim: Object) -> int:
    # Comparable since Kubernetes 1.35 (KEP-5504): a longer or larger number is newer.
    return int(claim["metadata"].get("resourceVersion") or 0)


def _allocation(claim: Object | None) -> Mapping[str, Any] | None:
    if claim is None:
        return None
    found: Mapping[str, Any] | None = (claim.get("status") or {}).get("allocation")
    return found


def _special_owner(claim: Object) -> str:
    """The UID of the pod whose extended resources the claim stands for; empty for ordinary claims."""
    owner = special_owner(claim)
    return "" if owner is None else str(owner["uid"])
