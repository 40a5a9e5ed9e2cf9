"""The smallest changes that would make claims fit on a node, each tried out before it is named.

A change is a value that can be applied to a state and to claims, both copied. Kinds, from the least intrusive: fewer
devices, a smaller amount, a toleration, a wider selector, a constraint dropped, claims released, devices added. Per
kind the smallest one is named: one device more or one step less and the claims would not fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

from drakkar.allocation.allocate import Allocation, allocate
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.funnel import RequestFunnel
from drakkar.allocation.refusal import Refusal
from drakkar.allocation.selection import value_of
from drakkar.allocation.state import ClusterState
from drakkar.allocation.taints import untolerated
from drakkar.allocation.usage import Holder
from drakkar.cel.values import Failure
from drakkar.kube.quantity import Quantity
from drakkar.kube.semver import Version

Json = dict[str, Any]
Claims = Sequence[Mapping[str, Any]]

_TRIALS_PER_KIND: Final = 64
_PATIENCE: Final = 100.0  # looks at the clock during one trial; a search looks every 64 steps
_SPARE_POOL: Final = "spare.drakkar"


class Change(NamedTuple):
    """One change that makes the claims fit."""

    kind: str  # fewer-devices, smaller-amount, toleration, selector, constraint, release, more-devices
    text: str
    apply: Callable[[ClusterState, Claims], tuple[ClusterState, Claims]]

    def to_dict(self) -> Json:
        return {"kind": self.kind, "text": self.text}


def smallest_changes(refusal: Refusal) -> list[Change]:
    """For each kind of change the smallest one that makes the refused claims fit; checked by allocating."""
    refusal = _on_its_own_pools(refusal)
    found = []
    for kind in (_fewer, _smaller, _tolerated, _wider, _unconstrained, _released, _added):
        change = next((change for change in _limited(kind(refusal)) if fits(refusal, change)), None)
        if change is not None:
            found.append(change)
    return found


def _on_its_own_pools(refusal: Refusal) -> Refusal:
    """The same refusal of a state that has only the pools which the node sees: trials copy the state."""
    pools = [*(pool.key for pool in refusal.view.pools), *refusal.view.obsolete]
    state = refusal.world.state.part(pools)
    again = _attempt(state, refusal.claims, refusal)
    return again if isinstance(again, Refusal) else refusal


def fits(refusal: Refusal, change: Change) -> bool:
    """Whether the refused claims fit on their node after the change; a trial that takes too long counts as no."""
    state, claims = change.apply(refusal.world.state, refusal.claims)
    return isinstance(_attempt(state, claims, refusal), Allocation)


def _attempt(state: ClusterState, claims: Claims, refusal: Refusal) -> Allocation | Refusal | None:
    """Allocate on the node of a refusal; None where that ends in an error or takes too long."""
    ticks = itertools.count(0.0)
    try:
        return allocate(
            state,
            claims,
            refusal.view.node,
            features=refusal.world.features,
            deadline=_PATIENCE,
            now=ticks.__next__,
        )
    except AllocationError:
        return None


def _limited(changes: Iterable[Change]) -> Iterator[Change]:
    for number, change in enumerate(changes):
        if number == _TRIALS_PER_KIND:
            return
        yield change


def _fewer(refusal: Refusal) -> Iterator[Change]:
    options = []
    for path, raw in _asks(refusal):
        count = raw.get("count") or 0
        options += [(count - less, path, count) for less in range(1, count)]
    for less_count, path, count in sorted(options, key=lambda option: option[2] - option[0]):
        text = f"ask for {less_count} instead of {count} devices in request {path.name}"
        yield Change("fewer-devices", text, _edited(path, {"count": less_count}))


def _smaller(refusal: Refusal) -> Iterator[Change]:
    for path, raw in _asks(refusal):
        wanted = (raw.get("capacity") or {}).get("requests") or {}
        for name, amount in wanted.items():
            for less in _amounts_left(refusal, name, Quantity.from_json(amount)):
                requests = {**wanted, name: str(less)}
                text = f"ask for {less} instead of {amount} of {name} in request {path.name}"
                yield Change("smaller-amount", text, _edited(path, {"capacity": {"requests": requests}}))


def _amounts_left(refusal: Refusal, name: str, wanted: Quantity) -> list[Quantity]:
    """What devices still give of a capacity, less than wanted, the most first."""
    found = set()
    for device in refusal.view.devices:
        published = (device.raw.get("capacity") or {}).get(name)
        if published is None:
            continue
        left = Quantity.from_json(published.get("value"))
        use = refusal.world.state.usage.devices.get(device.key)
        if use is not None and name in use.consumed:
            left = left.sub(Quantity(use.consumed[name], -9, left.format))
        less = _allowed(left, published.get("requestPolicy") or {})
        if less is not None and less.sign > 0 and less.compare(wanted) < 0:
            found.add(less)
    return sorted(found, reverse=True)


def _allowed(left: Quantity, policy: Mapping[str, Any]) -> Quantity | None:
    """The largest amount that a request policy allows within what is left."""
    values = [Quantity.from_json(value) for value in policy.get("validValues") or ()]
    if values:
        return max((value for value in values if value.compare(left) <= 0), default=None)
    span = policy.get("validRange") or {}
    if span.get("max") is not None:
        left = min(left, Quantity.from_json(span["max"]))
    if span.get("min") is None or span.get("step") is None:
        return left
    low, step = Quantity.from_json(span["min"]), Quantity.from_json(span["step"])
    scale = min(low.scale, step.scale, left.scale, 0)
    width, base = step.scaled_value(scale), low.scaled_value(scale)
    room = left.scaled_value(scale) - base
    return Quantity(base + room // width * width, scale, step.format) if width > 0 and room >= 0 else None


def _tolerated(refusal: Refusal) -> Iterator[Change]:
    for path, raw in _asks(refusal):
        tolerations = raw.get("tolerations") or []
        taints: dict[tuple[str, str, str], Json] = {}
        for device in refusal.view.devices:
            for taint in untolerated(device.raw.get("taints") or (), tolerations):
                key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
                toleration = {"key": key, "operator": "Equal", "value": value, "effect": effect}
                taints[(key, value, effect)] = toleration
        for size in range(1, len(taints) + 1):
            for chosen in combinations(taints, size):
                names = ", ".join(f"{key}{'=' + value if value else ''}:{effect}" for key, value, effect in chosen)
                more = [taints[taint] for taint in chosen]
                yield Change(
                    "toleration",
                    f"tolerate {names} in request {path.name}",
                    _edited(path, {"tolerations": [*tolerations, *more]}),
                )


def _wider(refusal: Refusal) -> Iterator[Change]:
    """Selectors that also take the values that nearly fitting devices have."""
    for path, raw in _asks(refusal):
        funnel = _funnel(refusal, path)
        if funnel is None:
            continue
        selectors = raw.get("selectors") or []
        for clause, actual, literal in _wanted_values(refusal, funnel):
            for number, selector in enumerate(selectors):
                text = (selector.get("cel") or {}).get("expression") or ""
                if clause.clause.text not in text:
                    continue
                wider = f"({clause.clause.text} || {_equals(clause.clause.subject, actual, literal)})"
                edited = text.replace(clause.clause.text, wider, 1)
                changed = [*selectors[:number], {"cel": {"expression": edited}}, *selectors[number + 1 :]]
                yield Change(
                    "selector",
                    f"accept {clause.clause.subject} {clause.actual} (wanted {clause.wanted}) in request {path.name}",
                    _edited(path, {"selectors": changed}),
                )


def _wanted_values(refusal: Refusal, funnel: RequestFunnel) -> Iterator[tuple[Any, Any, str]]:
    """Clauses of the request's selectors with values that devices have instead, the nearest values first."""
    found: dict[tuple[str, str], Any] = {}
    for device in refusal.view.devices:
        for text in funnel.plan.ask.query.of_request:
            program = refusal.world.selector(text).program
            if program is None:
                continue
            for result in program.evaluate_clauses({"device": value_of(device)}):
                if result.value is False and result.clause.subject and result.actual is not None:
                    found.setdefault((result.clause.text, result.actual), result)
    usable = [(r, r.actual_value, _literal(r.actual_value)) for r in found.values()]
    usable = [item for item in usable if item[2]]
    yield from sorted(usable, key=lambda item: _distance(item[0]))


def _distance(result: Any) -> tuple[int, float]:
    """How far a value is from what was wanted; unordered values come last."""
    actual, wanted = result.actual_value, result.wanted_value
    if isinstance(actual, Quantity) and isinstance(wanted, Quantity):
        return 0, abs(actual.as_float() - wanted.as_float())
    if isinstance(actual, int) and isinstance(wanted, int):
        return 0, abs(float(actual) - float(wanted))
    return 1, 0.0


def _literal(value: Any) -> str:
    """A value as a CEL expression, or an empty text."""
    if isinstance(value, Failure) or value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Quantity):
        return f"quantity('{value}')"
    return f"semver('{value}')" if isinstance(value, Version) else ""


def _equals(subject: str, actual: Any, literal: str) -> str:
    if isinstance(actual, Quantity | Version):
        return f"{subject}.compareTo({literal}) == 0"
    return f"{subject} == {literal}"


def _unconstrained(refusal: Refusal) -> Iterator[Change]:
    for number, claim in enumerate(refusal.claims):
        constraints = ((claim.get("spec") or {}).get("devices") or {}).get("constraints") or []
        for place, constraint in enumerate(constraints):
            kind = "matchAttribute" if constraint.get("matchAttribute") is not None else "distinctAttribute"
            text = f"drop {kind} {constraint.get(kind)} from claim {refusal.label(number)}"
            kept = constraints[:place] + constraints[place + 1 :]
            yield Change("constraint", text, _with_devices(number, {"constraints": kept}))


def _released(refusal: Refusal) -> Iterator[Change]:
    usage = refusal.world.state.usage
    near: dict[tuple[str, str], Any] = {}
    pools = {(pool.key.driver, pool.key.pool) for pool, _ in refusal.view.parts}
    for driver, pool in pools:
        for use in usage.pools.get((driver, pool), {}).values():
            for key in use.holders():
                near[key] = usage.claims[key].holder
    for size in range(1, len(near) + 1):
        for chosen in combinations(near, size):
            names = ", ".join(_named(near[key]) for key in chosen)
            text = f"release claim {names}" if size == 1 else f"release {size} claims: {names}"
            yield Change("release", text, _without_claims(chosen))


def _named(holder: Holder) -> str:
    return f"{holder} (used by {holder.people})" if holder.reserved_for else str(holder)


def _added(refusal: Refusal) -> Iterator[Change]:
    """More devices like one that the request could have."""
    for path, raw in _asks(refusal):
        funnel = _funnel(refusal, path)
        count = raw.get("count") or 0
        template = next(
            (
                device
                for number, device in enumerate(refusal.view.devices)
                if funnel is not None and _content_fits(funnel, number)
            ),
            None,
        )
        if template is None:
            continue
        for more in range(1, count + 1):
            noun = "device" if more == 1 else "devices"
            text = f"{more} more {noun} like {template.name} on node {refusal.node}"
            yield Change("more-devices", text, _with_spares(template.raw, template.key.driver, refusal.node, more))


def _content_fits(funnel: RequestFunnel, number: int) -> bool:
    return bool((funnel.plan.ok >> number) & 1)


class _Path(NamedTuple):
    claim: int
    request: int
    alternative: int | None
    name: str


def _asks(refusal: Refusal) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    for number, claim in enumerate(refusal.claims):
        requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
        for place, request in enumerate(requests):
            if request.get("exactly") is not None:
                yield _Path(number, place, None, request["name"]), request["exactly"]
            for index, alternative in enumerate(request.get("firstAvailable") or ()):
                yield _Path(number, place, index, f"{request['name']}/{alternative['name']}"), alternative


def _funnel(refusal: Refusal, path: _Path) -> RequestFunnel | None:
    label = refusal.label(path.claim)
    return next((f for f in refusal.funnels if f.claim == label and f.request == path.name), None)


def _edited(path: _Path, fields: Json) -> Callable[[ClusterState, Claims], tuple[ClusterState, Claims]]:
    def apply(state: ClusterState, claims: Claims) -> tuple[ClusterState, Claims]:
        requests = list(claims[path.claim]["spec"]["devices"]["requests"])
        request = requests[path.request]
        if path.alternative is None:
            requests[path.request] = {**request, "exactly": {**request["exactly"], **fields}}
        else:
            subs = list(request["firstAvailable"])
            subs[path.alternative] = {**subs[path.alternative], **fields}
            requests[path.request] = {**request, "firstAvailable": subs}
        return _with_devices(path.claim, {"requests": requests})(state, claims)

    return apply


def _with_devices(number: int, fields: Json) -> Callable[[ClusterState, Claims], tuple[ClusterState, Claims]]:
    def apply(state: ClusterState, claims: Claims) -> tuple[ClusterState, Claims]:
        claim = claims[number]
        devices = {**claim["spec"]["devices"], **fields}
        edited = {**claim, "spec": {**claim["spec"], "devices": devices}}
        return state, [*claims[:number], edited, *claims[number + 1 :]]

    return apply


def _without_claims(keys: Sequence[tuple[str, str]]) -> Callable[[ClusterState, Claims], tuple[ClusterState, Claims]]:
    def apply(state: ClusterState, claims: Claims) -> tuple[ClusterState, Claims]:
        changed = state.copy()
        for namespace, name in keys:
            changed.remove_claim({"metadata": {"namespace": namespace, "name": name}})
        return changed, claims

    return apply


def _with_spares(
    raw: Mapping[str, Any], driver: str, node: str, number: int
) -> Callable[[ClusterState, Claims], tuple[ClusterState, Claims]]:
    own = {
        key: value
        for key, value in raw.items()
        if key not in ("consumesCounters", "nodeName", "nodeSelector", "allNodes")
    }

    def apply(state: ClusterState, claims: Claims) -> tuple[ClusterState, Claims]:
        changed = state.copy()
        devices = [{**own, "name": f"spare-{i}"} for i in range(number)]
        pool = {"name": _SPARE_POOL, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        changed.upsert_slice({"metadata": {"name": _SPARE_POOL}, "spec": spec})
        return changed, claims

    return apply
