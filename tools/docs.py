"""Run every command block of README and docs, and compare what they print.

    python -m tools.docs [FILE…] [--user NAME]

A block fenced as ``console`` is a session: lines that begin with ``$ `` are commands (a trailing ``\\`` continues), the
lines below are what they print. Blocks of one file share a shell, a working directory (a fresh copy of the clone) and
its environment. In the expected output ``...`` at the end of a line or alone on one stands for anything, ``<…>`` in
angle brackets for any one word; runs of blanks count as one. ``# exit 1`` behind a command says that it must fail so.
`kubectl get` and `kubectl logs` may be looked at for five seconds until they show what the page shows. Blocks fenced
otherwise are not run. With ``--user`` the blocks run as that user, in a copy of the clone of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_END = "@@drakkar-docs-end@@"
_TIMEOUT = 900
_LOOKING = ("kubectl get ", "kubectl logs ")
_LOOKS = 20


@dataclass
class Command:
    """One command, where it stands, what it should print and its exit status."""

    text: str
    line: int
    expected: list[str] = field(default_factory=list)
    exit: int = 0


def commands(file: Path) -> list[Command]:
    """The commands of all console blocks of a Markdown file."""
    found: list[Command] = []
    inside = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = not inside and line.strip() == "```console"
        elif inside and line.startswith("$ "):
            text, _, status = line[2:].partition("  # exit ")
            found.append(Command(text, number, exit=int(status or 0)))
        elif inside and found and found[-1].text.endswith("\\") and not found[-1].expected:
            found[-1].text = found[-1].text[:-1] + line.strip()
        elif inside and found:
            found[-1].expected.append(line)
    return found


def fits(expected: list[str], printed: list[str]) -> bool:
    """Whether the output is what the page shows."""
    expected = [line for line in expected if line.strip()]
    printed = [line for line in printed if line.strip()]
    if not expected:
        return True
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
            continue
        words = []
        for word in line.split():
            if word.endswith("...") and word != "...":
                words.append(re.escape(word[:-3]) + ".*")
            elif word == "...":
                words.append(".*")
            else:
                words.append(re.sub(r"<[^<>]*>", r"\\S+", re.escape(word).replace(r"\<", "<").replace(r"\>", ">")))
        pattern += r"\s+".join(words) + r"\n"
    text = "".join(" ".join(line.split()) + "\n" for line in printed)
    return re.fullmatch(pattern, text) is not None


def run(file: Path, clone: Path, user: str) -> list[str]:
    """What is wrong with the commands of `file`, run in `clone`."""
    shell = _Shell(clone, user)
    problems = []
    try:
        for command in commands(file):
            code, printed = shell.execute(command.text)
            for _ in range(_LOOKS if command.text.startswith(_LOOKING) else 0):
                if code == command.exit and fits(command.expected, printed):
                    break
                time.sleep(0.25)  # what a reader sees a moment later
                code, printed = shell.execute(command.text)
            where = f"{file.relative_to(ROOT)}:{command.line}: $ {command.text}"
            if code != command.exit:
                problems.append(
                    f"{where}\n  exit status {code}, {command.exit} expected; it printed:\n" + _indent(printed)
                )
            elif not fits(command.expected, printed):
                problems.append(f"{where}\n  expected:\n{_indent(command.expected)}\n  printed:\n{_indent(printed)}")
            else:
                print(f"ok  {where}", flush=True)
    finally:
        shell.close()
    return problems


class _Shell:
    """One shell for a page, so that `export` and `cd` last."""

    def __init__(self, clone: Path, user: str) -> None:
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("VIRTUAL_ENV", "KUBE", "PYTHON", "DRAKKAR", "XDG_"))
            and key not in ("HOME", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
        }
        environment["HOME"] = str(clone.parent / "home")
        environment["DRAKKAR_CACHE"] = str(clone.parent / "cache")
        environment["PATH"] = f"{clone}/.venv/bin:{clone.parent}/bin:{environment['PATH']}"
        command = ["bash", "--noprofile", "--norc"]
        if user:
            kept = [f"{key}={environment[key]}" for key in ("HOME", "PATH", "DRAKKAR_CACHE")]
            command = ["runuser", "-u", user, "--", "env", *kept, *command]
        self._process = subprocess.Popen(
            command,
            cwd=clone,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def execute(self, text: str) -> tuple[int, list[str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{{ {text}\n}} </dev/null\nprintf '\\n{_END} %s\\n' $?\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.startswith(_END):
                return int(line.split()[1]), printed
            printed.append(line.rstrip("\n"))
        return self._process.wait(_TIMEOUT), printed

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def _indent(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _fresh_clone(user: str) -> Path:
    """A clone as a newcomer has it, with a kubectl on PATH, in a directory that `user` owns."""
    folder = Path(tempfile.mkdtemp(prefix="dkdocs-"))
    folder.chmod(0o755)
    clone = folder / "drakkar"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    for name in ("home", "cache", "bin"):
        (folder / name).mkdir()
    from tools import kubectl

    shutil.copy2(kubectl.on_path() or kubectl.fetch(37), folder / "bin/kubectl")
    if user:
        subprocess.run(["chown", "-R", f"{user}:", str(folder)], check=True)
    return clone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--user", default="")
    chosen = parser.parse_args()
    files = [file.resolve() for file in chosen.files] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    files = [file for file in files if commands(file)]
    clone = _fresh_clone(chosen.user)
    try:
        problems = [problem for file in files for problem in run(file, clone, chosen.user)]
    finally:
        shutil.rmtree(clone.parent, ignore_errors=True)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{sum(len(commands(file)) for file in files) - len(problems)} commands as shown, {len(problems)} not")
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
