"""Kubernetes quantities in CEL: quantity("1.5Gi"), comparison and arithmetic."""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel.signatures import Library
from drakkar.cel.values import ComputedQuantity, Failure, size_of, tenth
from drakkar.kube.quantity import Quantity, QuantityError

_NOT_INTEGER: Final = Failure("cannot convert value to integer")


def quantity(text: str) -> Any:
    """The quantity a text names, or upstream's error; always a new one, since no two are the same map key."""
    try:
        found = Quantity.parse(text)
        return Quantity(found.unscaled, found.scale, found.format, compact=found.compact)
    except QuantityError as problem:
        return Failure(problem.message)


def _is_quantity(text: str) -> bool:
    return not isinstance(quantity(text), Failure)


def _as_integer(value: Quantity) -> Any:
    number = value.as_int64()
    return _NOT_INTEGER if number is None else number


def _computed(value: Quantity) -> ComputedQuantity:
    return ComputedQuantity(value.unscaled, value.scale, value.format, compact=value.compact)


def _arithmetic(operation: Any, convert: Any) -> Any:
    def run(left: Quantity, right: Any) -> Any:
        try:
            return _computed(operation(left, convert(right)))
        except QuantityError as problem:
            return Failure(problem.message)

    return run


def _walk(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0]))


QUANTITIES: Final = Library(
    name="quantity",
    declarations="""
quantity(string) -> kubernetes.Quantity    string_to_quantity
isQuantity(string) -> bool    is_quantity_string
sign(kubernetes.Quantity) -> int    quantity_sign
kubernetes.Quantity.add(kubernetes.Quantity) -> kubernetes.Quantity    quantity_add
kubernetes.Quantity.add(int) -> kubernetes.Quantity    quantity_add_int
kubernetes.Quantity.asApproximateFloat() -> double    quantity_get_float
kubernetes.Quantity.asInteger() -> int    quantity_get_int
kubernetes.Quantity.compareTo(kubernetes.Quantity) -> int    quantity_compare_to
kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) -> bool    quantity_is_greater_than
kubernetes.Quantity.isInteger() -> bool    quantity_is_integer
kubernetes.Quantity.isLessThan(kubernetes.Quantity) -> bool    quantity_is_less_than
kubernetes.Quantity.sub(kubernetes.Quantity) -> kubernetes.Quantity    quantity_sub
kubernetes.Quantity.sub(int) -> kubernetes.Quantity    quantity_sub_int
""",
    implementations={
        "string_to_quantity": quantity,
        "is_quantity_string": _is_quantity,
        "quantity_sign": lambda value: value.sign,
        "quantity_add": _arithmetic(Quantity.add, lambda value: value),
        "quantity_add_int": _arithmetic(Quantity.add, Quantity),
        "quantity_get_float": Quantity.as_float,
        "quantity_get_int": _as_integer,
        "quantity_compare_to": Quantity.compare,
        "quantity_is_greater_than": lambda left, right: left.compare(right) > 0,
        "quantity_is_integer": lambda value: value.as_int64() is not None,
        "quantity_is_less_than": lambda left, right: left.compare(right) < 0,
        "quantity_sub": _arithmetic(Quantity.sub, lambda value: value),
        "quantity_sub_int": _arithmetic(Quantity.sub, Quantity),
    },
    function_prices={
        "quantity": _walk,
        "isQuantity": _walk,
        **dict.fromkeys(
            (
                "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo",
                "add", "sub", "major", "minor", "patch",
            ),
            1,
        ),
    },
)  # fmt: skip
