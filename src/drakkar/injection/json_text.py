"""The short way for text that is plain JSON of exactly the right types, as programs write it.

Everything else, above all anything doubtful, goes the long way through :mod:`nodes` and :mod:`decode`, which knows
lines and spellings. The short way must therefore never accept what the long way reads differently: it declines text
that is not ASCII, keys that YAML would refuse for their length or for a colon far away, keys written twice, and, where
JSON's escapes must not count, every backslash.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from .model import Spec

__all__ = ["read_json"]

_DECODER: Final = msgspec.json.Decoder(Spec)
_LONGEST_KEY: Final = 900
_FAR_COLON: Final = re.compile(rb'"(?:[ \t]*[\r\n]\s*:|[ \t]{100})')
"""YAML wants a key and its colon on one line and within 1024 characters; JSON does not."""


def read_json(data: bytes, *, json_escapes: bool) -> Spec | None:
    """The specification in ``data``, or None where the long way must decide."""
    if data[:1] != b"{" or not data.isascii() or b"\x7f" in data or (not json_escapes and b"\\" in data):
        return None
    if _FAR_COLON.search(data):
        return None
    try:
        spec = _DECODER.decode(data)
        _UNIQUE.decode(data.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return spec


def _unique(pairs: list[tuple[str, Any]]) -> None:
    keys = {key for key, _ in pairs}
    if len(keys) != len(pairs) or max(map(len, keys), default=0) > _LONGEST_KEY:
        raise ValueError


_UNIQUE: Final = json.JSONDecoder(object_pairs_hook=_unique)
