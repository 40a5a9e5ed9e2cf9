"""Collects what a node shows, here or over ssh: one shell script, so that a node needs nothing of ours.

The script (``data/node.sh``) prints a tar stream with the files of ``nodes/<node>/`` in a bundle. It is sent to
``sh -s`` on the node, read with the bounds of a bundle, and becomes a `NodeCapture` like one from a folder.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.evidence.captures import NodeCapture

__all__ = ["collect", "describe"]

_LIMIT: Final = 256 << 20
_SECONDS: Final = 180.0


def collect(
    node: str,
    command: Sequence[str] = ("sh", "-s"),
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = _SECONDS,
) -> NodeCapture:
    """What a node shows.

    Args:
        node: its name.
        command: runs a shell on it that reads a script from standard input, e.g. ``ssh n3 sh -s``.
        environment: added to this process's, for a shell on this machine.

    Raises:
        DrakkarError: the command cannot be run, fails, takes too long, or prints something else.
    """
    shown = " ".join(command)
    try:
        done = subprocess.run(
            list(command), input=_script(), capture_output=True, timeout=seconds, check=False,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"no answer in {seconds:g} s" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise DrakkarError(f"cannot look at node {node}: {problem}", reason="NodeUnreachable", subject=shown) from None
    if not done.stdout:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DrakkarError(
            f"cannot look at node {node}: {words[-1] if words else f'status {done.returncode}'}",
            reason="NodeUnreachable",
            subject=shown,
            expected="a command that runs a shell as root on the node, e.g. --ssh 'ssh root@{node}'",
        )
    return NodeCapture(node, _files(done.stdout, node, shown))


def _script() -> bytes:
    return resources.files("drakkar.evidence").joinpath("data/node.sh").read_bytes()


def _files(stream: bytes, node: str, shown: str) -> dict[str, str]:
    found: dict[str, str] = {}
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(stream), mode="r:") as tar:
            for member in tar:
                parts = [part for part in PurePosixPath(member.name).parts if part != "."]
                total += member.size
                if total > _LIMIT:
                    raise DrakkarError(f"node {node} sent more than {_LIMIT >> 20} MiB", reason="CaptureTooLarge")
                if member.isreg() and parts and ".." not in parts and (file := tar.extractfile(member)):
                    found["/".join(parts)] = file.read().decode("utf-8", "replace")
    except tarfile.TarError:
        raise DrakkarError(
            f"node {node} printed something else than what was collected: {stream[:80].decode('utf-8', 'replace')!r}",
            reason="NodeUnreachable",
            subject=shown,
            next_step="keep the shell's own start files from printing",
        ) from None
    return found


def describe(capture: NodeCapture) -> dict[str, Any]:
    """What a capture shows, as plain JSON: GPUs, device nodes, CDI files, runtime in use, claims held."""
    from drakkar.evidence.runtimes import cdi_settings, runtime_in_use

    runtime = runtime_in_use(capture)
    settings = cdi_settings(capture)
    return {
        "node": capture.name,
        "driverVersion": capture.driver_version,
        "bootID": capture.text("boot-id.txt").strip(),
        "gpus": None if capture.gpus is None else [
            {
                "index": gpu.number,
                "product": gpu.product,
                "uuid": gpu.uuid,
                "migDevices": [mig._asdict() for mig in gpu.mig_devices],
            }
            for gpu in capture.gpus
        ],
        "deviceNodes": [
            {"path": file.path, "major": file.major, "minor": file.minor}
            for file in capture.device_files
            if file.major is not None
        ],
        "cdi": {
            "files": sorted(capture.cdi_files),
            "devices": sorted(capture.cdi_definitions),
            "definedTwice": {name: sorted(files) for name, files in capture.cdi_definitions.items() if len(files) > 1},
        },
        "runtime": runtime,
        "runtimeCDI": settings._asdict(),
        "kubeletClaims": None if capture.prepared_claims is None else [
            {"uid": claim.uid, "claim": f"{claim.namespace}/{claim.name}", "pods": list(claim.pods),
             "cdiDevices": sorted(name for names in claim.cdi_devices.values() for name in names)}
            for claim in capture.prepared_claims
        ],
        "driverClaims": sorted(capture.driver_claims),
        "notes": capture.text("notes.txt").splitlines(),
    }  # fmt: skip
