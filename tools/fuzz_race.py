"""Races rooms against the upstream libraries on random inputs and prints the smallest difference: `make fuzz`.

    python -m tools.fuzz_race [allocation] [cel] [--seconds 120] [--seed N]

Equal seeds give equal inputs; without --seed it is a fresh one, which is printed. Rooms take turns. Where upstream runs
out of time, or does not agree with itself (Go visits maps in random order), a case decides nothing. For a part of the
time branches are traced: how much of a room the random inputs reach is printed with the number of cases. The exit
status is 1 with a difference, 2 where the race could not be held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import coverage

from tools import fuzz_allocation, fuzz_cel
from tools.oracles import Oracle, OracleError

Json = dict[str, Any]

BATCH: Final = 100
TRACED: Final = 0.2
"""The share of the time in which branches are traced, which slows everything down."""
SHRINK_SECONDS: Final = 60.0
ASKED_AGAIN: Final = 10
"""How often upstream is asked about a difference: where it disagrees with itself, nobody is wrong."""


class Room(Protocol):
    """What a race needs of a room."""

    ARGUMENTS: tuple[str, ...]
    MODULES: str
    UNTRACED: tuple[str, ...]

    def random_case(self, seed: int) -> tuple[Json, Any]: ...
    def ours(self, case: Json) -> Json: ...
    def difference(self, mine: Json, theirs: Json) -> str: ...
    def kind(self, theirs: Json) -> str: ...
    def smaller(self, case: Json, tree: Any) -> Iterator[tuple[Json, Any]]: ...


ROOMS: Final[dict[str, Any]] = {"allocation": fuzz_allocation, "cel": fuzz_cel}


class Race:
    """One room beside its oracle."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.room: Room = ROOMS[name]
        self.oracle = Oracle(name, *self.room.ARGUMENTS)
        self.seed = self.first = seed
        self.seconds = 0.0
        self.counts: Counter[str] = Counter()

    def batch(self, size: int = BATCH) -> tuple[Json, Any] | None:
        """Compare some cases; the first that differs."""
        started = time.monotonic()
        cases = [self.room.random_case(seed) for seed in range(self.seed, self.seed + size)]
        self.seed += size
        suspects: list[tuple[Json, Any]] = []
        for (case, tree), answer in zip(cases, self.oracle.stream([case for case, _ in cases]), strict=True):
            if answer.get("timed_out"):
                self.counts["undecided"] += 1
            elif self.problem(case, answer):
                suspects.append((case, tree))
            else:
                self.counts[self.room.kind(answer)] += 1
        self.seconds += time.monotonic() - started
        for case, tree in suspects:
            if self.differs(case, times=ASKED_AGAIN):
                return case, tree
            self.counts["undecided"] += 1
        return None

    def problem(self, case: Json, answer: Json) -> str:
        """In what the room disagrees with an answer, or an empty text."""
        try:
            mine = self.room.ours(case)
        except Exception as problem:
            return f"raised {type(problem).__name__}"
        return self.room.difference(mine, answer)

    def differs(self, case: Json, times: int = 2) -> bool:
        """Whether the room disagrees with every answer that upstream gives."""
        for _ in range(times):
            answer = self.oracle.ask(case)
            if answer.get("timed_out") or "badCase" in answer or not self.problem(case, answer):
                return False
        return True

    def smallest(self, case: Json, tree: Any) -> Json:
        """The case with everything taken out that the difference does not need."""
        until, shrunk = time.monotonic() + SHRINK_SECONDS, True
        while shrunk:
            shrunk = False
            for candidate, smaller in self.room.smaller(case, tree):
                if time.monotonic() > until:
                    return case
                if self.differs(candidate):
                    case, tree, shrunk = candidate, smaller, True
                    break
        return case

    def show(self, case: Json) -> None:
        """Print a difference with what was wanted and got."""
        answer = self.oracle.ask(case)
        try:
            mine: Any = self.room.ours(case)
        except Exception as problem:
            mine = f"raised {type(problem).__name__}: {problem}"
        print(f"{self.name} differs in {self.problem(case, answer)}, smallest case ({case['name']}):")
        print(json.dumps(case, ensure_ascii=False))
        print("wanted", json.dumps(answer, ensure_ascii=False))
        print("got   ", json.dumps(mine, ensure_ascii=False, default=str))

    def summary(self) -> str:
        """Cases by how they ended."""
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(self.counts.items()))
        number = self.counts.total()
        return f"{self.name}: {number} cases in {self.seconds:.0f} s ({kinds}), seeds {self.first} to {self.seed - 1}"


class Tracer:
    """Branch coverage of the rooms while it is on."""

    def __init__(self, races: list[Race]) -> None:
        packages = [f"src/{race.room.MODULES}/*" for race in races]
        leave = [f"src/{race.room.MODULES}/{name}" for race in races for name in race.room.UNTRACED]
        # A tracer that is there already (tests under coverage) is left alone.
        self._coverage = None
        if sys.gettrace() is None:
            self._coverage = coverage.Coverage(
                branch=True, include=packages, omit=leave, data_file=None, config_file=False
            )
            self._coverage._warn_no_data = False  # a short race may reach nothing new
            self._coverage.start()

    def stop(self) -> None:
        """Trace no more."""
        if self._coverage is not None:
            self._coverage.stop()

    def shares(self, races: list[Race]) -> dict[str, str]:
        """By room the share of branches that were taken, in words."""
        if self._coverage is None:
            return {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "coverage.json"
            try:
                self._coverage.json_report(outfile=str(path))
            except coverage.CoverageException:
                return {}
            files = json.loads(path.read_text())["files"]
        found = {}
        for race in races:
            taken = total = 0
            for name, entry in files.items():
                if race.room.MODULES in name.replace(os.sep, "/"):
                    taken += entry["summary"]["covered_branches"]
                    total += entry["summary"]["num_branches"]
            if total:
                found[race.name] = f"branch coverage {taken / total:.0%} ({taken} of {total})"
        return found


def race(names: list[str], seconds: float, seed: int) -> int:
    """Compare until time is up or something differs; the exit status."""
    races = [Race(name, seed) for name in names]
    started = time.monotonic()
    tracer = Tracer(races)
    tracing = True
    print(f"seed {seed}, {seconds:g} s, {' and '.join(names)} beside upstream", flush=True)
    while (passed := time.monotonic() - started) < seconds:
        if tracing and passed > seconds * TRACED:
            tracer.stop()
            tracing = False
        behind = min(races, key=lambda one: one.seconds)
        # Small batches first, so that also a short race sees both rooms while it traces.
        found = behind.batch(BATCH if behind.seconds > 2 else 10)
        if found is not None:
            tracer.stop()
            behind.show(behind.smallest(*found))
            return 1
    tracer.stop()
    shares = tracer.shares(races)
    for one in races:
        print("; ".join([one.summary(), *([shares[one.name]] if one.name in shares else [])]))
        one.oracle.close()
    print("no difference")
    return 0


def main(arguments: list[str]) -> int:
    """The exit status: 0 if nothing differs."""
    parser = argparse.ArgumentParser(prog="tools.fuzz_race", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)}; all by default")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=None, help="a fresh one by default")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.rooms if name not in ROOMS]
    if unknown:
        print(f"no room {', '.join(unknown)}; there are {', '.join(ROOMS)}", file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    try:
        return race(options.rooms or list(ROOMS), options.seconds, seed)
    except OracleError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
