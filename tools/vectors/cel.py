"""CEL cases: one expression and device per line, with result, error, costs and admission's verdict.

The format is described in cases/cel/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drakkar.cel import CelError, DeviceValue, device_environment
from drakkar.cel.environment import Environment
from tools.vectors import Outcome, difference

DEFAULT = "cases/cel"

MAX_BYTES = 10 * 1024
MAX_COST = 1_000_000


def run(folder: Path) -> Iterator[Outcome]:
    """Every case of every .jsonl file in the folder, with the devices of its devices.json."""
    devices = json.loads((folder / "devices.json").read_text())
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if line.strip():
                case = json.loads(line)
                yield Outcome(case["name"], check(case, devices[case["device"]]))


def check(case: dict[str, Any], device: dict[str, Any]) -> list[str]:
    """What differs from the case's expectation; what an implementation raises besides CelError counts as well."""
    try:
        return _check(case, device)
    except Exception as problem:
        return [f"raised {type(problem).__name__}: {problem}"]


def _check(case: dict[str, Any], device: dict[str, Any]) -> list[str]:
    expect = case["expect"]
    result, error, estimated, spent = _evaluate(case, device)
    differences = difference("result", expect["result"], result)
    differences += _compare_errors(expect["error"], error)
    if expect["estimatedCost"] is not None:
        differences += difference("estimated cost", expect["estimatedCost"], estimated)
    if expect["actualCost"] is not None:
        differences += difference("actual cost", expect["actualCost"], spent)
    differences += difference("admission", expect["admission"], _admission(case))
    return differences


def _environment(case: dict[str, Any], mode: Any) -> Environment:
    features = case.get("features") or {}
    return device_environment(
        mode=mode,
        consumable_capacity=features.get("consumableCapacity", True),
        list_attributes=features.get("listTypeAttributes", False),
    )


def _evaluate(case: dict[str, Any], device: dict[str, Any]) -> tuple[Any, CelError | None, int | None, int | None]:
    try:
        program = _environment(case, case["env"]).compile(case["expression"])
    except CelError as error:
        return None, error, None, None
    value = DeviceValue.from_json(device["driver"], device)
    try:
        evaluation = program.evaluate({"device": value})
    except CelError as error:
        return None, error, program.estimated_cost, error.cost
    return evaluation.value, None, program.estimated_cost, evaluation.cost


def _compare_errors(wanted: dict[str, Any] | None, got: CelError | None) -> list[str]:
    if wanted is None or got is None:
        return difference("error", None if wanted is None else wanted["core"], None if got is None else got.message)
    differences = difference("kind", wanted["kind"], got.kind)
    cores = wanted.get("cores") or [wanted["core"]]
    if not any(core in got.message for core in cores):
        differences += difference("error", wanted["core"], got.message)
    return differences


def _admission(case: dict[str, Any]) -> str:
    if len(case["expression"].encode()) > MAX_BYTES:
        return "too long"
    try:
        program = _environment(case, "new").compile(case["expression"])
    except CelError:
        return "invalid"
    return "too expensive" if program.estimated_cost > MAX_COST else "ok"
