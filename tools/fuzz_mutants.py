"""Rooms broken on purpose: what random cases are worth is shown by what they notice (mutation testing).

A mutant is one attribute of a module or class with another value. The same random cases that `tools.fuzz_race` compares
with upstream must give another answer for some case, compared with the room as it is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

Json = dict[str, Any]
Mutants = Mapping[str, tuple[Any, str, Any]]
"""By a name: whose attribute, which, and what it becomes."""


class Room(Protocol):
    """What a mutant needs of a room."""

    def random_case(self, seed: int) -> tuple[Json, Any]: ...
    def ours(self, case: Json) -> Json: ...


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Something broken on purpose for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def noticed(
    mutant: tuple[Any, str, Any],
    room: Room,
    seconds: float,
    *,
    forget: Callable[[], None] | None = None,
    batch: int = 1,
) -> int:
    """After how many cases the mutant gives another answer; 0 if it does not.

    `forget` empties what the room remembers from case to case, before and after each batch with the mutant.
    """
    until, seed = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        cases = [room.random_case(seed + number)[0] for number in range(batch)]
        expected = [room.ours(case) for case in cases]
        if forget is not None:
            forget()
        with replaced(*mutant):
            got = [_answer(room, case) for case in cases]
        if forget is not None:
            forget()
        for number, pair in enumerate(zip(expected, got, strict=True), 1):
            if pair[0] != pair[1]:
                return seed + number
        seed += batch
    return 0


def _answer(room: Room, case: Json) -> Any:
    try:
        return room.ours(case)
    except Exception as problem:
        return problem


def main(arguments: list[str], description: str | None, mutants: Mutants, find: Callable[[str, float], int]) -> int:
    """Gives each mutant its share of `--seconds` to be noticed by `find` and prints after how many cases it was; the
    exit status: 0 if every one was.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args(arguments).seconds / len(mutants)
    found = {name: find(name, seconds) for name in mutants}
    for name, number in found.items():
        print(f"{name}: {f'noticed after {number} cases' if number else 'NOT NOTICED'}")
    print(f"{sum(map(bool, found.values()))} of {len(found)} mutants noticed")
    return 0 if all(found.values()) else 1
