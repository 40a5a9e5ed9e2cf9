"""CDI: reading a specification of 100 devices and injecting 8 of them, as the reference library is measured.

The limits are four and three times what that library takes on one core of an idle machine (4.5 ms, 45 µs). Run with
``python -m bench cdi``. On a busy machine only the column `min` says what the code takes.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def main(runs: int) -> bool:
    """Print microseconds per call; whether the limits hold."""
    spec = hundred_devices()
    names = [f"vendor.com/gpu=gpu{number * 12}" for number in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        write_spec(folder, "a.yaml", spec)
        yaml_text = _as_people_write_it(spec).encode()
        json_text = json.dumps(spec).encode()
        one = CdiSpec.from_object({**spec, "devices": spec["devices"][:1], "containerEdits": {}})
        target = Path(folder) / "claims"
        with CdiCache([folder]) as cache:
            cache.devices()
            actions: list[tuple[str, Callable[[], object], int, float]] = [
                ("read 100 devices, YAML", lambda: CdiSpec.parse(yaml_text), 3, 20_000),
                ("read 100 devices, JSON", lambda: CdiSpec.parse(json_text), 3, 20_000),
                ("inject 8 devices, cached", lambda: cache.inject(CONFIG, names), 100, 135),
                ("refresh, nothing changed", cache.refresh, 50, 1000),
                ("write one claim's specification", lambda: write_spec(target, "c.json", one), 20, 1000),
            ]
            return show([Figure(name, _times(act, many, runs), "µs", bound) for name, act, many, bound in actions])


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
