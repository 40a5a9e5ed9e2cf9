"""A document's text rewritten to a wanted value, checked by reading it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.kube import yamltext
from drakkar.migration.documents import Document
from drakkar.migration.rewriting.changes import Change, differences
from drakkar.migration.rewriting.roundtrip import round_trip
from drakkar.migration.rewriting.text import CannotEdit, edited

__all__ = ["rewrite", "rewrite_file"]


def rewrite(text: str, wanted: Any) -> str:
    """The text of one document so that it reads as `wanted`, with everything else as it was.

    Raises DrakkarError where neither line by line nor by a round trip the wanted value comes out.
    """
    old = yamltext.load(text)
    changes = list(differences(old, wanted))
    if not changes:
        return text
    try:
        made = edited(text, changes)
        if yamltext.load(made) == wanted:
            return made
    except (CannotEdit, ValueError, LookupError):
        pass
    return _by_round_trip(text, changes, wanted)


def _by_round_trip(text: str, changes: Sequence[Change], wanted: Any) -> str:
    from ruamel.yaml.error import YAMLError

    try:
        made = round_trip(text, changes)
        if yamltext.load(made) == wanted:
            return made
        problem = "the result would not read as wanted"
    except (YAMLError, yamltext.YamlError, LookupError, TypeError, ValueError, AttributeError) as error:
        problem = str(error).splitlines()[0]
    raise DrakkarError(
        f"this document cannot be rewritten without losing its comments: {problem}",
        reason="CannotRewrite",
        expected="YAML that is not built of nested anchors and merges",
        next_step="write the shared parts out, and try again",
    )


def rewrite_file(text: str, documents: Mapping[int, tuple[Document, Any]]) -> str:
    """A file with some of its documents (or items of its lists) rewritten.

    `documents` has by any number a document of this text and its wanted value. Raises DrakkarError.
    """
    pieces = sorted(
        ((*_span(document), document, wanted) for document, wanted in documents.values()), key=lambda piece: piece[0]
    )
    made: list[str] = []
    position = 0
    for start, stop, document, wanted in pieces:
        made += [text[position:start], _piece(text[start:stop], document, wanted)]
        position = stop
    return "".join([*made, text[position:]])


def _span(document: Document) -> tuple[int, int]:
    """From the line on which a document begins to the place where its node ends, as far as it goes."""
    starts, first, last = document.line_starts, document.node.start_mark, document.node.end_mark
    end = starts[last.line] + last.column if last.line < len(starts) else len(document.text)
    return starts[first.line] + first.column, end


def _piece(text: str, document: Document, wanted: Any) -> str:
    """One document's text, without its indentation inside a list, rewritten; line breaks of Windows stay."""
    if "\r\n" in text:
        return _piece(text.replace("\r\n", "\n"), document, wanted).replace("\n", "\r\n")
    node = document.node
    if node.flow_style:
        return rewrite(text, wanted)
    column = node.start_mark.column
    pad = " " * column
    tail = text[len(text.rstrip(" ")) :] if text.endswith(" ") else ""  # the indentation of what follows
    body = pad + text[: len(text) - len(tail)]
    return rewrite(body, wanted)[column:] + tail
