"""Races the allocator against the upstream one on random small clusters and prints the smallest difference.

    python -m tools.fuzz_allocation --oracle PROGRAM [--seconds 120] [--seed N]
    python -m tools.fuzz_allocation --mutants [--seconds 120]

The oracle is a program that takes cases as JSON lines and answers with allocations (format: cases/allocation). A case
on which it ran out of time counts as undecided. With --mutants the allocator is broken on purpose in ten ways, one at a
time, and the same random cases must notice each of them, compared with the allocator as it is.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from drakkar.allocation import capacity, constraints, plans, pools, result, search, taints
from tests.allocation.worlds import random_case
from tools.vectors.allocation import plain, solve

Json = dict[str, Any]
Answer = tuple[Any, str | None, bool]
_BATCH = 200


class Oracle:
    """The upstream allocator as a function."""

    def __init__(self, program: str) -> None:
        self._program = program

    def answers(self, cases: list[Json]) -> list[Json]:
        """One answer per case."""
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        arguments = [self._program, "--timeout", "2s"]
        done = subprocess.run(arguments, input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


def ours(case: Json) -> Answer:
    """Allocations, error and whether it is for the node only."""
    allocations, error, node_only, _ = solve(case)
    return plain(allocations), error, node_only


def theirs(answer: Json) -> Answer:
    """The same of the oracle."""
    return plain(answer["allocations"]), answer["error"], bool(answer.get("nodeOnly"))


def smallest(case: Json, differs: Callable[[Json], bool]) -> Json:
    """The case with everything taken out that the difference does not need."""
    shrunk = True
    while shrunk:
        shrunk = False
        for path in _lists(case):
            for place in reversed(range(len(_at(case, path)))):
                candidate = copy.deepcopy(case)
                del _at(candidate, path)[place]
                if differs(candidate):
                    case, shrunk = candidate, True
    return case


def _lists(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if isinstance(value, list) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _lists(item, (*path, key))
    return found


def _at(value: Any, path: tuple[Any, ...]) -> list[Any]:
    """The list at a path; an empty one where what was taken out before has left none."""
    try:
        for key in path:
            value = value[key]
    except (KeyError, IndexError, TypeError):
        return []
    return value if isinstance(value, list) else []


def race(oracle: Oracle, seconds: float, seed: int) -> int:
    """Compare until time is up or something differs; the exit status."""
    until, compared = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < until:
        cases = [random_case(number) for number in range(seed, seed + _BATCH)]
        seed += _BATCH
        for case, answer in zip(cases, oracle.answers(cases), strict=True):
            if answer.get("timed_out"):
                compared["undecided"] += 1
                continue
            expected = theirs(answer)
            compared["errors" if expected[1] else "refusals" if expected[0] is None else "solutions"] += 1
            if ours(case) != expected:
                small = smallest(case, lambda c: ours(c) != theirs(oracle.answers([c])[0]))
                print(json.dumps(small))
                print("wanted", theirs(oracle.answers([small])[0]))
                print("got   ", ours(small))
                return 1
    print(
        ", ".join(f"{number} {kind}" for kind, number in sorted(compared.items()))
        + f", up to seed {seed}: no difference"
    )
    return 0


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Something broken on purpose for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _keeps_counters(self: Any, frame: Any) -> None:
    left = list(self.left)
    _restore(self, frame)
    self.left = left


def _without_build(self: Any, number: int, values: Any) -> None:
    _add(self, number, tuple((kind, v.partition("+")[0] if kind == "version" else v) for kind, v in values))


_restore, _add, _config, _fits = (
    search.Search._restore,
    constraints.AttributeBits.add,
    result._config,
    capacity.Amounts.fits,
)
# The package's `allocate` is the function; this is the module around it.
entry = import_module("drakkar.allocation.allocate")

MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "NoExecute does not block": (taints, "_BLOCKING", ("NoSchedule",)),
    "counters are not given back": (search.Search, "_restore", _keeps_counters),
    "versions match whatever their build": (constraints.AttributeBits, "add", _without_build),
    "constraints remember nothing": (plans.ConstraintPlan, "after", lambda self, before, device: before),
    "capacity in use is forgotten": (capacity.Amounts, "fits", lambda self, consumed=None, by_pod=None: _fits(self)),
    "pools are ordered backwards": (pools, "_pool_order", lambda pool: tuple(-b for b in str(pool.key).encode())),
    "slices keep the order they came in": (pools, "_slice_name", lambda record: b""),
    "groups as large as needed are cut": (entry, "hopeless", lambda plan, used: bool(plan.group_needs)),
    "configuration names no requests": (
        result,
        "_config",
        lambda shape, asks: [{k: v for k, v in item.items() if k != "requests"} for item in _config(shape, asks)],
    ),
    "claims may hold 33 devices": (search, "MAX_RESULTS", 3),
}


def noticed(name: str, seconds: float) -> int:
    """After how many cases the mutant gives another answer; 0 if it does not."""
    owner, attribute, value = MUTANTS[name]
    until, seed = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        case = random_case(seed)
        expected = ours(case)
        with replaced(owner, attribute, value):
            try:
                got: Any = ours(case)
            except Exception as problem:
                got = problem
        seed += 1
        if got != expected:
            return seed
    return 0


def main(arguments: list[str]) -> int:
    """The exit status: 0 if nothing differs, or if every mutant was noticed."""
    parser = argparse.ArgumentParser(prog="tools.fuzz_allocation", description=__doc__)
    parser.add_argument("--oracle", default="")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.mutants:
        found = {name: noticed(name, options.seconds / len(MUTANTS)) for name in MUTANTS}
        for name, number in found.items():
            print(f"{name}: {f'noticed after {number} cases' if number else 'NOT NOTICED'}")
        return 0 if all(found.values()) else 1
    if not options.oracle:
        print("name the upstream allocator with --oracle, or use --mutants", file=sys.stderr)
        return 2
    return race(Oracle(options.oracle), options.seconds, options.seed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
