"""Races rooms against the upstream libraries on random inputs and prints the smallest difference: `make fuzz`.

    python -m tools.fuzz_race [allocation] [cel] [gpus] [--seconds 120] [--seed N] [--all] [--systematic]

Equal seeds give equal inputs; without --seed it is a fresh one, which is printed. Rooms take turns. Where upstream runs
out of time, or does not agree with itself (Go visits maps in random order), a case decides nothing. For a part of the
time branches are traced: how much of a room the random inputs reach is printed with the number of cases. The exit
status is 1 with a difference, 2 where the race could not be held.

With --all a difference does not end the race: they are gathered, grouped by what differs, and shown at the end, the
smallest of each group. With --systematic the cases are not random but a room's list of everything that is worth asking
(`tools.fuzz_cel_grid`; no other room has one); the race ends with the list.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, Protocol

import coverage

from tools import fuzz_allocation, fuzz_cel, fuzz_gpus
from tools.oracles import Oracle, OracleError

Json = dict[str, Any]

BATCH: Final = 100
TRACED: Final = 0.2
"""The share of the time in which branches are traced, which slows everything down."""
SHRINK_SECONDS: Final = 60.0
ASKED_AGAIN: Final = 10
"""How often upstream is asked about a difference: where it disagrees with itself, nobody is wrong."""
SHOWN: Final = 3
"""How many differences of a group are kept, the shortest."""
GROUP_SECONDS: Final = 10.0
"""How long one of them is made smaller."""


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


ROOMS: Final[dict[str, Any]] = {"allocation": fuzz_allocation, "cel": fuzz_cel, "gpus": fuzz_gpus.Room()}


class Race:
    """One room beside its oracle."""

    def __init__(self, name: str, seed: int, *, systematic: bool = False) -> None:
        self.name = name
        self.room: Room = ROOMS[name]
        self.oracle = Oracle(name, *self.room.ARGUMENTS)
        self.source: Iterator[tuple[Json, Any]] = (
            ((case, None) for case in ROOMS[name].systematic(seed))
            if systematic
            else map(self.room.random_case, count(seed))
        )
        self.systematic = systematic
        self.size: int = getattr(self.room, "BATCH", BATCH)
        self.seed = self.first = seed
        self.seconds = 0.0
        self.ended = False
        self.counts: Counter[str] = Counter()

    def batch(self, size: int = BATCH) -> list[tuple[Json, Any]]:
        """Compare some cases; those that differ."""
        started = time.monotonic()
        cases = list(islice(self.source, size))
        self.ended = len(cases) < size
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
        found = [(case, tree) for case, tree in suspects if self.differs(case, times=ASKED_AGAIN)]
        self.counts["undecided"] += len(suspects) - len(found)
        return found

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
            try:
                answer = self.oracle.ask(case)
            except OracleError:  # what was taken out made it no case at all
                self.oracle = Oracle(self.name, *self.room.ARGUMENTS)
                return False
            if answer.get("timed_out") or "badCase" in answer or not self.problem(case, answer):
                return False
        return True

    def smallest(self, case: Json, tree: Any, seconds: float | None = None) -> Json:
        """The case with everything taken out that the difference does not need."""
        until, shrunk = time.monotonic() + (SHRINK_SECONDS if seconds is None else seconds), True
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
        seeds = "the whole list" if self.ended else "a part of the list"
        if not self.systematic:
            seeds = f"seeds {self.first} to {self.seed - 1}"
        return f"{self.name}: {number} cases in {self.seconds:.0f} s ({kinds}), {seeds}"


class Gathered:
    """Differences by what differs, a few short ones of each group."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.groups: dict[tuple[str, ...], list[tuple[int, Race, Json, Any]]] = {}

    def add(self, race: Race, case: Json, tree: Any) -> None:
        """Put a difference with its like."""
        key = (race.name, *self._likeness(race, case))
        self.counts[key] += 1
        kept = self.groups.setdefault(key, [])
        kept.append((len(json.dumps(case)), race, case, tree))
        kept.sort(key=lambda one: one[0])
        del kept[SHOWN:]

    @staticmethod
    def _likeness(race: Race, case: Json) -> tuple[str, ...]:
        answer = race.oracle.ask(case)
        problem = race.problem(case, answer)
        if problem not in answer:
            return (problem,)
        wanted, got = answer[problem], race.room.ours(case)[problem]
        if isinstance(wanted, int) and isinstance(got, int) and not isinstance(wanted, bool):
            return problem, "less than upstream" if got < wanted else "more than upstream"
        return problem, _masked(got), _masked(wanted)

    def show(self) -> None:
        """All groups, large ones first."""
        for key, number in self.counts.most_common():
            print(f"--- {number} × {' | '.join(key)}")
            for _, race, case, tree in self.groups[key]:
                race.show(race.smallest(case, tree, GROUP_SECONDS))


def _masked(value: Any) -> str:
    """An answer without what is particular: the first line, no numbers, no quoted texts."""
    text = str(value).partition("\n")[0]
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?[0-9][0-9.e+]*", "…", text)[:100]


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


def race(names: list[str], seconds: float, seed: int, *, everything: bool = False, systematic: bool = False) -> int:
    """Compare until time is up, a list has ended or (unless `everything` is wanted) something differs; exit status."""
    races = [Race(name, seed, systematic=systematic) for name in names]
    started = time.monotonic()
    tracer = Tracer(races)
    tracing, gathered = True, Gathered()
    print(f"seed {seed}, {seconds:g} s, {' and '.join(names)} beside upstream", flush=True)
    while (passed := time.monotonic() - started) < seconds and not all(one.ended for one in races):
        if tracing and passed > seconds * TRACED:
            tracer.stop()
            tracing = False
        behind = min((one for one in races if not one.ended), key=lambda one: one.seconds)
        # Small batches first, so that also a short race sees both rooms while it traces.
        for case, tree in behind.batch(behind.size if behind.seconds > 2 else 10):
            if not everything:
                tracer.stop()
                behind.show(behind.smallest(case, tree))
                return 1
            gathered.add(behind, case, tree)
    tracer.stop()
    shares = tracer.shares(races)
    for one in races:
        print("; ".join([one.summary(), *([shares[one.name]] if one.name in shares else [])]), flush=True)
    gathered.show()
    for one in races:
        one.oracle.close()
    print(f"{gathered.counts.total()} differences" if gathered.counts else "no difference")
    return 1 if gathered.counts else 0


def main(arguments: list[str]) -> int:
    """The exit status: 0 if nothing differs."""
    parser = argparse.ArgumentParser(prog="tools.fuzz_race", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)}; all by default")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=None, help="a fresh one by default")
    parser.add_argument("--all", action="store_true", help="gather differences instead of ending with the first")
    parser.add_argument("--systematic", action="store_true", help="the room's list of cases instead of random ones")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.rooms if name not in ROOMS]
    if unknown:
        print(f"no room {', '.join(unknown)}; there are {', '.join(ROOMS)}", file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    listed = [name for name, room in ROOMS.items() if hasattr(room, "systematic")]
    if options.systematic and not set(options.rooms) <= set(listed):
        print(f"only {', '.join(listed)} has a list of cases", file=sys.stderr)
        return 2
    names = options.rooms or (listed if options.systematic else list(ROOMS))
    try:
        return race(names, options.seconds, seed, everything=options.all, systematic=options.systematic)
    except OracleError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
