"""The random clusters are worth racing: they notice an allocator that is broken on purpose."""

import pytest

from tests.allocation.worlds import random_case
from tools.fuzz_allocation import MUTANTS, noticed


def test_there_are_ten_mutants() -> None:
    assert len(MUTANTS) == 10


@pytest.mark.no_cover  # up to five thousand cases: ten seconds untraced
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_allocator_is_noticed(name: str) -> None:
    assert noticed(name, seconds=280.0)


def test_equal_seeds_give_equal_cases() -> None:
    assert random_case(5) == random_case(5)
    assert random_case(5) != random_case(6)
