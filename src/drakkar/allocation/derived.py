"""Derived attributes (KEP-6080, alpha): values that a request computes with CEL and that constraints compare.

An expression sees the same `device` as selectors do. It is compiled and evaluated only when a constraint asks for it,
and its errors end the scheduling attempt.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any, Final

from drakkar.allocation.constraints import NOTHING, Value
from drakkar.allocation.errors import AllocationError
from drakkar.allocation.selection import value_of
from drakkar.allocation.slices import Device
from drakkar.cel import CelError, Environment, Program

_SCALAR_TYPES: Final = ("string", "int", "bool", "kubernetes.Semver", "dyn", "any")


def derived_values(
    environment: Environment, text: str, attribute: str, device: Device, *, lists: bool
) -> tuple[Value, ...] | None:
    """The values of one computed attribute on one device (None for an empty list).

    Raises `AllocationError` with upstream's text.
    """
    program = _compiled(environment, text, attribute)
    try:
        value = program.evaluate({"device": value_of(device)}).value
    except CelError as error:
        raise AllocationError(
            f"evaluate derived attribute {attribute} on device {device.key} failed: {error.message}",
            reason="DerivedAttributeFailed",
        ) from error
    if not isinstance(value, list | tuple):
        return (_scalar(value),)
    if not lists:
        return (NOTHING,)
    return tuple(dict.fromkeys(_scalar(item) for item in value)) or None


@lru_cache(maxsize=256)
def _compiled(environment: Environment, text: str, attribute: str) -> Program:
    try:
        program = _unrestricted(environment).compile(text)
    except CelError as error:
        raise _not_compiled(attribute, error.message) from error
    kind = program.type
    if kind.text in _SCALAR_TYPES or (kind.kind == "list" and kind.parameters[0].text in _SCALAR_TYPES):
        return program
    wanted = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"
    raise _not_compiled(attribute, f"must evaluate to {wanted}, not {kind.text}")


def _not_compiled(attribute: str, problem: str) -> AllocationError:
    return AllocationError(f"compile derived attribute {attribute} failed: {problem}", reason="DerivedAttributeFailed")


@lru_cache(maxsize=8)
def _unrestricted(environment: Environment) -> Environment:
    """The same environment for expressions of any type."""
    wider = copy.copy(environment)
    wider.result = ()
    return wider


def _scalar(value: Any) -> Value:
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return ("int", value)
    if isinstance(value, str):
        return ("string", value)
    return ("version", str(value))
