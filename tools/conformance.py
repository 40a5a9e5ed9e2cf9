"""Run recorded conversations, scenarios and kubectl sessions against fresh control planes of ours.

    python -m tools.conformance [FOLDER_OR_FILE…] [--kubectl PATH] [--transport https|in-process]
    python -m tools.conformance --pending

Each file gets a control plane of its own. One line for each step that fails, and a closing line. Without arguments the
files of `tests/conformance` are run. ``--pending`` runs those and writes `tests/conformance/pending.txt` anew, for who
has just made something pass; look at the difference before you commit it: the file may only get shorter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.conformance.running import HERE, PENDING, Outcome, run_files, shown
from tests.conformance.servers import ControlPlanes
from tools import kubectl as kubectls

_HEAD = """\
# Steps of the recorded conversations and kubectl sessions that do not pass yet; the tests hold this file to it.
# Lines are `conversation / step`, or `kubectl MINOR: session / command`. The sessions were recorded with 1.37: most
# lines of 1.34 are that client's own words.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="FOLDER_OR_FILE")
    parser.add_argument("--kubectl", type=Path, help="the kubectl for sessions; found on PATH or fetched by default")
    parser.add_argument("--transport", choices=["https", "in-process"], default="https")
    parser.add_argument("--pending", action="store_true", help="write pending.txt anew")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planes = ControlPlanes(Path(folder))
        try:
            return _write_pending(planes) if chosen.pending else _run(planes, chosen)
        finally:
            planes.close()


def _run(planes: ControlPlanes, chosen: argparse.Namespace) -> int:
    roots: list[Path] = chosen.paths or [HERE / "http", HERE / "scenarios", HERE / "kubectl"]
    unknown = [str(root) for root in roots if not root.exists()]
    if unknown:
        print(f"there is no {', '.join(unknown)}", file=sys.stderr)
        return 2
    files = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*.yaml")))]
    sessions = [path for path in files if "\ncommands:" in path.read_text()]
    others = [path for path in files if path not in sessions]
    transport = chosen.transport.replace("-", " ")
    total = run_files(planes, others, transport=transport, heard=_tell)
    if sessions:
        kubectl = chosen.kubectl or kubectls.on_path() or kubectls.fetch(37)
        total += run_files(planes, sessions, kubectl=kubectl, heard=_tell)
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or not total.passed else 0


def _tell(outcome: Outcome) -> None:
    for name, problems in outcome.failures.items():
        print(f"FAIL {name}: {shown(problems)}", flush=True)


def _write_pending(planes: ControlPlanes) -> int:
    lines = sorted(run_files(planes, sorted((HERE / "http").glob("*.yaml"))).failures)
    for minor in (34, 37):
        outcome = run_files(planes, sorted((HERE / "kubectl").glob("*.yaml")), kubectl=kubectls.fetch(minor))
        lines += [f"kubectl 1.{minor}: {name}" for name in sorted(outcome.failures)]
    PENDING.write_text(_HEAD + "".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} steps pending")
    return 0


if __name__ == "__main__":
    sys.exit(main())
