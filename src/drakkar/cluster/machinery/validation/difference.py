"""Two pod specs (or parts of them) as the unified diff that a server shows when it refuses a change.

What is compared is the internal types as JSON, indented by one blank.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from drakkar.cluster.machinery.validation.internal_types import internal

__all__ = ["difference"]

CONTEXT: Final = 3


def difference(new: Mapping[str, Any], old: Mapping[str, Any], name: str = "PodSpec") -> str:
    """The diff from `old` to `new`, both as on the wire and of the struct `name`; empty if they are equal."""
    before, after = _lines(old, name), _lines(new, name)
    return "".join(list(difflib.unified_diff(before, after, n=CONTEXT))[2:])


def _lines(value: Mapping[str, Any], name: str) -> list[str]:
    text = json.dumps(internal(value, name), indent=1, ensure_ascii=False)
    for character, escape in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e")):
        text = text.replace(character, escape)
    return [f"{line}\n" for line in text.split("\n")]
