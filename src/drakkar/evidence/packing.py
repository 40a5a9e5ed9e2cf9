"""Writes a snapshot as a bundle, the folder or archive that `drakkar doctor` reads, without its secrets.

``objects.yaml`` holds one object per document, each as one line of JSON: JSON is YAML, every tool reads it, and a
cluster of ten thousand pods is read back in a fraction of a second. What could not be read is said in ``meta.yaml``.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from drakkar.errors import DrakkarError
from drakkar.evidence.redaction import Redactor
from drakkar.evidence.snapshot import Snapshot

__all__ = ["packed", "write"]

_ARCHIVES: Final = (".tgz", ".tar.gz", ".tar")


def packed(snapshot: Snapshot, redactor: Redactor) -> dict[str, bytes]:
    """The files of a bundle by their paths in it."""
    objects = redactor.objects([*snapshot.objects, *snapshot.events])
    files = {"objects.yaml": b"\n---\n".join(map(msgspec.json.encode, objects)) + b"\n"}
    for node, capture in sorted(snapshot.nodes.items()):
        for name, text in sorted(capture.files.items()):
            files[f"nodes/{node}/{name}"] = redactor.text(text).encode()
    for key, text in sorted(snapshot.logs.items()):
        end = ".previous.log" if key.previous else ".log"
        files[f"pods/{key.namespace}/{key.pod}/{key.container}{end}"] = redactor.text(text).encode()
    for name, text in sorted(snapshot.metrics.items()):
        files[f"metrics/{name}"] = redactor.text(text).encode()
    files["meta.yaml"] = _meta(snapshot, redactor).encode()
    return files


def write(files: Mapping[str, bytes], path: Path) -> None:
    """Writes the files as an archive (``.tgz``, ``.tar.gz``, ``.tar``) or, for any other name, as a folder.

    Raises:
        DrakkarError: the place cannot be written, or is a folder with something in it.
    """
    try:
        if path.name.endswith(_ARCHIVES):
            _archive(files, path)
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise DrakkarError(
                f"{path} is there already",
                reason="AlreadyExists",
                subject=str(path),
                expected="a name that ends in .tgz, or a folder that is empty or not there",
            )
        for name, data in files.items():
            place = path / name
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            place.write_bytes(data)
    except OSError as error:
        raise DrakkarError(
            f"cannot write {path}: {error.strerror or error}", reason="NotWritable", subject=str(path)
        ) from error


def _archive(files: Mapping[str, bytes], path: Path) -> None:
    folder = path.name.removesuffix(".tgz").removesuffix(".gz").removesuffix(".tar")
    now = int(datetime.now(UTC).timestamp())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w" if path.name.endswith(".tar") else "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode, member.mtime = len(data), 0o600, now
            tar.addfile(member, io.BytesIO(data))
    path.touch(mode=0o600)
    path.write_bytes(buffer.getvalue())


def _meta(snapshot: Snapshot, redactor: Redactor) -> str:
    fields: dict[str, Any] = {
        "capturedAt": f"{snapshot.captured_at:%Y-%m-%dT%H:%M:%SZ}" if snapshot.captured_at else "",
        "kubernetesVersion": snapshot.kubernetes_version,
        "notes": [redactor.text(note) for note in snapshot.notes],
        "unread": [redactor.text(problem) for problem in snapshot.unread],
    }
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items() if value)
