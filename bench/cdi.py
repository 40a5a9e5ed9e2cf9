"""CDI against the Go reference library in the same run: reading 100 devices, injecting 8; and what a command takes.

``python -m bench cdi``. Both sides take turns on one machine, so that its load slows both; the reference is built by
``python -m tools.oracles cdi`` and needs Go, without which its recorded figures (4.5 ms, 45 µs on an idle core) stand
in. Musts: reading within 4 times, injecting within 3 times, `drakkar cdi inject` within 100 ms and `list` within 150
ms as whole processes, a hook within 40 ms (of processor time, which is all of their time on a quiet machine).
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import drakkar.hooks
from bench._tables import Figure, show
from drakkar.injection.cache import CdiCache
from drakkar.injection.spec import CdiSpec
from drakkar.injection.write import write_spec

CONFIG: dict[str, Any] = {
    "ociVersion": "1.1.0",
    "process": {"user": {"uid": 0, "gid": 0}, "args": ["sh"], "env": ["PATH=/bin", "HOME=/root"], "cwd": "/"},
    "root": {"path": "rootfs"},
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs"},
    ],
    "linux": {
        "namespaces": [{"type": "pid"}, {"type": "mount"}],
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
    },
}
CONFIG_TEXT = json.dumps(CONFIG)
OPTIONS = ["ro", "nosuid", "nodev", "rbind"]


def hundred_devices() -> dict[str, Any]:
    """A specification of 100 devices, each with two nodes, a variable and a mount; 20 global mounts and two hooks."""
    devices = []
    for number in range(100):
        nodes = [
            {
                "path": f"/dev/gpu{number}-{part}",
                "hostPath": f"/nonexistent/gpu{number}-{part}",
                "type": "c",
                "major": 240,
                "minor": 2 * number + part,
                "permissions": "rw",
            }
            for part in range(2)
        ]
        mount = {"hostPath": f"/run/gpu{number}", "containerPath": f"/run/gpu{number}", "options": OPTIONS}
        edits = {"env": [f"GPU{number}=1"], "deviceNodes": nodes, "mounts": [mount]}
        devices.append({"name": f"gpu{number}", "containerEdits": edits})
    libraries = [f"/usr/lib/libgpu{number}.so" for number in range(20)]
    hooks = [
        {"hookName": "createContainer", "path": "/usr/bin/hook", "args": ["hook", word], "env": ["DEBUG=false"]}
        for word in ("update-ldcache", "create-symlinks")
    ]
    mounts = [{"hostPath": path, "containerPath": path, "options": OPTIONS} for path in libraries]
    edits = {"hooks": hooks, "mounts": mounts}
    return {"cdiVersion": "0.5.0", "kind": "vendor.com/gpu", "devices": devices, "containerEdits": edits}


RECORDED: Final = {"Load100": 4500.0, "Load100JSON": 4600.0, "Inject8": 45.0}
_LINE: Final = re.compile(r"^Benchmark(\w+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op", re.MULTILINE)


def main(runs: int) -> bool:
    """Print both sides and the ratios; whether the musts hold."""
    spec = hundred_devices()
    names = [f"vendor.com/gpu=gpu{number * 12}" for number in range(8)]
    reference = _reference()
    with tempfile.TemporaryDirectory() as folder:
        specs = Path(folder) / "cdi"
        write_spec(specs, "a.yaml", spec)
        yaml_text = _as_people_write_it(spec).encode()
        json_text = json.dumps(spec).encode()
        with CdiCache([specs]) as cache:
            cache.devices()
            ours: dict[str, Callable[[], object]] = {
                "Load100": lambda: CdiSpec.parse(yaml_text),
                "Load100JSON": lambda: CdiSpec.parse(json_text),
                "Inject8": lambda: cache.inject(json.loads(CONFIG_TEXT), names),
            }
            raced = _race(ours, reference, runs)
            one = CdiSpec.from_object({**spec, "devices": spec["devices"][:1], "containerEdits": {}})
            claims = Path(folder) / "claims"
            alone = [
                Figure("refresh, nothing changed", _times(cache.refresh, 50, runs), "µs", 1000),
                Figure("write one claim's file", _times(lambda: write_spec(claims, "c.json", one), 20, runs), "µs"),
            ]
        print(
            "reference: " + ("the Go library, in turns with ours" if reference else "recorded, no Go here"), end="\n\n"
        )
        held = _show_race(raced)
        print()
        return show([*alone, *_commands(Path(folder), specs, names, runs)]) and held


def _reference() -> Path | None:
    from tools import oracles

    try:
        return oracles.program("cdi", benchmarks=True)
    except oracles.OracleError as error:
        print(f"no reference: {error}", file=sys.stderr)
        return None


def _race(
    ours: dict[str, Callable[[], object]], reference: Path | None, runs: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Microseconds of both sides, taken in turns. Decoding the configuration is part of both injections."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ours}
    for _ in range(runs):
        for name, action in ours.items():
            found[name][0].append(min(_times(action, 100 if name == "Inject8" else 3, 3)))
            theirs = _ask(reference, name) if reference else None
            found[name][1].append(RECORDED[name] if theirs is None else theirs)
    return found


def _ask(reference: Path, name: str) -> float | None:
    command = [str(reference), "-test.run", "^$", "-test.bench", f"^Benchmark{name}$", "-test.benchtime", "50ms"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "GOMAXPROCS": "1"})
    match = _LINE.search(shown.stdout)
    return float(match[2]) / 1000 if match else None


def _show_race(raced: dict[str, tuple[list[float], list[float]]]) -> bool:
    titles = {
        "Load100": ("read 100 devices, YAML", 4),
        "Load100JSON": ("read 100 devices, JSON", 4),
        "Inject8": ("inject 8 devices, file in memory", 3),
    }
    held = True
    print(f"{'':34}{'ours µs':>10}{'theirs µs':>11}{'ratio':>8}{'must':>7}")
    for name, (mine, theirs) in raced.items():
        title, must = titles[name]
        ours, reference = statistics.median(mine), statistics.median(theirs)
        # Turn by turn, since a shared machine slows for seconds at a time; the median of the ratios.
        ratio = statistics.median(one / other for one, other in zip(mine, theirs, strict=True))
        held = held and ratio <= must
        missed = "" if ratio <= must else "  MISSED"
        print(f"{title:34}{ours:>10.0f}{reference:>11.0f}{ratio:>7.1f}×{must:>6}×{missed}")
    return held


def _commands(folder: Path, specs: Path, names: list[str], runs: int) -> list[Figure]:
    """Whole processes, as a runtime or a person starts them; a bare interpreter is shown for comparison."""
    (folder / "config.json").write_text(CONFIG_TEXT)
    (folder / "rootfs").mkdir()
    program = str(Path(sys.executable).with_name("drakkar"))
    devices = [part for name in names for part in ("--device", name)]
    inject = [program, "cdi", "inject", "--spec-dir", str(specs), *devices, str(folder / "config.json")]
    listing = [program, "cdi", "list", "--spec-dir", str(specs)]
    script = Path(drakkar.hooks.__file__).with_name("__main__.py")  # as a specification names it: by its path
    hook = [sys.executable, "-I", str(script), "create-symlinks", "--link", "t::/x"]
    state = json.dumps({"bundle": str(folder)})
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(command: list[str], text: str = "") -> Callable[[], object]:
        def once() -> object:
            return subprocess.run(command, input=text, capture_output=True, text=True, check=True, env=env)

        once()  # the first one fills the cache of parsed files, and of compiled modules
        return once

    return [
        Figure(f"{title}: processor time", _processor_times(run(command, text), runs), "ms", bound)
        for title, command, text, bound in (
            ("a bare Python", [sys.executable, "-c", "pass"], "", None),
            ("drakkar cdi inject, 8 devices", inject, "", 100),
            ("drakkar cdi list, 100 devices", listing, "", 150),
            ("drakkar hook create-symlinks, Python", hook, state, 40),
        )
    ]


def _processor_times(action: Callable[[], object], runs: int) -> list[float]:
    """Milliseconds that child processes of `action` used: waiting for a core that others have is not theirs."""
    times = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        action()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)
    return times


def _as_people_write_it(spec: dict[str, Any]) -> str:
    """Block YAML with short lists in one line."""
    inner = {"options", "args"}

    def lines(value: Any, indent: str) -> list[str]:
        if isinstance(value, dict):
            found = []
            for key, child in value.items():
                if isinstance(child, (dict, list)) and key not in inner:
                    found += [f"{indent}{key}:", *lines(child, indent + "  ")]
                else:
                    shown = f"[{', '.join(child)}]" if isinstance(child, list) else child
                    found.append(f"{indent}{key}: {shown}")
            return found
        found = []
        for child in value:
            first, *rest = lines(child, indent + "  ") if isinstance(child, dict) else [f"{indent}  {child}"]
            found += [f"{indent}- {first.lstrip()}", *rest]
        return found

    return "\n".join(lines(spec, "")) + "\n"


def _times(action: Callable[[], object], many: int, runs: int) -> list[float]:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(many):
            action()
        times.append((time.perf_counter() - start) / many * 1e6)
    return times
