"""Text for a specification: compact JSON, and YAML that every YAML reader reads back as the same text.

An emitter of its own since CDI files use four shapes only, and since what one reader takes as text another takes as a
number, a boolean, a date or a base-60 number: a name like ``1:0``, ``010``, ``on`` or ``2024-01-02`` is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["to_json", "to_yaml"]


def to_json(spec: Mapping[str, Any]) -> str:
    """Compact JSON with keys in the specification's order; also readable as YAML, which most consumers do."""
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    if text.isascii() and "\x7f" not in text:
        return text
    return _NOT_KEPT_BY_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def to_yaml(spec: Mapping[str, Any]) -> str:
    """A YAML document, four spaces an indent, without empty global edits."""
    shown = {key: value for key, value in spec.items() if not (key == "containerEdits" and value == {})}
    return "---\n" + "".join(f"{line}\n" for line in _mapping(shown, ""))


_NOT_KEPT_BY_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_STEP: Final = "    "
# Text that is certain to be a string for YAML 1.1 and 1.2 readers alike: a path, a plain word, NAME=value and so on.
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9/_.=+@%-]*", re.ASCII)
_RESERVED: Final = re.compile(r"(?i:y|n|yes|no|on|off|true|false|null|nan|inf)")


def _mapping(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        name = _text(key)
        if isinstance(value, Mapping) and value:
            yield f"{indent}{name}:"
            yield from _mapping(value, indent + _STEP)
        elif isinstance(value, list) and value:
            yield f"{indent}{name}:"
            yield from _sequence(value, indent + _STEP)
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _sequence(values: list[Any], indent: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, Mapping) and value:
            lines = _mapping(value, indent + "  ")
            yield f"{indent}- {next(lines).lstrip(' ')}"
            yield from lines
        else:
            yield f"{indent}- {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _RESERVED.fullmatch(text):
        return text
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _code(c)) for c in text) + '"'


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _code(character: str) -> str:
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02X}"
    return f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"
