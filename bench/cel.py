"""CEL: compiling and evaluating selectors, beside the Go library that Kubernetes uses.

The pairs are in cases/cel-bench. Both sides take turns in one run, pair by pair; without Go only ours are shown, beside
what Go had on one machine once. Ours has the device converted beforehand, as the scheduler holds it, and every
evaluation is a real one: results are remembered by the allocator only, which the second table shows, over devices of
which no two are equal.

Bounds: a third of Go's evaluation for selectors of one to 24 clauses, Go's own time for everything else and for
compiling. A pair that misses is measured anew, for a busy machine spoils single rounds: ``python -m bench cel``.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drakkar.allocation.selection import Selector
from drakkar.allocation.slices import SliceRecord
from drakkar.cel import CelError, DeviceValue, device_environment
from tools.oracles import Oracle, OracleError

Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "cases/cel-bench"
SELECTORS = 16
"""The first so many pairs are selectors as people write them."""
GO_ROUNDS = "60"
ROUNDS_MORE = 3
DISTINCT = 128


def best(operation: Callable[[], object], seconds: float, rounds: int) -> float:
    """Nanoseconds of one operation: the best round, each of about this many seconds."""
    operation()
    started = time.perf_counter()
    operation()
    count = max(1, int(seconds / (time.perf_counter() - started + 1e-9)))
    least = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(count):
            operation()
        least = min(least, (time.perf_counter() - started) / count)
    return least * 1e9


class Pair:
    """An expression with a device, and the best times of both sides in nanoseconds."""

    def __init__(self, line: str, recorded: Json, wanted: int) -> None:
        self.line = line
        self.case: Json = json.loads(line)
        self.wanted = wanted
        self.go: dict[str, float] = {name: recorded[name] for name in ("compile_ns", "eval_ns")}
        self.ours: dict[str, float] = {}
        self.measured = False

    def measure(self, oracle: Oracle | None, runs: int) -> None:
        """One turn of each side; what counts is each one's best."""
        if oracle is not None:
            answer = oracle.ask(self.line)
            for name in self.go:
                self.go[name] = min(self.go[name], answer[name]) if self.measured else answer[name]
            self.measured = True
        environment = device_environment()
        text = self.case["expression"]
        program = environment.compile(text)
        bindings = {"device": DeviceValue.from_json(self.case["device"]["driver"], self.case["device"])}

        def evaluate() -> None:
            try:
                program.evaluate(bindings)
            except CelError:
                pass

        times = {
            "compile_ns": best(lambda: environment.compile(text), 0.005, runs),
            "eval_ns": best(evaluate, 0.003, runs),
        }
        for name, found in times.items():
            self.ours[name] = min(self.ours.get(name, found), found)

    def ratio(self, name: str) -> float:
        return self.go[name] / self.ours[name]

    @property
    def missed(self) -> list[str]:
        """The bounds that do not hold."""
        late = ["compile"] if self.ratio("compile_ns") < 1 else []
        return late + (["evaluate"] if self.ratio("eval_ns") < self.wanted else [])

    def row(self) -> str:
        cells = [f"{self.case['name']:36}"]
        for name, width in (("compile_ns", 1), ("eval_ns", 2)):
            cells.append(
                f"{self.go[name] / 1e3:11.{width}f} {self.ours[name] / 1e3:9.{width}f} {self.ratio(name):6.1f}×  "
            )
        return " ".join(cells) + f" ≥ {self.wanted}×" + "".join(f"  MISSED {name}" for name in self.missed)


def race(oracle: Oracle | None, runs: int) -> bool:
    """Print both sides of every pair; whether all bounds hold."""
    recorded = {entry["name"]: entry for entry in map(json.loads, (FOLDER / "cel-go.jsonl").read_text().splitlines())}
    heads = f"{'compile Go':>11} {'ours':>9} {'ratio':>7}   {'evaluate Go':>11} {'ours':>9} {'ratio':>7}   wanted"
    print(f"{'pair':36} {heads}")
    late = {"compile": 0, "evaluate": 0}
    lines = (FOLDER / "bench.jsonl").read_text().splitlines()
    for index, line in enumerate(lines):
        pair = Pair(line, recorded[json.loads(line)["name"]], 3 if index < SELECTORS else 1)
        pair.measure(oracle, runs)
        for _ in range(ROUNDS_MORE if oracle is not None else 0):
            if pair.missed:
                pair.measure(oracle, runs)
        for name in pair.missed:
            late[name] += 1
        print(pair.row(), flush=True)
    counts = ", ".join(f"{what} {number} of {len(lines)}" for what, number in late.items())
    print(f"\nslower than wanted: {counts}")
    return not any(late.values())


def distinct(runs: int) -> None:
    """Print what a selector costs per device over many devices of which no two are equal, memo off and on."""
    pairs = map(json.loads, (FOLDER / "bench.jsonl").read_text().splitlines())
    text = next(pair["expression"] for pair in pairs if pair["name"].endswith("typical"))
    environment = device_environment()
    program = environment.compile(text)
    off, first, again = [], [], []
    for run in range(max(3, runs)):
        record = SliceRecord(_slice(run))
        values = [DeviceValue.from_json(record.key.driver, raw) for raw in record.raw_devices]
        started = time.perf_counter()
        for value in values:
            program.evaluate({"device": value})
        off.append(time.perf_counter() - started)
        selector = Selector(text, environment)
        numbers = list(range(DISTINCT))
        for times in (first, again):
            started = time.perf_counter()
            selector.answers(record, numbers, None)
            times.append(time.perf_counter() - started)
    print(f"\n{DISTINCT} devices of which no two are equal, per device, three clauses:")
    for name, times in (
        ("memo off, device converted beforehand", off),
        ("memo on, first time, device converted within", first),
        ("memo on, again", again),
    ):
        print(f"  {name:46} {statistics.median(times) / DISTINCT * 1e6:6.2f} µs")


def _slice(run: int) -> Json:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": f"NVIDIA H100 {run}-{number}"},
                "architecture": {"string": f"Hopper-{number}"},
                "driverVersion": {"version": f"570.{run}.{number}"},
                "cudaComputeCapability": {"version": f"9.0.{number}"},
                "index": {"int": number},
            },
            "capacity": {"memory": {"value": f"{80000 + number + run * DISTINCT}Mi"}},
        }
        for number in range(DISTINCT)
    ]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": "n", "devices": devices}
    return {"metadata": {"name": f"slice-{run}"}, "spec": spec}


def main(runs: int) -> bool:
    """Print the tables; whether all bounds hold, which without Go nobody knows."""
    try:
        oracle = Oracle("cel", "--bench", GO_ROUNDS)
    except OracleError as error:
        print(f"Go: as recorded on another machine, since {error}. Times in µs; ratios are Go / ours.\n")
        race(None, runs)
        distinct(runs)
        return False
    print("Go: measured now. Times in µs; ratios are Go / ours.\n")
    with oracle:
        holds = race(oracle, runs)
    distinct(runs)
    return holds
