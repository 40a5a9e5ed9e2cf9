"""JSON, merge and strategic merge patches: the new object, shaped by its kind, and the warnings on the way."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.bodies import media_type, private
from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.apiserver.kinds import behaviour
from drakkar.cluster.machinery.kinds import Kind


def patched(call: Call, current: dict[str, Any]) -> dict[str, Any]:
    """Apply the body to `current` (which stays as it is); raises `StatusError`. Warnings go to the call."""
    from drakkar.cluster.machinery import patching

    body = bytes(call.body) if isinstance(call.body, bytes | bytearray) else private(call.body)
    form = media_type(call)
    kind = behaviour(call.row)
    try:
        if call.row.custom:
            return _patched_custom(call, kind, current, body)
        decoded = patching.patch(kind, current, body, form, field_validation=call.field_validation)
    except patching.PatchError as error:
        raise statuses.StatusError(error.status()) from None
    call.warnings += decoded.warnings
    return decoded.object


def _patched_custom(call: Call, kind: Kind, current: dict[str, Any], body: Any) -> dict[str, Any]:
    """The same for a kind that has a schema of its own instead of a Go type."""
    from drakkar.cluster.machinery import jsontext, patching

    duplicates: list[str] = []
    if isinstance(body, bytes):
        try:
            body, duplicates = jsontext.parse(body)
        except jsontext.JsonError:
            raise patching.PatchError.bad_request("invalid JSON patch") from None
    if media_type(call) == patching.JSON_PATCH and isinstance(body, list):
        changed = patching.json_patch(current, body)
    elif media_type(call) != patching.JSON_PATCH and isinstance(body, dict):
        changed = patching.merge_patch(current, body)
    else:
        raise patching.PatchError.bad_request("error decoding patch: it has the wrong type")
    decoded = kind.shape(changed, call.field_validation)
    call.warnings += [*(duplicates if call.field_validation == "Warn" else ()), *decoded.warnings]
    return decoded.object
