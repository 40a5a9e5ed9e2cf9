"""Running one recorded file, of any of the three kinds, against a fresh control plane of ours."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conformance import replay
from tests.conformance.servers import ControlPlanes

HERE = Path(__file__).parent
PENDING = HERE / "pending.txt"


@dataclass
class Outcome:
    """What one file gave: the problems of each step that failed, and how many steps passed and failed."""

    failures: dict[str, list[str]] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(self.failures | other.failures, self.passed + other.passed, self.failed + other.failed)


def run_file(planes: ControlPlanes, path: Path, *, kubectl: Path | None = None, transport: str = "https") -> Outcome:
    """Replay a conversation, scenario or kubectl session. `transport` is https or in process."""
    recorded: dict[str, Any] = yaml.load(path.read_text(), Loader=replay.Loader)
    recorded["cleanup"] = []  # the control plane goes with it
    outcome = Outcome()

    def report(name: str, step: str, problems: list[str]) -> None:
        if problems:
            outcome.failures[f"{name} / {step}"] = problems

    needs = set(recorded.get("needs", ()))
    if recorded.get("anyResourceVersion") or "commands" in recorded:
        needs |= {"controllers"}  # they ran when this was recorded
    try:
        with planes.one(needs) as arguments:
            client = arguments.inside if transport == "in process" else replay.Client(arguments)
            if "commands" in recorded:
                if kubectl is None:
                    return outcome
                arguments.kubectl = str(kubectl)
                found = replay.replay_transcript(client, arguments, recorded, report)
            else:
                found = replay.replay_conversation(client, recorded, report, planes.pki)
        outcome.passed, outcome.failed = found
    except (RuntimeError, *replay.TROUBLE) as error:
        report(recorded["name"], "whole conversation", [f"{type(error).__name__}: {error}"])
        outcome.failed = len(recorded.get("steps") or recorded.get("commands") or ())
    return outcome


def run_files(
    planes: ControlPlanes,
    paths: Iterable[Path],
    *,
    kubectl: Path | None = None,
    transport: str = "https",
    heard: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Many files side by side: most of what they do is wait. `heard` gets each outcome as it comes."""
    total = Outcome()
    with ThreadPoolExecutor(16 if kubectl is None else 6) as pool:
        for outcome in pool.map(lambda path: run_file(planes, path, kubectl=kubectl, transport=transport), paths):
            heard(outcome)
            total += outcome
    return total


def pending(prefix: str = "") -> set[str]:
    """The steps that are known not to pass, without their `prefix` (``kubectl 1.37: `` or none)."""
    lines = [line for line in PENDING.read_text().splitlines() if line and not line.startswith("#")]
    if not prefix:
        return {line for line in lines if not line.startswith("kubectl ")}
    return {line.removeprefix(prefix) for line in lines if line.startswith(prefix)}


def compare(outcome: Outcome, known: set[str]) -> None:
    """Fails unless exactly the known steps failed."""
    fresh = {name: problems for name, problems in outcome.failures.items() if name not in known}
    assert not fresh, "\n".join(f"{name}\n    " + "\n    ".join(problems[:6]) for name, problems in fresh.items())
    gone = known - outcome.failures.keys()
    assert not gone, f"these pass now; take them out of pending.txt: {sorted(gone)}"


def shown(problems: list[str], width: int = 300) -> str:
    """The first problem on one line."""
    text = problems[0] if problems else ""
    with contextlib.suppress(ValueError):
        text = json.loads(text) if text.startswith('"') else text
    return " ".join(str(text).split())[:width]
