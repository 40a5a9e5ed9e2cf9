"""Builds the binaries that the end-to-end suite runs, once per set of inputs, and says where they are.

    python -m tools.realkube                # build if need be, print the folder
    python -m tools.realkube --print        # print the folder, build nothing; exits 1 if it is not there

Inputs are the go.mod and go.sum files beside this one, the Go version and the flags; their hash names the folder below
$DRAKKAR_CACHE (default ~/.cache/drakkar), so that a change of version never meets an old binary. A folder appears only
when it is complete. Cold this takes about eight minutes on two cores, with a warm Go cache ten seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("DRAKKAR_CACHE") or Path("~/.cache/drakkar").expanduser()) / "realkube"

#: Where Go is looked for beside PATH: where its own installation guide puts it.
_GO_HOMES = (Path("/usr/local/go/bin"), Path("/usr/lib/go/bin"))

_GIT_VERSION = "k8s.io/component-base/version.gitVersion"
_MAJOR = "k8s.io/component-base/version.gitMajor"
_MINOR = "k8s.io/component-base/version.gitMinor"


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module: its folder here, and the binaries that its `tool` directive builds (name there, name ours)."""

    folder: str
    binaries: dict[str, str]


MODULES = (
    Module("runtime", {n: n for n in ("containerd", "containerd-shim-runc-v2", "ctr", "crictl")} | {"server": "etcd"}),
    Module(
        "kubernetes",
        {n: n for n in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")},
    ),
)

BINARIES = tuple(name for module in MODULES for name in module.binaries.values())


def kubernetes_version() -> str:
    """The version of Kubernetes that the go.mod file requires, `v1.37.2`."""
    for line in (HERE / "kubernetes" / "go.mod").read_text().splitlines():
        words = line.split()
        if "k8s.io/kubernetes" in words:
            return words[words.index("k8s.io/kubernetes") + 1]
    raise SystemExit("tools/realkube/kubernetes/go.mod requires no k8s.io/kubernetes")


def folder() -> Path:
    """Where the binaries of these inputs are, or will be."""
    digest = hashlib.sha256()
    for module in MODULES:
        for name in ("go.mod", "go.sum"):
            digest.update((HERE / module.folder / name).read_bytes())
    digest.update("\n".join(_flags()).encode())
    return CACHE / digest.hexdigest()[:16]


def built() -> Path | None:
    """The folder if every binary is in it."""
    at = folder()
    return at if all((at / name).exists() for name in BINARIES) else None


def find_go() -> str | None:
    """The Go command, from PATH or its usual homes."""
    found = shutil.which("go")
    return found or next((str(home / "go") for home in _GO_HOMES if (home / "go").exists()), None)


def build() -> Path:
    """Builds what is missing; returns the folder. Ends the program with one sentence if Go is missing or fails."""
    done = built()
    if done is not None:
        return done
    go = find_go()
    if go is None:
        raise SystemExit("building Kubernetes needs Go 1.26 or newer on PATH (https://go.dev/doc/install)")
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=".building-"))
    try:
        for module in MODULES:
            _compile(go, module, partial)
        partial.chmod(0o755)
        if built() is None:  # else another build was faster
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _compile(go: str, module: Module, target: Path) -> None:
    print(f"building {', '.join(module.binaries.values())} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as own:
        for name in ("go.mod", "go.sum"):
            shutil.copy(HERE / module.folder / name, own)
        command = [go, "build", "-mod=mod", *_flags(), "-o", f"{own}/bin/", "tool"]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
        if subprocess.run(command, cwd=own, env=environment, check=False).returncode:
            raise SystemExit(f"go could not build {module.folder}; its message is above")
        for theirs, ours in module.binaries.items():
            shutil.move(Path(own, "bin", theirs), target / ours)


def _flags() -> list[str]:
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = {_GIT_VERSION: version, _MAJOR: major, _MINOR: minor}
    return ["-trimpath", "-ldflags=-s -w " + " ".join(f"-X {name}={value}" for name, value in stamps.items())]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.realkube", description=__doc__.split("\n")[0])
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the folder, build nothing")
    if parser.parse_args().only_print:
        print(folder())
        raise SystemExit(0 if built() else 1)
    print(build())
