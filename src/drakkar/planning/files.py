"""Manifests from files, folders and standard input, each with the file and the line at which it begins."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Manifest
from drakkar.kube import yamltext

__all__ = ["read_manifests"]

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_MAX_BYTES: Final = 64 << 20


def read_manifests(paths: Iterable[str]) -> list[Manifest]:
    """The documents in files, in the YAML and JSON files of folders (all the way down), and in ``-``.

    Raises:
        DrakkarError: a file that is missing, no YAML, or a document that is no Kubernetes object.
    """
    return [manifest for path in paths for file, data in _read(path) for manifest in _documents(file, data)]


def _read(path: str) -> Iterator[tuple[str, bytes]]:
    if path == "-":
        yield "standard input", sys.stdin.buffer.read(_MAX_BYTES)
        return
    place = Path(path)
    try:
        files = sorted(one for one in place.rglob("*") if one.suffix in _SUFFIXES) if place.is_dir() else [place]
    except (OSError, ValueError) as error:
        raise _unreadable(place, error) from None
    if not files:
        raise DrakkarError(
            f"{path} holds no manifests",
            reason="NoManifests",
            subject=path,
            expected="files that end in .yaml, .yml or .json",
        )
    for file in files:
        try:
            if file.stat().st_size > _MAX_BYTES:
                raise DrakkarError(
                    f"{file} is larger than a manifest may be", reason="TooLarge", subject=str(file),
                    expected=f"at most {_MAX_BYTES >> 20} MiB",
                )  # fmt: skip
            yield str(file), file.read_bytes()
        except (OSError, ValueError) as error:
            raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> DrakkarError:
    """A ValueError is what Python says of a path with a zero byte in it."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return DrakkarError(f"cannot read {file}: {why}", reason="Unreadable", subject=str(file))


def _documents(file: str, data: bytes) -> Iterator[Manifest]:
    try:
        for tree in yamltext.trees(data):
            yield from _items(file, tree.line, tree.value)
    except yamltext.YamlError as error:
        where = f"{file}:{error.line}" if error.line else file
        raise DrakkarError(f"{where}: {error.problem}", reason="InvalidYaml", subject=where) from None


def _items(file: str, line: int, value: Any) -> Iterator[Manifest]:
    if value is None:
        return
    if isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _items(file, line, item)
        return
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        shown = "no object" if not isinstance(value, dict) else "an object without a kind"
        raise DrakkarError(
            f"{file}:{line}: {shown}",
            reason="NoObject",
            subject=f"{file}:{line}",
            expected="a Kubernetes object with apiVersion, kind and metadata",
        )
    yield Manifest(file, line, value)
