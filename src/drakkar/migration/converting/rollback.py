"""The way back: originals that were kept come back byte for byte, everything else by what its annotations say.

A file that somebody edited after the migration is not overwritten with the original: its objects are taken back one by
one, so that the edits stay. What has neither a kept original nor an annotation is left alone, and that is said.
"""

from __future__ import annotations

import base64
import copy
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from drakkar.errors import DrakkarError
from drakkar.kube import yamltext
from drakkar.migration.converting.output import (
    ANNOTATION,
    GENERATED,
    MAX_TEXT,
    RECORD,
    TEXT_ANNOTATION,
    Record,
    checksum,
    object_span,
    object_text,
)
from drakkar.migration.documents import Document, read_bytes
from drakkar.migration.rewriting.changes import applied, from_json_patch
from drakkar.migration.rewriting.rewrite import rewrite_file

__all__ = ["Restored", "restore_folder", "restore_text"]


@dataclass(frozen=True)
class Restored:
    """One file after the rollback: its content (None: it goes), how it came back, and what could not be taken back.

    `how` is one of ``byte for byte``, ``same objects``, ``unchanged``, ``removed``, ``edited since``.
    """

    name: str
    data: bytes | None
    how: str
    problems: tuple[str, ...] = ()


def restore_folder(files: Mapping[str, bytes]) -> list[Restored]:
    """Take back the files of an output folder, its record included. Raises DrakkarError for a damaged record."""
    record = _record(files.get(f"{RECORD}/record"))
    found = []
    for name, data in files.items():
        if name.startswith(f"{RECORD}/"):
            continue
        before, after = record.files.get(name, ("", ""))
        kept = files.get(f"{RECORD}/{name}.orig")
        if kept is not None and checksum(kept) == before and checksum(data) == after:
            found.append(Restored(name, kept, "byte for byte"))
        elif name.endswith((".yaml", ".yml", ".json")):
            restored = restore_text(name, data)
            edited = bool(after) and checksum(data) != after
            how = "edited since" if edited and restored.how == "same objects" else restored.how
            problem = ""
            if name in record.files and restored.how == "unchanged":
                problem = f"{name} was edited since the migration and says nowhere what it was"
            found.append(Restored(name, restored.data, how, (*restored.problems, *([problem] if problem else []))))
        else:
            found.append(Restored(name, data, "unchanged"))
    return found


def _record(data: bytes | None) -> Record:
    if data is None:
        return Record(1, "", {}, ())
    try:
        return msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise DrakkarError(
            f"the record of the migration is damaged: {error}",
            reason="RecordDamaged",
            subject=f"{RECORD}/record",
            expected="the file as `drakkar migrate apply` wrote it",
            next_step="remove it to roll back by annotations alone",
        ) from None


def restore_text(name: str, data: bytes) -> Restored:
    """Take back a file by its annotations: generated objects go, changed ones become what they were."""
    documents = [source for source in read_bytes(data, name) if isinstance(source, Document)]
    text = data.decode("utf-8-sig")
    problems: list[str] = []
    wanted: dict[int, tuple[Document, Any]] = {}
    checksums: dict[int, str] = {}
    generated = []
    for number, document in enumerate(documents):
        annotations = document.metadata.get("annotations")
        annotations = annotations if isinstance(annotations, dict) else {}
        if annotations.get(GENERATED) == "generated":
            generated.append(document)
        elif ANNOTATION in annotations:
            try:
                value, expected = _undone(document.value, annotations[ANNOTATION])
            except (ValueError, KeyError, TypeError) as error:
                problems.append(f"{document.reference}: its annotation does not lead back: {error}")
                continue
            wanted[number] = document, value
            checksums[number] = expected
    if not wanted and not generated:
        return Restored(name, data, "unchanged", tuple(problems))
    if len(generated) == len(documents):
        return Restored(name, None, "removed")
    text = _without(_taken_back(text, wanted), name)
    how = "same objects"
    again = [source for source in read_bytes(text.encode(), name) if isinstance(source, Document)]
    sums = {checksum(object_text(document).encode()) for document in again}
    if wanted and not problems and all(expected in sums for expected in checksums.values()):
        how = "byte for byte"
    return Restored(name, text.encode(), how, tuple(problems))


def _undone(value: dict[str, Any], annotation: Any) -> tuple[dict[str, Any], str]:
    told = json.loads(annotation)
    changes = from_json_patch(told["undo"], copy.deepcopy(value))
    made = applied(value, changes)
    if not isinstance(made, dict):
        raise ValueError("the patch leaves no object")
    return made, str(told.get("sha256"))


def _taken_back(text: str, wanted: Mapping[int, tuple[Document, Any]]) -> str:
    """Objects that nobody edited get their old text, the others are rewritten; from the last to the first."""
    for document, value in sorted(wanted.values(), key=lambda each: each[0].node.start_mark.line, reverse=True):
        own = _packed(document)
        if own and _reads_as(" " * document.node.start_mark.column + own, value):
            start, end = object_span(document)
            text = text[:start] + own + text[end:]
        else:
            text = rewrite_file(text, {0: (document, value)})
    return text


def _reads_as(text: str, value: Any) -> bool:
    try:
        return bool(yamltext.load(text) == value)
    except yamltext.YamlError:
        return False


def _packed(document: Document) -> str:
    """The old text of an object, "" if its annotation has none."""
    annotations = document.metadata.get("annotations") or {}
    try:
        packed = base64.b64decode(str(annotations.get(TEXT_ANNOTATION) or ""))
        return zlib.decompressobj().decompress(packed, MAX_TEXT * 64).decode()
    except (ValueError, zlib.error):
        return ""


def _without(text: str, name: str) -> str:
    """The text without documents that were added: from the last to the first, so that places stay true."""
    lines = text.splitlines(keepends=True)
    for document in reversed([source for source in read_bytes(text.encode(), name) if isinstance(source, Document)]):
        annotations = document.metadata.get("annotations")
        if isinstance(annotations, dict) and annotations.get(GENERATED) == "generated":
            _cut(lines, document)
    return "".join(lines)


def _cut(lines: list[str], document: Document) -> None:
    first = document.node.start_mark.line
    last = first
    while last < len(lines) and not (lines[last].startswith("---") and last > first):
        last += 1
    while first > 0 and not lines[first - 1].startswith("---"):
        first -= 1
    if last < len(lines):  # another document follows: its separator stays, this one's goes
        del lines[first : last + 1]
    else:
        del lines[max(0, first - 1) :]


def read_tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its name, the record of a migration included. Raises DrakkarError."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inside.parts) and inside.parts[0] != RECORD
        if hidden or path.is_symlink() or not path.is_file():
            continue
        try:
            found[inside.as_posix()] = path.read_bytes()
        except OSError as error:
            raise DrakkarError(
                f"cannot read {path}: {error.strerror or error}", reason="UnreadableFile", subject=str(path)
            ) from None
    return found
