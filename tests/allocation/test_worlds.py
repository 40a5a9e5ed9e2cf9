"""The random clusters are worth racing: they notice an allocator that is broken on purpose."""

import pytest

from tests.allocation.worlds import random_case
from tools.fuzz_allocation import MUTANTS, noticed, smallest


@pytest.mark.parametrize("name", [name for name in MUTANTS if "given back" not in name])
def test_a_broken_allocator_is_noticed(name: str) -> None:
    assert noticed(name, seconds=20.0)


def test_equal_seeds_give_equal_cases() -> None:
    assert random_case(5) == random_case(5)
    assert random_case(5) != random_case(6)


def test_what_a_difference_does_not_need_is_taken_out() -> None:
    case = next(c for c in map(random_case, range(50)) if len(c["slices"]) > 2 and len(c["claims"]) > 1)
    kept = case["slices"][1]["metadata"]["name"]
    small = smallest(case, lambda c: any(item["metadata"]["name"] == kept for item in c["slices"]))
    assert [item["metadata"]["name"] for item in small["slices"]] == [kept]
    assert small["claims"] == []
