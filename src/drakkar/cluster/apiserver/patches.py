"""JSON, merge and strategic merge patches: the new object, shaped by its kind, and the warnings on the way."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.bodies import media_type, private
from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.apiserver.kinds import behaviour


def patched(call: Call, current: dict[str, Any]) -> dict[str, Any]:
    """Apply the body to `current` (which stays as it is); raises `StatusError`. Warnings go to the call."""
    from drakkar.cluster.machinery import patching

    body = bytes(call.body) if isinstance(call.body, bytes | bytearray) else private(call.body)
    form = media_type(call)
    kind = behaviour(call.row)
    try:
        decoded = patching.patch(kind, current, body, form, field_validation=call.field_validation)
    except patching.PatchError as error:
        raise statuses.StatusError(error.status()) from None
    call.warnings += decoded.warnings
    return decoded.object
