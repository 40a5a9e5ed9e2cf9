"""Container images without a registry: OCI archives made from the host's static busybox, for `ctr images import`.

Everything that a pod of the suite does is a few lines of shell, and the sandbox image only has to sleep; one static
program serves both (OCI image layout 1.0).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
WORKLOAD = "docker.io/library/busybox:1"
PAUSE = "docker.io/local/pause:1"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = ("tmp", "etc", "dev", "proc", "sys", "var", "usr", "usr/bin", "usr/lib", "root")


@dataclass(frozen=True, slots=True)
class _File:
    """One entry of a layer: a folder without content, a link with `target`, else a file."""

    name: str
    content: bytes | None = None
    mode: int = 0o755
    target: str = ""


def write_images(folder: Path) -> list[Path]:
    """Writes busybox.tar and pause.tar; returns their paths. Raises OSError when there is no static busybox."""
    content = BUSYBOX.read_bytes()
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    program = [_File("bin"), _File("bin/busybox", content)]
    links = [_File(f"bin/{name}", target="/bin/busybox") for name in applets if name != "busybox"]
    folders = [_File(name, mode=0o1777) for name in _FOLDERS]
    user = _File("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
    workload = {"Env": ["PATH=/bin:/usr/bin"], "Cmd": ["sh"]}
    pause = {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/busybox", "sleep", "1000000000"]}
    return [
        _write(folder / "busybox.tar", WORKLOAD, [*program, *links, *folders, user], workload),
        _write(folder / "pause.tar", PAUSE, program, pause),
    ]


def _write(path: Path, reference: str, files: list[_File], config: dict[str, object]) -> Path:
    layer = _layer(files)
    rootfs = {"type": "layers", "diff_ids": [_digest(layer)]}
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    image = _json({"architecture": architecture, "os": "linux", "config": config, "rootfs": rootfs})
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", image),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    )
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    entry["annotations"] = {"io.containerd.image.name": reference}
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        for blob in (manifest, image, layer):
            _add(archive, "blobs/sha256/" + _digest(blob).removeprefix("sha256:"), blob)
    return path


def _layer(files: list[_File]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for file in files:
            info = tarfile.TarInfo(file.name)
            info.mode = file.mode
            if file.target:
                info.type, info.linkname = tarfile.SYMTYPE, file.target
                archive.addfile(info)
            elif file.content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(file.content)
                archive.addfile(info, io.BytesIO(file.content))
    return out.getvalue()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _descriptor(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
