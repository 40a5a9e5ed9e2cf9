"""Derived attributes (KEP-6080, alpha): values that a request computes with CEL and that constraints compare.

An expression sees the same `device` as selectors do. It is compiled and evaluated only when a constraint asks for it,
and its errors end the scheduling attempt.
"""

from __future__ import annotations

from typing import Any

from drakkar.allocation.constraints import Value
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.selection import value_of
from drakkar.allocation.slices import Device


def derived_values(environment: Any, text: str, attribute: str, device: Device) -> tuple[Value, ...]:
    """The values of one computed attribute on one device; raises `AllocationError` with upstream's text."""
    from drakkar.cel import CelError

    try:
        program = environment.compile(text, result="any")
    except CelError as error:
        raise AllocationError(
            f"compile derived attribute {attribute} failed: {error.message}", reason="DerivedAttributeFailed"
        ) from error
    try:
        value = program.evaluate({"device": value_of(device)}).value
    except CelError as error:
        raise AllocationError(
            f"evaluate derived attribute {attribute} on device {device.key} failed: {error.message}",
            reason="DerivedAttributeFailed",
        ) from error
    return tuple(_scalar(item) for item in value) if isinstance(value, list | tuple) else (_scalar(value),)


def _scalar(value: Any) -> Value:
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return ("int", value)
    if isinstance(value, str):
        return ("string", value)
    return ("version", str(value))
