"""Quantities: the expectations were produced by the Kubernetes library itself (see cases/kube/quantities.jsonl)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drakkar.kube.quantity import Format, Quantity, QuantityError

CASES = [
    json.loads(line) for line in (Path(__file__).parents[2] / "cases/kube/quantities.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["a"] + "|" + case["b"])
def test_agrees_with_kubernetes(case: dict[str, object]) -> None:
    left, right = str(case["a"]), str(case["b"])
    if "error" in case:
        with pytest.raises(QuantityError) as failure:
            Quantity.parse(left)
        assert failure.value.message == case["error"]
        return
    quantity = Quantity.parse(left)
    try:
        other = Quantity.parse(right)
    except QuantityError:
        other = Quantity(1)
    integer = quantity.as_int64()
    assert quantity.canonical() == case["canon"]
    assert (integer or 0, integer is not None) == (case["int"], case["ok"])
    assert quantity.as_float() == float(str(case["float"]))
    assert quantity.compare(other) == case["cmp"]
    assert quantity.format.value == case["format"]
    assert quantity.add(other).canonical() == case["add"]
    assert (quantity.add(other).as_int64() is not None) == case["addok"]
    assert quantity.sub(other).canonical() == case["sub"]


def test_equality_and_hash_see_the_number_only() -> None:
    same = [Quantity.parse(text) for text in ("1", "1000m", "1.000", "1e0", "0.001k", "1000000u")]
    assert len(set(same)) == 1
    assert Quantity.parse("1Ki") == Quantity(1024)


def test_integers_round_away_from_zero() -> None:
    assert Quantity.parse("1500m").value() == 2
    assert Quantity.parse("-1500m").value() == -2
    assert Quantity.parse("1").milli_value() == 1000
    assert Quantity.parse("1n").milli_value() == 1


def test_json_numbers_and_blanks_are_read() -> None:
    assert Quantity.from_json(8) == Quantity.parse("8")
    assert Quantity.from_json(" 8Gi ") == Quantity.parse("8Gi")
    assert Quantity.from_json(None) == Quantity(0)
    assert Quantity.from_json(0.5) == Quantity.parse("500m")


@pytest.mark.parametrize("value", [True, [], {}, "", "1 Gi", "½", "٣", "0x10", "--1", "1.2.3"])
def test_what_is_no_quantity_is_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        Quantity.from_json(value)


@pytest.mark.parametrize("text", ["1e2147483647", "1e-2147483648", "9" * 100_000, "0." + "1" * 100_000, "1e999999999E"])
def test_poisonous_magnitudes_end_at_once(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
        quantity.compare(Quantity(1))
        quantity.add(Quantity(1)).canonical()
        quantity.value()
    except QuantityError:
        pass


def test_a_zero_takes_the_format_of_what_is_added() -> None:
    assert Quantity(0).add(Quantity.parse("2Gi")).format is Format.BINARY_SI


@given(st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_sums_of_integers_are_sums(left: int, right: int) -> None:
    total = Quantity(left).add(Quantity(right))
    assert total.value() == left + right
    assert total.sub(Quantity(right)) == Quantity(left)
