"""Consumable capacity (KEP-5075): what a request takes of a device, and whether that is still there.

A request policy rounds the wanted amount up (range with step, list of values) or refuses it. Upstream calculates with
64-bit integers, in thousandths when min, max and step can all be expressed in them (1.37), and reports amounts that do
not fit as errors of the whole attempt; the texts here are upstream's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from drakkar.allocation.features import Features
from drakkar.allocation.units import in_billionths, text
from drakkar.kube.quantity import Quantity

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_NOTHING: Final[Mapping[str, int]] = {}


class CapacityProblem(Exception):
    """An amount that upstream's arithmetic cannot represent; ends the scheduling attempt."""


class CapacityShortage(NamedTuple):
    """One capacity that does not suffice, for people."""

    name: str
    wanted: str
    left: str
    why: str


class Amounts:
    """What one device gives for one request: taken amounts by capacity name, or why it cannot."""

    __slots__ = ("_numbers", "refusal", "taken")

    def __init__(
        self, taken: Mapping[str, Quantity], totals: Mapping[str, Quantity], refusal: CapacityShortage | None
    ) -> None:
        self.taken = taken
        self.refusal = refusal
        self._numbers = [(name, in_billionths(amount), in_billionths(totals[name])) for name, amount in taken.items()]

    def fits(self, consumed: Mapping[str, int] = _NOTHING, by_pod: Mapping[str, int] = _NOTHING) -> bool:
        """Whether the amounts still fit beside what is consumed already (in billionths)."""
        if self.refusal is not None:
            return False
        for name, amount, total in self._numbers:
            if amount + consumed.get(name, 0) + by_pod.get(name, 0) > total:
                return False
        return True

    def added_to(self, consumed: Mapping[str, int]) -> Mapping[str, int]:
        """What is consumed after taking the amounts."""
        after = dict(consumed)
        for name, amount, _ in self._numbers:
            after[name] = after.get(name, 0) + amount
        return after

    def shortage(self, consumed: Mapping[str, int]) -> CapacityShortage | None:
        """The first capacity of which too little is left."""
        for name, amount, total in self._numbers:
            used = consumed.get(name, 0)
            if amount + used > total:
                wanted = self.taken[name]
                left = text(total - used, wanted.format)
                return CapacityShortage(name, str(wanted), left, f"{wanted} wanted, {left} left")
        return None


def amounts_for(
    capacity: Mapping[str, Mapping[str, Any]], requests: Mapping[str, Quantity], features: Features
) -> Amounts:
    """What a device with this `capacity` (name → DeviceCapacity JSON) gives for the requested amounts.

    Raises `CapacityProblem` with upstream's text if an amount cannot be expressed.
    """
    for name in requests:
        if name not in capacity:
            missing = "the device has no such capacity"
            return Amounts({}, {}, CapacityShortage(name, str(requests[name]), "0", missing))
    taken: dict[str, Quantity] = {}
    totals: dict[str, Quantity] = {}
    refusal: CapacityShortage | None = None
    for name, published in capacity.items():
        total = Quantity.from_json(published.get("value"))
        policy = published.get("requestPolicy") or {}
        try:
            amount = _taken(requests.get(name), total, policy, features)
        except CapacityProblem as problem:
            raise CapacityProblem(f'capacity "{name}": {problem}') from None
        totals[name] = total
        taken[name] = amount
        if refusal is None:
            why = _violation(amount, requests.get(name), policy, features)
            if why:
                refusal = CapacityShortage(name, str(requests.get(name, amount)), str(total), why)
    return Amounts(taken, totals, refusal)


def _taken(request: Quantity | None, total: Quantity, policy: Mapping[str, Any], features: Features) -> Quantity:
    if request is None:
        default = policy.get("default")
        amount = total if default is None else Quantity.from_json(default)
    else:
        amount = _rounded(request, policy, features)
    if amount.sign < 0:
        raise CapacityProblem("capacity value is negative")
    return amount


def _rounded(request: Quantity, policy: Mapping[str, Any], features: Features) -> Quantity:
    span = policy.get("validRange")
    if span is not None:
        return _rounded_to_range(request, span, features) if span.get("min") is not None else request
    values = [Quantity.from_json(value) for value in policy.get("validValues") or ()]
    return next((value for value in values if value.compare(request) >= 0), request)


def _rounded_to_range(request: Quantity, span: Mapping[str, Any], features: Features) -> Quantity:
    low = Quantity.from_json(span["min"])
    if request.compare(low) < 0:
        return low
    if span.get("step") is None:
        return request
    step = Quantity.from_json(span["step"])
    scale = _scale(span, features)
    if scale == -3:
        wanted = _exact(request, -3)
        if wanted is None:
            raise _unrepresentable(f"request {request} is not a representable milli value")
    else:
        wanted = request.scaled_value(0)
        if wanted > _INT64_MAX:
            if not features.fractional_capacity_range:
                wanted = _INT64_MAX
            else:
                raise _unrepresentable(f"request {request} exceeds MaxInt64")
    base, width = low.scaled_value(scale), step.scaled_value(scale)
    if width <= 0:
        return request
    rest = (wanted - base) % width
    rounded = wanted + (width - rest if rest else 0)
    if rounded > _INT64_MAX:
        limit = "the milli-value range" if scale == -3 else "MaxInt64"
        raise _unrepresentable(f"rounding request {request} up to the next step passes {limit}")
    return Quantity(rounded, scale, step.format)


def _violation(amount: Quantity, request: Quantity | None, policy: Mapping[str, Any], features: Features) -> str:
    """Why the policy refuses an amount, or an empty text."""
    if not policy or (request is None and policy.get("default") is not None and _go_equal(amount, policy["default"])):
        return ""
    values = policy.get("validValues")
    span = policy.get("validRange")
    if span is not None:
        high, low, step = span.get("max"), span.get("min"), span.get("step")
        if low is not None and amount.compare(Quantity.from_json(low)) < 0:
            return f"{amount} is below the minimum {low}"
        if high is not None and amount.compare(Quantity.from_json(high)) > 0:
            return f"{amount} is above the maximum {high}"
        if step is not None and low is not None:
            scale = _scale(span, features)
            width = Quantity.from_json(step).scaled_value(scale)
            offset = amount.scaled_value(scale) - Quantity.from_json(low).scaled_value(scale)
            if width > 0 and offset % width:
                return f"{amount} is not a multiple of {step} from {low}"
        return ""
    if values and all(amount.compare(Quantity.from_json(value)) for value in values):
        return f"{amount} is none of " + ", ".join(map(str, values))
    return ""


def _scale(span: Mapping[str, Any], features: Features) -> int:
    """-3 if the range can be calculated in thousandths, else 0."""
    if not features.fractional_capacity_range:
        return 0
    bounds = [Quantity.from_json(span[name]) for name in ("min", "max", "step") if span.get(name) is not None]
    return -3 if all(_exact(bound, -3) is not None for bound in bounds) else 0


def _exact(quantity: Quantity, scale: int) -> int | None:
    """The number of 10^scale if it is whole and fits 64 bits."""
    number = quantity.scaled_value(scale)
    if not _INT64_MIN <= number <= _INT64_MAX or Quantity(number, scale).compare(quantity):
        return None
    return number


def _go_equal(amount: Quantity, default: Any) -> bool:
    """Go compares quantities as structs here: what it keeps as decimals is never equal to itself."""
    return amount.compact and Quantity.from_json(default).compact


def _unrepresentable(text: str) -> CapacityProblem:
    return CapacityProblem(f"capacity request cannot be represented in the device's range arithmetic: {text}")
