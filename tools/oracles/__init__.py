"""The upstream Go libraries behind JSON lines, to race and to compare with: `python -m tools.oracles NAME`.

What Drakkar must do is what Kubernetes 1.37 does, so the judge is upstream's own code: `allocation` runs
k8s.io/dynamic-resource-allocation (KEP-4381), `cel` its compiler of device selectors, `cdi` the reference library of
the Container Device Interface, `gpus` NVIDIA's libraries for NVML, MIG and the PCI bus with Kubernetes' standard
attributes, and `informers` shows what client-go's caches hold of a cluster. Each is a small program
of ours around a pinned version of the library, built once per content of its sources and kept in $DRAKKAR_CACHE
(default ~/.cache/drakkar), outside the clone.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import IO, Any

FOLDER = Path(__file__).parent
CACHE = Path(os.environ.get("DRAKKAR_CACHE") or Path("~/.cache/drakkar").expanduser()) / "oracles"

GO_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/opt/go/bin/go", "~/go/bin/go", "~/sdk/go/bin/go")
"""Where Go lies on machines that do not have it on PATH: the tarball's place, Debian's, those of its own installer."""

FIRST_SWITCHING = (1, 21)
"""The first Go that fetches the version a go.mod asks for (GOTOOLCHAIN=auto)."""

WITH_C = ("gpus",)
"""What needs a C compiler: go-nvml calls the NVML of a driver, whose functions it names when it is built."""

Json = dict[str, Any]


class OracleError(Exception):
    """No program, and what to do about it."""


def names() -> list[str]:
    """The oracles there are: the folders with Go sources."""
    return sorted(path.parent.name for path in FOLDER.glob("*/go.mod"))


def program(name: str, *, benchmarks: bool = False) -> Path:
    """The built program, or that of its `go test` benchmarks; builds it if its sources changed.

    OracleError says how to get what is missing.
    """
    if name not in names():
        raise OracleError(f"no oracle {name!r}; there are {', '.join(names())}")
    target = CACHE / f"{name}-{_digest(FOLDER / name)}" / f"{name}-{'benchmarks' if benchmarks else 'oracle'}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(name, find_go(), target, ["test", "-c", "-vet=off"] if benchmarks else ["build"])
    return target


def find_go() -> str:
    """A Go that can build the oracles, from PATH or a usual place."""
    old = []
    for place in (shutil.which("go"), *(str(Path(place).expanduser()) for place in GO_PLACES)):
        if place and os.access(place, os.X_OK):
            version = go_version(place)
            if version >= FIRST_SWITCHING:
                return place
            old.append(f"{place} is Go {'.'.join(map(str, version))}")
    found = f" ({'; '.join(old)})" if old else ""
    raise OracleError(
        f"the upstream libraries need Go 1.21 or newer{found}: "
        "unpack a release from https://go.dev/dl into /usr/local, or put go on PATH"
    )


def go_version(go: str) -> tuple[int, int]:
    """Major and minor version of a Go; (0, 0) if it does not run."""
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=True, timeout=60, env=_environment()
        )
    except (OSError, subprocess.SubprocessError):
        return 0, 0
    found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _environment(name: str = "") -> dict[str, str]:
    fixed = {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0", "GOTOOLCHAIN": "auto", "GOWORK": "off"}
    if name in WITH_C:
        fixed |= {"CGO_ENABLED": "1", "CGO_CFLAGS": "-O1 -Wno-deprecated-declarations"}
    if "HOME" not in os.environ:
        fixed["GOPATH"] = fixed["GOCACHE"] = str(CACHE / "go")
    return {**os.environ, **fixed}


def _build(name: str, go: str, target: Path, verb: Sequence[str]) -> None:
    print(f"building the {name} oracle with {go} (a minute or two the first time)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # A copy, since -mod=mod may touch go.mod and go.sum.
        sources = Path(folder) / name
        shutil.copytree(FOLDER / name, sources)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        command = [go, *verb, "-trimpath", "-ldflags=-s -w", "-o", str(partial), "."]
        done = subprocess.run(command, cwd=sources, env=_environment(name), capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise OracleError(f"{go} cannot build the {name} oracle (GOPROXY must be reachable): {'; '.join(lines[-3:])}")
    partial.replace(target)


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".go", ".mod", ".sum"):
            total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


class Oracle:
    """A running oracle: a question in, an answer out. Ends with the `with` block."""

    def __init__(self, name: str, *arguments: str) -> None:
        self._command = [str(program(name)), *arguments]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, case: Json | str) -> Json:
        """The answer to one case (an object or its JSON line)."""
        questions, answers = self._pipes()
        questions.write(_line(case))
        questions.flush()
        answer = answers.readline()
        if not answer:
            raise OracleError(f"{self._command[0]} ended with {self._process.wait()} instead of an answer")
        found: Json = json.loads(answer)
        return found

    def stream(self, cases: Sequence[Json | str]) -> Iterator[Json]:
        """One answer per case, while the program is already busy with those that follow; all must be taken."""
        questions, answers = self._pipes()

        def write() -> None:
            questions.writelines(map(_line, cases))
            questions.flush()

        writer = Thread(target=write, daemon=True)
        writer.start()
        for _ in cases:
            answer = answers.readline()
            if not answer:
                raise OracleError(f"{self._command[0]} ended with {self._process.wait()} instead of an answer")
            yield json.loads(answer)
        writer.join()

    def ask_all(self, cases: Sequence[Json | str]) -> list[Json]:
        """One answer per case."""
        return list(self.stream(cases))

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the program."""
        questions, answers = self._pipes()
        questions.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        answers.close()


def _line(case: Json | str) -> str:
    return (case if isinstance(case, str) else json.dumps(case)).rstrip("\n") + "\n"
