"""Loads a diagnosis bundle: one folder (or tar archive) that holds an incident, made where it happened.

The format is described in ``cases/diagnosis/FORMAT.md``. A bundle comes from a stranger's machine: links are not
followed, sizes are bounded, YAML is read without tags, and a damaged file becomes a note instead of a failure.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import msgspec

from drakkar.errors import DrakkarError
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.snapshot import LogKey, Manifest, Snapshot, name_of, parse_time
from drakkar.kube import yamltext

__all__ = ["BundleError", "load", "load_files"]

MAX_FILE_BYTES: Final = 64 << 20
MAX_TOTAL_BYTES: Final = 512 << 20
MAX_FILES: Final = 20_000
_WITH_SPEC: Final = frozenset({"ResourceSlice", "ResourceClaim", "DaemonSet"})


class BundleError(DrakkarError):
    """A path that is no readable bundle."""


def load(path: str | Path) -> Snapshot:
    """The snapshot in a bundle folder, or in a ``.tar``, ``.tar.gz`` or ``.tgz`` of one.

    Raises:
        BundleError: the path is missing, no bundle, or larger than a bundle may be.
    """
    place = Path(path)
    expected = "a folder or tar archive with objects.yaml in it"
    try:
        if place.is_dir():
            return load_files(dict(_folder_files(place)), name=str(path))
        if place.is_file():
            return load_files(dict(_archive_files(place)), name=str(path))
    except tarfile.ReadError as error:
        raise BundleError(
            f"{path} is no bundle: {error}", reason="NoBundle", subject=str(path), expected=expected
        ) from None
    except (OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        raise BundleError(
            f"cannot read the bundle {path}: {error}", reason="UnreadableBundle", subject=str(path)
        ) from None
    problem = "is no bundle" if place.exists() else "does not exist"
    raise BundleError(f"{path} {problem}", reason="NoBundle", subject=str(path), expected=expected)


def load_files(files: Mapping[str, bytes], *, name: str = "bundle") -> Snapshot:
    """The snapshot in files given by their path inside the bundle; ``expect.yaml`` is never looked at."""
    if not any(path == "objects.yaml" or path.startswith(("nodes/", "manifests/", "pods/")) for path in files):
        raise BundleError(f"{name} holds nothing that a bundle has", reason="NoBundle", expected="objects.yaml")
    unread: list[str] = []
    objects: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    manifests: list[Manifest] = []
    nodes: dict[str, dict[str, str]] = {}
    logs: dict[LogKey, str] = {}
    metrics: dict[str, str] = {}
    for path, data in sorted(files.items()):
        parts = PurePosixPath(path).parts
        text = data.decode("utf-8", "replace")
        if path == "objects.yaml":
            for _, obj in _documents(text, path, unread):
                if obj["kind"] in _WITH_SPEC and not isinstance(obj.get("spec"), dict):
                    unread.append(f"{path}: {obj['kind']} {name_of(obj)} without a spec")
                else:
                    (events if obj["kind"] == "Event" else objects).append(obj)
        elif parts[0] == "nodes" and len(parts) >= 3:
            nodes.setdefault(parts[1], {})["/".join(parts[2:])] = text
        elif parts[0] == "pods" and len(parts) == 4 and parts[3].endswith(".log"):
            container, _, previous = parts[3].removesuffix(".log").partition(".previous")
            logs[LogKey(parts[1], parts[2], container, path.endswith(".previous.log") and not previous)] = text
        elif parts[0] == "metrics":
            metrics[parts[-1]] = text
        elif parts[0] == "manifests" and path.endswith((".yaml", ".yml", ".json")):
            manifests += [Manifest(path, line, obj) for line, obj in _documents(text, path, unread)]
    meta = next((obj for _, obj in _documents(_text(files, "meta.yaml"), "meta.yaml", unread, kinds=False)), {})
    notes = meta.get("notes") or ()
    return Snapshot(
        objects=tuple(objects),
        events=tuple(events),
        nodes={node: NodeCapture(node, captured) for node, captured in nodes.items()},
        logs=logs,
        metrics=metrics,
        manifests=tuple(manifests),
        captured_at=parse_time(str(meta.get("capturedAt") or "")),
        kubernetes_version=str(meta.get("kubernetesVersion") or ""),
        notes=(notes,) if isinstance(notes, str) else _strings(notes),
        unread=(*unread, *_strings(meta.get("unread"))),
    )


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _text(files: Mapping[str, bytes], path: str) -> str:
    return files.get(path, b"").decode("utf-8", "replace")


def _documents(text: str, path: str, unread: list[str], *, kinds: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
    """Mappings of a YAML text with their first line; lists are taken apart, a broken rest becomes a note."""
    try:
        for line, obj in _json_documents(text) or ((t.line, t.value) for t in yamltext.trees(text, duplicates=True)):
            for item in _items(obj) if isinstance(obj, dict) and obj.get("kind") == "List" else (obj,):
                if isinstance(item, dict) and (not kinds or _is_object(item)):
                    yield line, item
                elif item is not None:
                    unread.append(f"{path}: a document that is no Kubernetes object")
    except yamltext.YamlError as error:
        unread.append(f"{path}: {error}")


def _items(obj: dict[str, Any]) -> list[Any]:
    items = obj.get("items")
    return items if isinstance(items, list) else []


def _is_object(item: dict[str, Any]) -> bool:
    metadata = item.get("metadata")
    return isinstance(item.get("kind"), str) and (metadata is None or isinstance(metadata, dict))


def _json_documents(text: str) -> list[tuple[int, Any]]:
    """Documents that are lines of JSON, as `packing` writes them: read ten times as fast; [] for any other text."""
    if not text.startswith("{"):
        return []
    found, line = [], 1
    try:
        for document in text.split("\n---\n"):
            found.append((line, msgspec.json.decode(document)))
            line += document.count("\n") + 2
    except (msgspec.DecodeError, RecursionError):
        return []
    return found


def _folder_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    total = count = 0
    pending = [folder]
    while pending:
        for entry in sorted(pending.pop().iterdir()):
            if entry.is_symlink():
                continue
            if entry.is_dir():
                pending.append(entry)
                continue
            if not entry.is_file() or entry.name == "expect.yaml":
                continue
            size = entry.stat().st_size
            total, count = total + size, count + 1
            _check_size(str(folder), size, total, count)
            yield entry.relative_to(folder).as_posix(), entry.read_bytes()


def _archive_files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Regular files of an archive, whose paths stay inside; read as a stream, so that nothing is unpacked unseen."""
    total = count = 0
    with _decompressed(archive) as stream, tarfile.open(fileobj=_Bounded(stream, str(archive)), mode="r|") as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            count += 1
            if not member.isreg() or ".." in parts or member.name.startswith("/") or not parts:
                _check_size(str(archive), 0, total, count)
                continue
            total += member.size
            _check_size(str(archive), member.size, total, count)
            file = tar.extractfile(member)
            if file is not None and parts[-1] != "expect.yaml":
                yield _inside(parts), file.read()


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        magic = file.read(6)
    for start, opened in _COMPRESSIONS:
        if magic.startswith(start):
            stream: IO[bytes] = opened(archive, "rb")
            return stream
    return archive.open("rb")


_COMPRESSIONS: Final[tuple[tuple[bytes, Any], ...]] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)


class _Bounded(io.RawIOBase):
    """A stream that ends with an error once more came out of it than a bundle may hold: headers count, too."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream, self._name, self._left = stream, name, MAX_TOTAL_BYTES + MAX_FILES * 1024

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            _check_size(self._name, 0, MAX_TOTAL_BYTES + 1, 0)
        data = self._stream.read(size)
        self._left -= len(data)
        return data


def _inside(parts: tuple[str, ...]) -> str:
    """The path inside the bundle: archives usually hold the folder itself."""
    tops = ("nodes", "pods", "metrics", "manifests")
    start = next((index for index, part in enumerate(parts) if part in tops), len(parts) - 1)
    return "/".join(parts[start:])


def _check_size(name: str, size: int, total: int, count: int) -> None:
    if size > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES or count > MAX_FILES:
        raise BundleError(
            f"{name} is larger than a bundle may be",
            reason="BundleTooLarge",
            expected=f"at most {MAX_FILES} files, {MAX_FILE_BYTES >> 20} MiB each, {MAX_TOTAL_BYTES >> 20} MiB in all",
        )
