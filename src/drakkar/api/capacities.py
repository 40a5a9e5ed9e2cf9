"""What is wrong with a capacity of a device and the policy for requests that share it (KEP-5075, KEP-5729 fractions).

A policy names a default and either the valid values or a range; everything must fit below the capacity, and range
arithmetic must stay within 64 bits (whole numbers, or thousandths if anything is fractional).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from drakkar.api import shared
from drakkar.api.fields import FieldError, forbidden, invalid, required
from drakkar.kube.quantity import Quantity

__all__ = ["check_capacity"]

Found = list[FieldError]
Json = Mapping[str, Any]
VALUES_LIMIT: Final = 10
_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)


def check_capacity(capacity: Json, path: str, *, multiple: bool) -> Found:
    """One capacity; only devices that allow several allocations (`multiple`) may have a policy."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    path = f"{path}.requestPolicy"
    if not multiple:
        return [forbidden(path, "allowMultipleAllocations must be true")]
    values, limits = policy.get("validValues") or [], policy.get("validRange")
    if values and limits is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden(path, detail)]
    maximum = _quantity(capacity.get("value"))
    name = "validValues" if values else "validRange" if limits is not None else ""
    if not name:
        return []
    if policy.get("default") is None:
        return [required(f"{path}.default", f"required when {name} is defined")]
    default = _quantity(policy["default"])
    if values:
        return _check_values(default, maximum, [_quantity(value) for value in values], f"{path}.validValues")
    return _check_range(default, maximum, limits or {}, f"{path}.validRange")


def _quantity(value: Any) -> Quantity:
    return Quantity.from_json(value)


def _check_values(default: Quantity, maximum: Quantity, values: Sequence[Quantity], path: str) -> Found:
    found = [
        invalid(f"{path}[{index + 1}]", str(after), "values must be sorted in ascending order")
        for index, (before, after) in enumerate(pairwise(values))
        if before > after
    ]

    def check(value: Quantity, place: str) -> Found:
        too_large = f"option is larger than capacity value: {maximum}"
        return [invalid(place, str(value), too_large)] if value > maximum else []

    found += shared.check_set(values, VALUES_LIMIT, check, _key, path)
    if default not in values or len(values) > VALUES_LIMIT:
        found.append(invalid(path, str(default), "default value is not valid according to the requestPolicy"))
    return found


def _key(value: Quantity) -> str:
    """The decimal text of a quantity, which is what duplicates are told by."""
    digits = str(abs(value.unscaled))
    sign = "-" if value.unscaled < 0 else ""
    if value.scale >= 0:
        return sign + digits + "0" * value.scale
    digits = digits.rjust(1 - value.scale, "0")
    return f"{sign}{digits[: value.scale]}.{digits[value.scale :]}"


def _check_range(default: Quantity, maximum: Quantity, limits: Json, path: str) -> Found:
    if limits.get("min") is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    low = _quantity(limits["min"])
    high = None if limits.get("max") is None else _quantity(limits["max"])
    step = None if limits.get("step") is None else _quantity(limits["step"])
    found: Found = []
    if low > maximum:
        found.append(invalid(f"{path}.min", str(low), f"min is larger than capacity value: {maximum}"))
    if default < low:
        found.append(invalid(f"{path}.default", str(default), f"default is less than min: {low}"))
    if high is not None:
        if low > high:
            found.append(invalid(f"{path}.max", str(low), f"min is larger than max: {high}"))
        if high > maximum:
            found.append(invalid(f"{path}.max", str(high), f"max is larger than capacity value: {maximum}"))
        if default > high:
            found.append(invalid(f"{path}.default", str(default), f"default is more than max: {high}"))
    bounds = [("default", default), ("min", low), ("max", high), ("step", step)]
    numbers = [(name, number) for name, number in bounds if number is not None]
    milli = any(_fractional(number) for _, number in numbers)
    if milli:
        unsafe = [
            invalid(f"{path}.{name}", str(number), "value cannot be represented as a milli value")
            for name, number in numbers
            if not _fits_milli(number)
        ]
        if unsafe:
            return found + unsafe
    if step is not None:
        found += _check_step(default, maximum, low, high, step, numbers, path, milli=milli)
    return found


def _check_step(
    default: Quantity,
    maximum: Quantity,
    low: Quantity,
    high: Quantity | None,
    step: Quantity,
    numbers: Sequence[tuple[str, Quantity]],
    path: str,
    *,
    milli: bool,
) -> Found:
    place = f"{path}.step"
    if step.sign <= 0:
        return [invalid(place, str(step), "must be greater than zero")]
    found: Found = []
    added = low + step
    if added > maximum:
        found.append(invalid(place, str(step), f"one step {added} is larger than capacity value: {maximum}"))
    if not milli:
        unsafe = [error for name, number in numbers for error in _check_whole(number, f"{path}.{name}")]
        if unsafe:
            return found + unsafe
    for value in (default, high):
        if value is not None and _distance(value, low, milli=milli) % _whole(step, milli=milli):
            found.append(invalid(place, str(value), f"value is not a multiple of a given step ({step}) from ({low})"))
    return found


def _check_whole(number: Quantity, path: str) -> Found:
    if number.sign < 0:
        return [invalid(path, str(number), "must be greater than or equal to 0")]
    if number > Quantity(_INT64_MAX):
        return [invalid(path, str(number), f"must not be larger than {_INT64_MAX}")]
    return []


def _distance(value: Quantity, low: Quantity, *, milli: bool) -> int:
    return _whole(value, milli=milli) - _whole(low, milli=milli)


def _whole(number: Quantity, *, milli: bool) -> int:
    return number.milli_value() if milli else number.value()


def _fractional(number: Quantity) -> bool:
    return number.scale < 0 and bool(number.unscaled % 10**-number.scale)


def _fits_milli(number: Quantity) -> bool:
    milli = number.milli_value()
    return _INT64_MIN <= milli <= _INT64_MAX and Quantity(milli, -3) == number
