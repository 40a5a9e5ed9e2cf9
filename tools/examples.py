"""Run an example: start its cluster, do its steps with the real kubectl, compare.

    python -m tools.examples examples/01-own-gpu [--kubectl PATH] [--runtime runc|process|auto]

`expect.yaml` (and `expect-*.yaml`, another cluster for the same manifests) has the machines and a list of steps:

    run: COMMAND           once; must exit with `exit` (0 if absent)
    until: COMMAND         repeated until what it prints fits, at most `within` seconds (30 if absent)
    contains: [TEXT, …]    each is in the output ({name} is what a group of that name matched before)
    matches: REGEX         searched in the output; its named groups are kept
    words|lines: […]       the output's words or lines, in any order
    empty: true            nothing is printed
    count|distinct: {pattern, times}   that many matches, or different matches
    equal|differ: [NAME, …]            kept groups compared

The words `kubectl` and `drakkar` stand for the programs under test.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from drakkar.cluster.places import remove_tree

ROOT = Path(__file__).resolve().parents[1]
DRAKKAR = str(Path(sys.executable).with_name("drakkar"))
_POLL = 0.05


class Failed(AssertionError):
    """A step that did not come out as expected."""


def expectations(example: Path) -> list[Path]:
    """The expectation files of an example, each with a cluster of its own."""
    return sorted(example.glob("expect*.yaml"))


@contextmanager
def cluster(nodes: list[str], *, runtime: str, name: str = "example") -> Iterator[dict[str, str]]:
    """A running cluster; the value is the environment in which kubectl and drakkar talk to it."""
    folder = tempfile.mkdtemp(prefix="dk-")
    environment = os.environ | {"DRAKKAR_RUNTIME_DIR": folder, "KUBECONFIG": f"{folder}/{name}/data/kubeconfig"}
    arguments = [word for node in nodes for word in ("--node", node)]
    command = [DRAKKAR, "up", "--detach", "--name", name, "--runtime", runtime, *arguments]
    started = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    try:
        if started.returncode:
            raise Failed(f"{shlex.join(command)}\n{started.stderr}")
        yield environment
    finally:
        ended = subprocess.run(
            [DRAKKAR, "down", "--name", name], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder in line]
        remove_tree(Path(folder))
    if ended.returncode or left:
        raise Failed(f"the cluster did not end cleanly: {ended.stderr}{left}")


def run(
    expectation: Path,
    *,
    kubectl: str,
    runtime: str,
    say: Callable[[str, str], None] = lambda command, printed: None,
) -> None:
    """Do every step of `expectation`; raises `Failed` at the first that goes wrong."""
    document = yaml.safe_load(expectation.read_text())
    with cluster(document["nodes"], runtime=runtime) as environment:
        kept: dict[str, str] = {}
        for step in document["steps"]:
            try:
                _step(step, expectation.parent, environment, kubectl, kept, say)
            except Failed as failure:
                raise Failed(f"{expectation.parent.name}/{expectation.name}: {failure}{_log(environment)}") from None


def _step(
    step: dict[str, Any],
    folder: Path,
    environment: dict[str, str],
    kubectl: str,
    kept: dict[str, str],
    say: Callable[[str, str], None],
) -> None:
    for word, holds in (("equal", True), ("differ", False)):
        if word in step:
            values = [kept[name] for name in step[word]]
            if (len(set(values)) == 1) is not holds:
                raise Failed(f"{step[word]} should {word}: {values}")
            return
    command = step.get("run") or step["until"]
    deadline = time.monotonic() + (float(step.get("within", 30)) if "until" in step else 0)
    while True:
        code, printed = _execute(command, folder, environment, kubectl)
        problem = _problem(step, code, printed, kept)
        if problem is None:
            say(command, printed)
            return
        if time.monotonic() >= deadline:
            raise Failed(f"$ {command}\n{printed}\n{problem}")
        time.sleep(_POLL)


def _execute(command: str, folder: Path, environment: dict[str, str], kubectl: str) -> tuple[int, str]:
    words = shlex.split(command)
    words[0] = {"kubectl": kubectl, "drakkar": DRAKKAR}[words[0]]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def _problem(step: dict[str, Any], code: int, printed: str, kept: dict[str, str]) -> str | None:
    if code != step.get("exit", 0):
        return f"exit status {code}, wanted {step.get('exit', 0)}"
    if step.get("empty") and printed.strip():
        return "something was printed"
    for text in step.get("contains", ()):
        wanted = text.format(**kept) if re.fullmatch(r"\{\w+\}", text) else text
        if wanted not in printed:
            return f"{wanted!r} is missing"
    for key, split in (("words", str.split), ("lines", str.splitlines)):
        if key in step and sorted(split(printed)) != sorted(step[key]):
            return f"{key} {step[key]} were wanted"
    for key, count in (("count", len), ("distinct", lambda found: len(set(found)))):
        if key in step and count(re.findall(step[key]["pattern"], printed)) != step[key]["times"]:
            return f"{step[key]} was wanted"
    if "matches" in step:
        match = re.search(step["matches"], printed)
        if match is None:
            return f"{step['matches']!r} does not match"
        kept.update(match.groupdict())
    return None


def _log(environment: dict[str, str]) -> str:
    file = Path(environment["DRAKKAR_RUNTIME_DIR"]) / "example/log"
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    serious = [line for line in lines if re.search(r"WARNING|ERROR|Error|Traceback", line)]
    return "\n--- log\n" + "\n".join(serious[-20:]) if serious else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example", type=Path, nargs="+")
    parser.add_argument("--kubectl", default="")
    parser.add_argument("--runtime", default="auto")
    chosen = parser.parse_args()
    from tools import kubectl as kubectls

    kubectl = chosen.kubectl or str(kubectls.on_path() or kubectls.fetch(37))
    for example in chosen.example:
        for expectation in expectations(example):
            print(f"## {example.name} ({expectation.name})")
            run(
                expectation,
                kubectl=kubectl,
                runtime=chosen.runtime,
                say=lambda command, out: print(f"$ {command}\n{out}"),
            )


if __name__ == "__main__":
    main()
