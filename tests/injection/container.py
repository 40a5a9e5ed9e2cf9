"""One device for every runtime under test, and what a container that has it must see from inside."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drakkar.injection.write import write_spec

BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "cat", "env", "stat", "ls", "readlink", "test", "echo", "touch", "head", "id")
SCRIPT = """\
echo "ENV=$CDI_DEVICE"
cat /cdi/share/hello.txt
touch /cdi/share/x 2>/dev/null || echo READ-ONLY
stat -c 'NODE=%F %t:%T' /dev/drakkar0
(head -c 0 /dev/drakkar0) 2>&1 | grep -q 'not permitted' && echo DENIED || echo ALLOWED
test -e /dev/drakkar1 || echo ABSENT
echo "LINK=$(readlink /cdi-link)"
"""
SEEN = [
    "ENV=zero",
    "hello from the host",
    "READ-ONLY",
    "NODE=character special file a:e5",
    "ALLOWED",
    "ABSENT",
    "LINK=/cdi/share/hello.txt",
]


@dataclass(frozen=True)
class Device:
    """A specification with two devices, 0 and 1, in its directory; only 0 is ever asked for."""

    directory: Path
    kind: str

    @property
    def name(self) -> str:
        return f"{self.kind}=0"


def make_device(at: Path, directory: Path, hook: Sequence[str], *, kind: str = "drakkar.test/gpu") -> Device:
    """Device nodes (10:229, FUSE: opening it does nothing, and no cgroup allows it unasked), a mount, a hook.

    Args:
        at: an empty folder for the host's side.
        directory: where the specification is written.
        hook: the command line of a hook program.
    """
    (at / "dev").mkdir(parents=True)
    for number in range(2):
        os.mknod(at / "dev" / f"drakkar{number}", stat.S_IFCHR | 0o666, os.makedev(10, 229))
    (at / "share").mkdir()
    (at / "share" / "hello.txt").write_text("hello from the host\n")
    program = shutil.which(hook[0]) or hook[0]
    devices: list[dict[str, Any]] = [
        {
            "name": str(number),
            "containerEdits": {
                "env": [f"CDI_DEVICE={name}"],
                "deviceNodes": [{"path": f"/dev/drakkar{number}", "hostPath": str(at / "dev" / f"drakkar{number}")}],
            },
        }
        for number, name in enumerate(("zero", "one"))
    ]
    everywhere = {
        "mounts": [
            {
                "hostPath": str(at / "share"),
                "containerPath": "/cdi/share",
                "options": ["ro", "nosuid", "nodev", "rbind"],
            }
        ],
        "hooks": [
            {
                "hookName": "createContainer",
                "path": program,
                "args": [*hook, "create-symlinks", "--link", "/cdi/share/hello.txt::/cdi-link"],
                "env": ["PATH=/nonexistent"],
            }
        ],
    }
    spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": devices, "containerEdits": everywhere}
    write_spec(directory, f"{kind.replace('/', '-')}.json", spec)
    return Device(directory, kind)


def make_root(at: Path) -> Path:
    """A root file system of busybox."""
    for name in ("bin", "dev", "proc", "sys", "tmp", "etc"):
        (at / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, at / "bin" / "busybox")
    for name in (*APPLETS, "grep"):
        (at / "bin" / name).symlink_to("busybox")
    return at


def configuration(script: str) -> dict[str, Any]:
    """A plain OCI configuration: a shell without any device but the usual ones."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh", "-c", script],
            "env": ["PATH=/bin", "CDI_DEVICE=none"],
            "cwd": "/",
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        },
    }


def write_bundle(at: Path, config: dict[str, Any]) -> None:
    """``config.json`` and ``rootfs``."""
    at.mkdir(parents=True, exist_ok=True)
    make_root(at / "rootfs")
    (at / "config.json").write_text(json.dumps(config))
