"""JSON, merge and strategic merge patches: the new object, shaped by its kind, and the warnings on the way."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver.bodies import private
from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.apiserver.kinds import behaviour
from drakkar.cluster.apiserver.managed_fields import patch_refusal


def patched(call: Call, current: dict[str, Any], form: str) -> tuple[dict[str, Any], list[str]]:
    """Apply the body to `current` (which stays as it is); `form` is json, merge or strategic. Raises `StatusError`."""
    from drakkar.cluster.machinery import patching

    kind = behaviour(call.row)
    body = call.body if isinstance(call.body, (bytes, bytearray)) else private(call.body)
    try:
        if form == "json":
            changed = patching.json_patch(current, body)
        elif form == "merge":
            changed = patching.merge_patch(current, body)
        else:
            changed = patching.strategic_merge_patch(current, body, kind.schema)  # type: ignore[attr-defined]
        decoded = kind.shape(changed, call.field_validation, source="patch")
    except patching.PatchError as error:
        raise patch_refusal(call, error) from None
    return decoded.object, decoded.warnings
