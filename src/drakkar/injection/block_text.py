"""The short way for YAML as programs and tidy people write it: blocks, plain words, short lists in one line.

Nearly every specification on a host was written by a generator and uses a sliver of YAML. Reading that sliver line by
line is several times faster than a general parser, and a runtime reads the files at every container start. The short
way only knows what is certain: as soon as a line holds anything else (anchors, tags, comments, escapes, several
documents, text that is not ASCII, a tab) it declines, and the long way through :mod:`nodes` decides. What it accepts
it must read exactly as the long way does; a test compares the two on everything we have.
"""

from __future__ import annotations

import re
from typing import Final

from .nodes import MAPPING, SCALAR, SEQUENCE, Node

__all__ = ["compose_block"]


_NO_PLACE: Final = None  # nodes of the short way have no place: whoever meets a problem goes the long way
_EMPTY: Final[Node] = (SCALAR, "", "", False, _NO_PLACE)
_LONGEST_KEY: Final = 1000  # YAML wants a key within 1024 characters
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*", re.ASCII)
# Plain text that can only be one scalar: no indicator at its start, no ": " and no " #" inside, no space at its end.
_PLAIN: Final = re.compile(
    r"[A-Za-z0-9_./+=~$][A-Za-z0-9_./+=~$%@-]*(?::+[A-Za-z0-9_./+=~$%@-]+| [A-Za-z0-9_./+=~$%@-]+)*", re.ASCII
)
_QUOTED: Final = re.compile(r'"([^"\\]*)"|\'([^\']*)\'')
_WORD: Final = re.compile(r" *(?:([A-Za-z0-9_./+=~$][A-Za-z0-9_./+=~$%@-]*)|\"([^\"\\]*)\"|'([^']*)') *", re.ASCII)


def compose_block(text: str) -> Node | None:
    """The root node of a text in the sliver; None where the long way must decide.

    Args:
        text: printable ASCII and line feeds only.
    """
    reader = _Reader()
    try:
        for line in text.removeprefix("---\n").split("\n"):
            if line:
                reader.line(line)
        return reader.end()
    except _Declined:
        return None


class _Declined(Exception):
    """Something that only the long way reads with certainty."""


class _Reader:
    """Open collections, outermost first, and the mapping whose last key still waits for its value."""

    __slots__ = ("_column", "_content", "_keys", "_list", "_root", "_stack", "_values", "_waiting", "_waiting_column")

    def __init__(self) -> None:
        self._root: list[Node] = []
        self._stack: list[tuple[int, bool, list[Node]]] = []
        self._column = -1  # where entries of the innermost collection begin
        self._list = False
        self._content: list[Node] = []
        self._waiting: list[Node] | None = None
        self._waiting_column = -1
        self._keys: dict[str, Node] = {}
        self._values: dict[str, Node] = {}

    def line(self, line: str) -> None:
        """Reads one line that is not empty."""
        text = line.lstrip(" ")
        column = len(line) - len(text)
        dash = text.startswith("- ")
        if self._waiting is not None:
            if column > self._waiting_column or (dash and column == self._waiting_column):
                self._open(self._waiting, column, dash)
            else:
                self._waiting.append(_EMPTY)
            self._waiting = None
        elif self._column < 0:
            self._open(self._root, column, dash)
        if column != self._column or dash != self._list:
            self._close(column, dash)
        while dash:
            inner = text[2:].lstrip(" ")
            column += len(text) - len(inner)
            text = inner
            dash = text.startswith("- ")
            if dash or self._key_of(text) is not None:
                self._open(self._content, column, dash)
        entry = self._key_of(text)
        if entry is None:
            if not self._list:
                raise _Declined
            self._content.append(self._value(text))
            return
        key, rest = entry
        node = self._keys.get(key)
        if node is None:
            node = self._keys[key] = (SCALAR, "", key, False, _NO_PLACE)
        self._content.append(node)
        if rest:
            self._content.append(self._value(rest))
        else:
            self._waiting, self._waiting_column = self._content, column

    def end(self) -> Node | None:
        """The root, when all lines are read."""
        if self._waiting is not None:
            self._waiting.append(_EMPTY)
        return self._root[0] if self._root else None

    def _open(self, content: list[Node], column: int, dash: bool) -> None:
        inner: list[Node] = []
        content.append((SEQUENCE if dash else MAPPING, "", inner, False, _NO_PLACE))
        self._stack.append((self._column, self._list, self._content))
        self._column, self._list, self._content = column, dash, inner

    def _close(self, column: int, dash: bool) -> None:
        """Goes back to the collection whose entries begin at `column`."""
        while self._column > column or (self._column == column and self._list and not dash):
            self._column, self._list, self._content = self._stack.pop()
        if self._column != column or self._list != dash:
            raise _Declined

    def _key_of(self, text: str) -> tuple[str, str] | None:
        key, colon, rest = text.partition(":")
        if not colon or (rest and rest[0] != " "):
            return None
        if key not in self._keys and (_KEY.fullmatch(key) is None or len(key) > _LONGEST_KEY):
            raise _Declined
        return key, rest.strip(" ")

    def _value(self, text: str) -> Node:
        node = self._values.get(text)
        if node is None:
            node = self._values[text] = _scalar_or_list(text)
        return node


def _scalar_or_list(text: str) -> Node:
    if _PLAIN.fullmatch(text):
        return SCALAR, "", text, False, _NO_PLACE
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1]
        items = [_word(part) for part in inside.split(",")] if inside.strip(" ") else []
        return SEQUENCE, "", items, False, _NO_PLACE
    if text == "{}":
        return MAPPING, "", [], False, _NO_PLACE
    match = _QUOTED.fullmatch(text)
    if match is None:
        raise _Declined
    return SCALAR, "", match[1] if match[1] is not None else match[2], True, _NO_PLACE


def _word(text: str) -> Node:
    match = _WORD.fullmatch(text)
    if match is None:
        raise _Declined
    plain, double, single = match.groups()
    if plain is not None:
        return SCALAR, "", plain, False, _NO_PLACE
    return SCALAR, "", double if double is not None else single, True, _NO_PLACE
