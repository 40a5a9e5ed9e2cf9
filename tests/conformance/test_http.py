"""Recorded conversations with a real Kubernetes 1.37.2, held against our API server over HTTPS and in process.

`pending.txt` lists what does not pass yet, one step a line; the test demands that it is exactly the truth, so it can
only get shorter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.conformance import replay
from tests.conformance.servers import ControlPlanes

HERE = Path(__file__).parent
FILES = sorted((HERE / "http").glob("*.yaml"))
ONLY = os.environ.get("DRAKKAR_CONFORMANCE", "")


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlanes]:
    made = ControlPlanes(tmp_path_factory.mktemp("pki"))
    yield made
    made.close()


def _pending() -> set[str]:
    lines = (HERE / "pending.txt").read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith(("#", "kubectl "))}


def _replay(planes: ControlPlanes, path: Path, transport: str = "https") -> tuple[dict[str, list[str]], int]:
    """The problems of each step that failed, and how many steps passed."""
    conversation = yaml.load(path.read_text(), Loader=replay.Loader)
    failures: dict[str, list[str]] = {}

    def report(name: str, step: str, problems: list[str]) -> None:
        if problems:
            failures[f"{name} / {step}"] = problems

    needs = set(conversation.get("needs", ()))
    if conversation.get("anyResourceVersion"):
        needs.add("controllers")  # they ran when this was recorded
    with planes.one(needs) as arguments:
        client = arguments.inside if transport == "in process" else replay.Client(arguments)
        passed, _ = replay.replay_conversation(client, conversation, report)
    return failures, passed


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("transport", ["https", "in process"])
def test_conversations_pass_except_those_listed_as_pending(planes: ControlPlanes, transport: str) -> None:
    files = [path for path in FILES if not ONLY or ONLY in path.stem]
    failures: dict[str, list[str]] = {}
    passed = 0
    with ThreadPoolExecutor(16) as pool:
        for found, good in pool.map(lambda path: _replay(planes, path, transport), files):
            failures |= found
            passed += good
    print(f"{passed} passed, {len(failures)} failed")
    pending = {line for line in _pending() if not ONLY or line.startswith(ONLY)}
    fresh = {name: problems for name, problems in failures.items() if name not in pending}
    assert not fresh, "\n".join(f"{name}\n    " + "\n    ".join(problems[:6]) for name, problems in fresh.items())
    gone = pending - failures.keys()
    assert not gone, f"these pass now; take them out of pending.txt: {sorted(gone)}"
