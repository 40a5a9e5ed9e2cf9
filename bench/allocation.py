"""The allocator beside the Go original: `python -m bench.allocation [DIR] [--oracle PROGRAM] [--rounds N]`.

DIR has scenarios in the format of cases/allocation (with `nodes` instead of `node` for clusters). Both sides run
alternately in one process tree on the same inputs, each without its own preparation: ours with the state as a scheduler
holds it, Go with a new allocator and its compiled expressions kept. Between two of our runs the devices in use change,
and nothing is remembered about a claim but the text of its specification. Cold is the first call with everything to
compute: expressions compiled, slices looked at for the first time. Without the oracle only our times are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drakkar.allocation import AllocationError, ClusterState, Features, Pod
from tools.vectors.allocation import state_of

Json = dict[str, Any]

DEFAULT = Path("cases/allocation-bench")
RUNS = 30
COLD_RUNS = 5


class Oracle:
    """The upstream allocator behind JSON lines, kept running."""

    def __init__(self, program: str) -> None:
        arguments = [program, "--bench", str(RUNS), "--timeout", "10s", "--budget", "3s"]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, line: str) -> Json:
        """One measurement: nanoseconds by name."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def solve(state: ClusterState, case: Json) -> None:
    """What is timed: from claims and nodes to `status.allocation`, or to "no"."""
    pod = Pod(state, case["claims"], features=Features.from_json(case.get("features")))
    try:
        if "nodes" in case:
            pod.on_first(case["nodes"])
        else:
            pod.on(case["node"])
    except AllocationError:
        pass


def changes(case: Json) -> Iterator[Json]:
    """For each run another device of the case's pools that the solution does not need, as a claim that holds it."""
    needed = {
        (r["pool"], r["device"]) for a in case["expect"]["allocations"] or () for r in a["devices"].get("results", ())
    }
    spare = [
        (item["spec"]["driver"], item["spec"]["pool"]["name"], device["name"])
        for item in case["slices"]
        for device in item["spec"].get("devices", ())
        if (item["spec"]["pool"]["name"], device["name"]) not in needed
    ]
    number = 0
    while True:
        results = []
        if spare and number % 2:
            driver, pool, device = spare[-1 - number % min(len(spare), 7)]
            results = [{"request": "r", "driver": driver, "pool": pool, "device": device}]
        status = {"allocation": {"devices": {"results": results}}}
        yield {"metadata": {"namespace": "bench", "name": "moving", "uid": "moving"}, "status": status}
        number += 1


def warm(case: Json, runs: int) -> list[float]:
    """Seconds of further calls, the devices in use changing in between."""
    state, moving, times = state_of(case), changes(case), []
    solve(state, case)
    for _ in range(runs):
        state.upsert_claim(next(moving))
        start = time.perf_counter()
        solve(state, case)
        times.append(time.perf_counter() - start)
    return times


def cold(case: Json) -> float:
    """Seconds of the first call on a new state."""
    state = state_of(case)
    start = time.perf_counter()
    solve(state, case)
    return time.perf_counter() - start


def main(arguments: list[str]) -> int:
    """Print the table; the exit status says whether the aims were met (0) where there is something to compare."""
    parser = argparse.ArgumentParser(prog="bench.allocation", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--oracle", default=os.environ.get("ALLOCATION_ORACLE", ""), help="the Go allocator's program")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    files = sorted(options.directory.glob("*.jsonl"))
    if not files:
        print(f"{options.directory} has no scenarios (*.jsonl)", file=sys.stderr)
        return 2
    oracle = Oracle(options.oracle) if options.oracle else None
    print(f"load {os.getloadavg()[0]:.1f}; microseconds; Go: mean of {RUNS}, ours: median of {RUNS * options.rounds}")
    print(f"{'scenario':28}{'warm':>10}{'Go':>12}{'ratio':>8}{'cold':>12}{'Go':>12}{'ratio':>8}")
    slower_warm = slower_cold = compared = 0
    for path in files:
        for line in path.read_text().splitlines():
            case = json.loads(line)
            times, go, firsts = [], [], []
            for _ in range(options.rounds):
                if oracle is not None:
                    go.append(oracle.measure(line + "\n"))
                times += warm(case, RUNS)
                firsts += [cold(case) for _ in range(COLD_RUNS if options.rounds > 1 else 1)]
            ours, first = statistics.median(times) * 1e6, statistics.median(firsts) * 1e6
            row = f"{case['name']:28}{ours:10.1f}"
            if oracle is None:
                print(row + f"{'':20}{first:12.0f}")
                continue
            theirs = statistics.median(m["allocate_ns"] for m in go) / 1e3
            their_first = statistics.median(m["first_ns"] for m in go) / 1e3
            compared += 1
            slower_warm += ours > theirs
            slower_cold += first > their_first
            print(
                f"{row}{theirs:12.1f}{theirs / ours:8.2f}{first:12.0f}{their_first:12.0f}{their_first / first:8.2f}",
                flush=True,
            )
    if oracle is not None:
        oracle.close()
        print(f"slower than Go: warm {slower_warm} of {compared}, cold {slower_cold} of {compared}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
