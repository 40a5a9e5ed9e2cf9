"""CDI: reading a specification of 100 devices and injecting 8 of them, as the reference library is measured.

The limits are four and three times what that library takes on one core of an idle machine (4.5 ms, 45 µs). Run with
``python -m bench.cdi``; medians of 10, with the machine's load beside them.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def measure() -> list[tuple[str, float, float]]:
    """Rows of (what, median in milliseconds, limit in milliseconds)."""
    spec = hundred_devices()
    names = [f"vendor.com/gpu=gpu{number * 12}" for number in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        write_spec(folder, "a.yaml", spec)
        yaml_text = _as_people_write_it(spec).encode()
        json_text = json.dumps(spec).encode()
        with CdiCache([folder]) as cache:
            cache.devices()
            rows = [
                ("read 100 devices, YAML", _median(lambda: CdiSpec.parse(yaml_text), 3), 20.0),
                ("read 100 devices, JSON", _median(lambda: CdiSpec.parse(json_text), 3), 20.0),
                ("inject 8 devices, cached", _median(lambda: cache.inject(CONFIG, names), 100), 0.135),
                ("refresh, nothing changed", _median(cache.refresh, 50), 1.0),
            ]
        one = {**spec, "devices": spec["devices"][:1], "containerEdits": {}}
        target = Path(folder) / "claims"
        rows.append(("write one claim's specification", _median(lambda: write_spec(target, "c.json", one), 20), 1.0))
    return rows


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


def _median(action: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(repeat):
            action()
        times.append((time.perf_counter() - start) / repeat)
    return statistics.median(times) * 1e3


def main(runs: int = 10) -> bool:
    """Prints the table; whether every limit holds."""
    holds = True
    for what, median, limit in measure():
        holds = holds and median <= limit
        print(f"{what:34} {median:9.3f} ms   limit {limit:7.3f} ms   {'ok' if median <= limit else 'TOO SLOW'}")
    return holds


if __name__ == "__main__":
    main()
