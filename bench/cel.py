"""CEL: compiling and evaluating selectors, beside the Go library that Kubernetes uses.

The pairs are in cases/cel-bench with the figures Go had on one machine. `DRAKKAR_CEL_GO` may name a program that
reads the same lines and answers with `compile_ns` and `eval_ns`; then both sides are measured in one run. Ours has the
device converted beforehand, as the scheduler holds it; results are never remembered between evaluations.

Bounds: a third of Go's evaluation for selectors of one to 24 clauses, Go's own time for everything else and for
compiling. Run with ``python -m bench cel``; on a busy machine only ratios of one run mean something.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drakkar.cel import CelError, DeviceValue, device_environment

FOLDER = Path(__file__).parents[1] / "cases/cel-bench"
SELECTORS = 16
"""The first so many pairs are selectors as people write them."""


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


def go_figures(lines: list[str]) -> tuple[dict[str, dict[str, int]], str]:
    """Go's times by name, measured now if there is a program for it, and where they come from."""
    program = os.environ.get("DRAKKAR_CEL_GO")
    if program:
        answer = subprocess.run(
            [program, "--bench", "100"], input="\n".join(lines), capture_output=True, text=True, check=True
        )
        found, source = answer.stdout.splitlines(), "measured now"
    else:
        found, source = (FOLDER / "cel-go.jsonl").read_text().splitlines(), "as recorded on another machine"
    return {entry["name"]: entry for entry in map(json.loads, found)}, source


def measure(pair: dict[str, Any], runs: int) -> tuple[float, float]:
    """Nanoseconds to compile and to evaluate."""
    environment = device_environment()
    program = environment.compile(pair["expression"])
    bindings = {"device": DeviceValue.from_json(pair["device"]["driver"], pair["device"])}

    def evaluate() -> None:
        try:
            program.evaluate(bindings)
        except CelError:
            pass

    return best(lambda: environment.compile(pair["expression"]), 0.005, runs), best(evaluate, 0.003, runs)


def main(runs: int) -> bool:
    """Print both sides of every pair; whether all bounds hold."""
    lines = (FOLDER / "bench.jsonl").read_text().splitlines()
    go, source = go_figures(lines)
    print(f"Go: {source}. Times in µs; ratios are Go / ours.\n")
    heads = f"{'compile Go':>11} {'ours':>9} {'ratio':>7}   {'evaluate Go':>11} {'ours':>9} {'ratio':>7}  wanted"
    print(f"{'pair':36} {heads}")
    slower = {"compile": 0, "evaluate": 0}
    for index, pair in enumerate(map(json.loads, lines)):
        theirs = go[pair["name"]]
        compile_ns, evaluate_ns = measure(pair, runs)
        wanted = 3 if index < SELECTORS else 1
        ratios = theirs["compile_ns"] / compile_ns, theirs["eval_ns"] / evaluate_ns
        slower["compile"] += ratios[0] < 1
        slower["evaluate"] += ratios[1] < wanted
        print(
            f"{pair['name']:36} {theirs['compile_ns'] / 1e3:11.1f} {compile_ns / 1e3:9.1f} {ratios[0]:6.1f}×"
            f"   {theirs['eval_ns'] / 1e3:11.2f} {evaluate_ns / 1e3:9.2f} {ratios[1]:6.1f}×  ≥ {wanted}×"
            f"{'  MISSED' if ratios[1] < wanted else ''}"
        )
    counts = ", ".join(f"{what} {number} of {len(lines)}" for what, number in slower.items())
    print(f"\nslower than wanted: {counts}")
    return not any(slower.values())
