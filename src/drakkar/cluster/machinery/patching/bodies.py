"""The body of a PATCH request applied to a stored object, as the three classic patch handlers do it.

Read the body (duplicates are reported, KEP-2885), patch the versioned object, press the result into its type. What
fails in the result is reported on the pseudo field `patch`, with the patch or the patched object as its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from drakkar.cluster.machinery import jsontext
from drakkar.cluster.machinery.patching.errors import PatchError
from drakkar.cluster.machinery.patching.json_patch import json_patch
from drakkar.cluster.machinery.patching.merge_patch import merge_patch
from drakkar.cluster.machinery.patching.strategic import go_text, strategic_merge_patch
from drakkar.cluster.machinery.shapes import Findings, ShapeError, shape
from drakkar.cluster.machinery.strictness import Decoded, strict_messages

if TYPE_CHECKING:
    from drakkar.cluster.machinery.kinds import Kind

__all__ = ["JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "patch"]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


def patch(
    kind: Kind, live: dict[str, Any], body: bytes | Any, media_type: str, *, field_validation: str = "Warn"
) -> Decoded:
    """The patched object in its type's shape (not yet defaulted), and texts for Warning headers.

    `live` is the stored object with kind and apiVersion; `body` the bytes or the parsed patch. Raises `PatchError`.
    """
    change, duplicates = _read(body, media_type, field_validation)
    if media_type == JSON_PATCH:
        patched = json_patch(live, change)
    elif media_type == MERGE_PATCH:
        patched = merge_patch(live, change)
    else:
        patched = strategic_merge_patch(live, change, kind.schema)
    findings = Findings()
    try:
        typed = shape(patched, kind.schema, findings, live)
    except ShapeError as error:
        detail = error.converter_text if media_type == STRATEGIC_PATCH else str(error)
        raise PatchError.invalid(_shown(change, patched, media_type), detail) from None
    typed["kind"], typed["apiVersion"] = kind.kind, kind.group_version
    messages = strict_messages(duplicates, findings.messages)
    if field_validation == "Strict" and messages:
        raise PatchError.invalid(_shown(change, patched, media_type), f"strict decoding error: {', '.join(messages)}")
    return Decoded(typed, messages if field_validation == "Warn" else [])


def _shown(change: Any, patched: Any, media_type: str) -> str:
    """What a refusal quotes: the patch itself if it is a strategic one, else what came of it."""
    return go_text(change) if media_type == STRATEGIC_PATCH else msgspec.json.encode(patched).decode()


def _read(body: bytes | Any, media_type: str, field_validation: str) -> tuple[Any, list[str]]:
    duplicates: list[str] = []
    if isinstance(body, bytes | bytearray):
        try:
            change, duplicates = jsontext.parse(bytes(body), find_duplicates=field_validation != "Ignore")
        except jsontext.JsonError:
            raise PatchError.bad_request("invalid JSON patch") from None
    else:
        change = body
    prefix = "error decoding patch: "
    if media_type == JSON_PATCH:
        if not isinstance(change, list):
            wanted = "[]handlers.jsonPatchOp"
            raise PatchError.bad_request(
                f"{prefix}json: cannot unmarshal {_kind(change)} into Go value of type {wanted}"
            )
        duplicates = [f"json patch {text}" for text in duplicates]
        if field_validation != "Ignore":
            duplicates += _unknown_members(change)
    elif not isinstance(change, dict):
        wanted = "map[string]interface {}"
        prefix = prefix if media_type == MERGE_PATCH else ""
        raise PatchError.bad_request(f"{prefix}json: cannot unmarshal {_kind(change)} into Go value of type {wanted}")
    return change, duplicates


def _unknown_members(operations: list[Any]) -> list[str]:
    known = ("op", "path", "from", "value")
    return [
        f'json patch unknown field "[{index}].{name}"'
        for index, operation in enumerate(operations)
        if isinstance(operation, dict)
        for name in operation
        if name not in known
    ]


def _kind(value: Any) -> str:
    for kind, name in ((bool, "bool"), (str, "string"), (int, "number"), (float, "number"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "object"
