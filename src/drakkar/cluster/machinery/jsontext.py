"""JSON bodies read as an API server reads them: duplicate keys found with their path, syntax errors in Go's words.

The common body is read in one pass of the C parser; only when something is wrong does a slow second pass find out where
and say it as Go's scanner would (`invalid character 'x' looking for beginning of value`).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

__all__ = ["JsonError", "in_document_order", "parse"]

MAX_DEPTH: Final = 900
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]", re.ASCII)


class JsonError(ValueError):
    """The text is not JSON; the message is that of Go's decoder."""


class _Odd(Exception):
    pass


def parse(body: bytes, *, find_duplicates: bool = True) -> tuple[Any, list[str]]:
    """The value and the duplicate fields as `duplicate field "metadata.name"`, in the order of the document.

    Raises `JsonError`. Later values win, as in Go.
    """
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    duplicated = False

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal duplicated
        found = dict(pairs)
        if len(found) != len(pairs):
            duplicated = True
        return found

    def constant(name: str) -> Any:
        raise _Odd(name)

    try:
        value = json.loads(text, object_pairs_hook=collect if find_duplicates else None, parse_constant=constant)
    except (ValueError, _Odd):
        raise JsonError(_Scanner(text).complaint()) from None
    except RecursionError:
        raise JsonError("exceeded max depth") from None
    if _SURROGATE.search(text):
        value = _without_surrogates(value)
    if not duplicated:
        return value, []
    duplicates: list[str] = []
    _find(_pairs(text), "", duplicates)
    return value, duplicates


def in_document_order(body: bytes, duplicates: list[str], unknown: list[str]) -> list[str]:
    """Both kinds of complaints as a decoder meets them; what is below an unknown field it never sees."""
    text = body.decode("utf-8", "replace")
    skipped = tuple(complaint.removeprefix("unknown field ").strip('"') for complaint in unknown)
    seen: list[str] = []
    _complaints(_pairs(text), "", seen)
    places = {complaint: place for place, complaint in reversed(list(enumerate(seen)))}
    met = [
        complaint
        for complaint in duplicates
        if not complaint.removeprefix("duplicate field ").strip('"').startswith(tuple(f"{path}." for path in skipped))
    ]
    return sorted([*met, *unknown], key=lambda complaint: places.get(complaint, len(places)))


def _complaints(value: Any, path: str, found: list[str]) -> None:
    """What could be said about each field, in the order of the document."""
    if isinstance(value, _Object):
        seen: set[str] = set()
        for key, item in value:
            inner = f"{path}.{key}" if path else key
            found.append(f'{"duplicate" if key in seen else "unknown"} field "{inner}"')
            seen.add(key)
            _complaints(item, inner, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _complaints(item, f"{path}[{index}]", found)


class _Object(list):  # type: ignore[type-arg]
    """The pairs of an object, as opposed to the items of an array."""


def _pairs(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_Object)


def _find(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Object):
        seen: set[str] = set()
        for key, item in value:
            inner = f"{path}.{key}" if path else key
            if key in seen:
                found.append(f'duplicate field "{inner}"')
            seen.add(key)
            _find(item, inner, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _find(item, f"{path}[{index}]", found)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


class _Stop(Exception):
    pass


class _Scanner:
    """Go's JSON scanner, run only to find the words for a text that is not JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def complaint(self) -> str:
        try:
            self._value()
            self._blank()
            if self.at < len(self.text):
                self._invalid("after top-level value")
        except _Stop as stop:
            return str(stop)
        return "invalid JSON"

    def _blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise _Stop("unexpected end of JSON input")
        return self.text[self.at]

    def _invalid(self, context: str) -> None:
        raise _Stop(f"invalid character {_quoted(self._next())} {context}")

    def _value(self) -> None:
        self._blank()
        character = self._next()
        if character in "{[":
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise _Stop("exceeded max depth")
            self.at += 1
            (self._object if character == "{" else self._array)()
            self.depth -= 1
        elif character == '"':
            self._string()
        elif character == "-" or character in "0123456789":
            self._number()
        elif character in "tfn":
            self._literal({"t": "true", "f": "false", "n": "null"}[character])
        else:
            self._invalid("looking for beginning of value")

    def _object(self) -> None:
        self._blank()
        if self._next() == "}":
            self.at += 1
            return
        while True:
            self._blank()
            if self._next() != '"':
                self._invalid("looking for beginning of object key string")
            self._string()
            self._blank()
            if self._next() != ":":
                self._invalid("after object key")
            self.at += 1
            self._value()
            self._blank()
            if self._next() not in ",}":
                self._invalid("after object key:value pair")
            self.at += 1
            if self.text[self.at - 1] == "}":
                return

    def _array(self) -> None:
        self._blank()
        if self._next() == "]":
            self.at += 1
            return
        while True:
            self._value()
            self._blank()
            if self._next() not in ",]":
                self._invalid("after array element")
            self.at += 1
            if self.text[self.at - 1] == "]":
                return

    def _string(self) -> None:
        self.at += 1
        while True:
            character = self._next()
            if character == '"':
                self.at += 1
                return
            if character < " ":
                self._invalid("in string literal")
            self.at += 1
            if character == "\\":
                self._escape()

    def _escape(self) -> None:
        character = self._next()
        if character not in 'bfnrt\\/"u':
            self._invalid("in string escape code")
        self.at += 1
        if character == "u":
            for _ in range(4):
                if self._next() not in "0123456789abcdefABCDEF":
                    self._invalid("in \\u hexadecimal character escape")
                self.at += 1

    def _digits(self, context: str) -> None:
        if self._next() not in "0123456789":
            self._invalid(context)
        while self.at < len(self.text) and self.text[self.at] in "0123456789":
            self.at += 1

    def _number(self) -> None:
        if self.text[self.at] == "-":
            self.at += 1
        if self._next() == "0":
            self.at += 1
        else:
            self._digits("in numeric literal")
        if self.text[self.at : self.at + 1] == ".":
            self.at += 1
            self._digits("after decimal point in numeric literal")
        if self.text[self.at : self.at + 1] in ("e", "E"):
            self.at += 1
            if self.at < len(self.text) and self.text[self.at] in "+-":
                self.at += 1
            self._digits("in exponent of numeric literal")

    def _literal(self, word: str) -> None:
        for expected in word:
            if self._next() != expected:
                self._invalid(f"in literal {word} (expecting {_quoted(expected)})")
            self.at += 1


def _quoted(character: str) -> str:
    if character == "'":
        return "'\\''"
    if character == '"':
        return "'\"'"
    escaped = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
    if character in escaped:
        return f"'{escaped[character]}'"
    if ord(character) < 0x20 or ord(character) == 0x7F:
        return f"'\\x{ord(character):02x}'"
    if ord(character) >= 0x80:  # Go looks at single bytes
        return f"'{chr(character.encode('utf-8', 'replace')[0])}'"
    return f"'{character}'"
