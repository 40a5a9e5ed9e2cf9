"""The list of cases of CEL: complete, judged by value, and worth asking."""

import pytest

from drakkar.cel import device_environment
from tools import fuzz_cel, fuzz_cel_grid
from tools.fuzz_cel_mutants import MUTANTS, noticed
from tools.fuzz_cel_pools import BASES, POOLS


def test_every_overload_of_the_environment_is_called() -> None:
    listed = {(overload.function, overload.id) for overload in fuzz_cel_grid.overloads()}
    declared = {(name, one.id) for name, known in device_environment().functions.items() for one in known}
    assert {name for name, _ in declared - listed} == {*fuzz_cel_grid.HIDDEN, "@sortByAssociatedKeys", "cel.@mapInsert"}


def test_each_overload_meets_every_value_of_its_pools() -> None:
    calls = {
        call
        for overload in fuzz_cel_grid.overloads()
        if overload.id in ("quantity_is_integer", "double_to_int64", "quantity_sign")
        for call, _ in fuzz_cel_grid.calls_of(overload)
    }
    for value in POOLS["kubernetes.Quantity"]:
        assert f"{value}.isInteger()" in calls
    for value in POOLS["double"]:
        assert f"int({value})" in calls
    for base in BASES.values():
        assert f"sign({base})" in calls
        assert f"sign(dyn({base}))" in calls


@pytest.mark.parametrize(
    ("call", "judged"),
    [
        ("1 + 1", "1 + 1 == 2"),
        ("[1].size() == 1", "[1].size() == 1"),
        ("double('NaN')", "string(double('NaN')) == 'NaN'"),
        ("-0.0 * 1.0", "string(-0.0 * 1.0) == '-0'"),
        ("ip('::1')", "string(ip('::1')) == '::1'"),
        ("b'\\xff'", "b'\\xff' == b'\\xff'"),
        ("optional.of('é')", "optional.of('é') == optional.of('é')"),
        ("[1][5]", "type([1][5]) == type"),
        ("1 + 'a'", "1 + 'a'"),
    ],
)
def test_a_call_is_judged_by_its_value(call: str, judged: str) -> None:
    assert fuzz_cel_grid.judged(call) == judged


def test_what_is_judged_is_true_or_fails_here() -> None:
    for overload in fuzz_cel_grid.overloads()[::3]:
        call, _ = fuzz_cel_grid.calls_of(overload)[0]
        case = fuzz_cel_grid.grid_case(call, 0, "one")
        answer, text = fuzz_cel.ours(case), case["expression"]
        judged = text != call and not text.startswith("type(")
        assert answer["result"] is True or not judged, text


@pytest.mark.no_cover
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_room_is_noticed(name: str) -> None:
    assert noticed(name, seconds=280.0)
