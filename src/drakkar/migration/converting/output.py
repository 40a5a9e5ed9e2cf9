"""A plan written as files: what changes is rewritten in place, everything else is copied byte for byte.

Every object that changed carries the way back in annotations (a JSON Patch to read, and its own text, packed), and the
originals are kept beside the output under names that kubectl does not read. New templates follow the object that uses
them in the same file; new classes are a file of their own, which a kustomization next to it learns of.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from drakkar.errors import DrakkarError
from drakkar.files import replace_file
from drakkar.migration.converting.plan import ObjectPlan, Plan
from drakkar.migration.documents import Document
from drakkar.migration.rewriting.changes import to_json_patch
from drakkar.migration.rewriting.rewrite import rewrite, rewrite_file
from drakkar.migration.rewriting.text import dumped

__all__ = ["ANNOTATION", "CLASSES_FILE", "RECORD", "Record", "checksum", "rendered", "written"]

ANNOTATION: Final = "drakkar.dev/migrated-from"
TEXT_ANNOTATION: Final = "drakkar.dev/migrated-from-text"
MAX_TEXT: Final = 64 << 10
GENERATED: Final = "drakkar.dev/migration"
CLASSES_FILE: Final = "device-classes.yaml"
RECORD: Final = ".drakkar-migration"
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")

Object = dict[str, Any]


class Record(msgspec.Struct, frozen=True):
    """What was written: per file the checksums before and after; and the files that are new."""

    version: int
    to: str
    files: dict[str, tuple[str, str]]
    generated: tuple[str, ...]


def checksum(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def rendered(plan: Plan, texts: Mapping[str, str]) -> dict[str, str]:
    """Every file of a plan by name with its new text; `texts` has the old ones. Raises DrakkarError."""
    found: dict[str, str] = {}
    objects: dict[str, list[ObjectPlan]] = {}
    for each in plan.objects:
        objects.setdefault(each.document.file, []).append(each)
    for name, text in texts.items():
        found[name] = text
        mine = [each for each in objects.get(name, ()) if each.changed]
        if mine:
            found[name] = rewrite_file(
                text, {number: (each.document, marked(each)) for number, each in enumerate(mine)}
            )
        new = [template for each in objects.get(name, ()) for template in each.generated]
        if new and name.endswith(".json"):
            beside = name.removesuffix(".json") + ".claims.yaml"
            found[beside] = _documents(new)
        elif new:
            found[name] = _joined(found[name], new)
    if plan.classes:
        found[CLASSES_FILE] = _documents(plan.classes)
    for name in [name for name in found if name not in texts]:
        _tell_kustomization(found, name)
    return found


def marked(each: ObjectPlan) -> Object:
    """The wanted object with the way back in its annotations; objects without metadata stay without."""
    wanted = copy.deepcopy(each.wanted)
    metadata = wanted.get("metadata")
    if not isinstance(metadata, dict):
        return wanted
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        metadata["annotations"] = annotations = {}
    annotations[ANNOTATION] = ""
    annotations[TEXT_ANNOTATION] = ""
    undo = to_json_patch(wanted, each.document.value)
    whole = json.dumps(
        {"sha256": checksum(_own_text(each.document)), "undo": undo}, separators=(",", ":"), ensure_ascii=False
    )
    annotations[ANNOTATION] = whole
    packed = base64.b64encode(zlib.compress(_own_text(each.document), 9)).decode()
    if len(packed) > MAX_TEXT:
        del annotations[TEXT_ANNOTATION]
        return _without_text(wanted, each)
    annotations[TEXT_ANNOTATION] = packed
    return wanted


def _without_text(wanted: Object, each: ObjectPlan) -> Object:
    """Where the original is too long for an annotation, the patch alone leads back."""
    annotations = wanted["metadata"]["annotations"]
    annotations[ANNOTATION] = ""
    undo = to_json_patch(wanted, each.document.value)
    sums = {"sha256": checksum(_own_text(each.document)), "undo": undo}
    annotations[ANNOTATION] = json.dumps(sums, separators=(",", ":"), ensure_ascii=False)
    return wanted


def _own_text(document: Document) -> bytes:
    """The text of a document alone: rollback can tell by it whether it came back byte for byte."""
    return object_text(document).encode()


def object_text(document: Document) -> str:
    """The text of one object, without the blank lines and comments around it."""
    start, end = object_span(document)
    return document.text[start:end]


def object_span(document: Document) -> tuple[int, int]:
    """Where the text of an object begins and ends in its file."""
    starts = document.line_starts
    first, last = document.node.start_mark, document.node.end_mark
    start = starts[first.line] + first.column
    end = starts[last.line] + last.column if last.line < len(starts) else len(document.text)
    return start, start + len(document.text[start:end].rstrip())


def _joined(text: str, new: Sequence[Object]) -> str:
    body = text if text.endswith("\n") or not text else text + "\n"
    if re.search(r"^\.\.\.\s*$", body, re.MULTILINE):
        body = re.sub(r"^\.\.\.\s*\Z", "", body, flags=re.MULTILINE)
    return body + "---\n" + _documents(new)


def _documents(objects: Sequence[Object]) -> str:
    return "---\n".join(dumped(_generated(obj)) for obj in objects)


def _generated(obj: Object) -> Object:
    metadata = {**obj["metadata"], "annotations": {GENERATED: "generated"}}
    return {**obj, "metadata": metadata}


def _tell_kustomization(files: dict[str, str], new: str) -> None:
    """Name a new file in the kustomization of its folder, if there is one."""
    from drakkar.kube import yamltext

    folder, _, own = new.rpartition("/")
    for name in _KUSTOMIZATIONS:
        path = f"{folder}/{name}" if folder else name
        if path in files:
            value = yamltext.load(files[path])
            if isinstance(value, dict) and own not in (value.get("resources") or ()):
                files[path] = rewrite(files[path], {**value, "resources": [*(value.get("resources") or ()), own]})


def written(plan: Plan, inputs: Mapping[str, bytes], out: Path) -> list[str]:
    """Write a plan below a folder, and the originals beside it; the names of files that changed or are new.

    `inputs` are all files of the input by their name below it. Raises DrakkarError; then nothing of `out` was touched.
    """
    texts = {name: data.decode("utf-8-sig") for name, data in inputs.items() if _is_text(name)}
    made = rendered(plan, texts)
    files: dict[str, tuple[str, str]] = {}
    generated = tuple(name for name in made if name not in inputs)
    _check_free(out, inputs)
    for name, data in sorted({**inputs, **{name: text.encode() for name, text in made.items()}}.items()):
        original = inputs.get(name)
        if original is not None and name in texts and made[name] == texts[name]:
            data = original
        _write(out / name, data)
        if original is not None and data != original:
            files[name] = (checksum(original), checksum(data))
            _write(out / RECORD / f"{name}.orig", original)
    record = Record(1, plan.settings.to, files, generated)
    _write(out / RECORD / "record", msgspec.json.format(msgspec.json.encode(record), indent=1))
    return sorted([*files, *generated])


def _is_text(name: str) -> bool:
    return name.endswith((".yaml", ".yml", ".json")) or name.rpartition("/")[2] in _KUSTOMIZATIONS


def _check_free(out: Path, inputs: Mapping[str, bytes]) -> None:
    if (out / RECORD / "record").exists():
        return
    taken = next(iter(_present(out, inputs)), None)
    if taken is not None:
        raise DrakkarError(
            f"{taken} exists and was not written by a migration",
            reason="FileExists",
            subject=str(taken),
            expected="an empty folder for the output, or one of an earlier migration",
            next_step="name another folder with -o",
        )


def _present(out: Path, inputs: Mapping[str, bytes]) -> Iterator[Path]:
    for name in inputs:
        if (out / name).exists():
            yield out / name


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise DrakkarError(
            f"cannot write {path}: {error.strerror or error}", reason="CannotWrite", subject=str(path)
        ) from None
