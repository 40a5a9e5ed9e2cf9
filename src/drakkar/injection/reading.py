"""From the text of a file to a checked specification: the short ways, the long way, the rules, the remarks.

Two short ways read what programs write, :mod:`json_text` and :mod:`block_text`; whatever they decline, and whatever is
wrong, goes the long way that knows lines and columns. What the three accept is then held against the rules of the
profile.
"""

from __future__ import annotations

from typing import Final

from . import advice, decode, nodes, older, rules
from .block_text import compose_block
from .errors import CdiError, Problem
from .json_text import read_json
from .model import Spec
from .spec import Profile

__all__ = ["read_spec"]


def read_spec(data: bytes, *, file: str, profile: Profile) -> tuple[Spec, tuple[Problem, ...]]:
    """The content of a text and what is doubtful about it. ``file`` is for messages.

    Raises:
        CdiError: not YAML, mistyped, or against a rule; with every problem and its place.
    """
    raw, nulls, remarks = _decode(data, file, profile)
    found = [*nulls, *(older.problems(profile, raw) if profile in older.NEWEST_VERSION else rules.problems(raw))]
    if not found and profile == "strict":
        found = list(rules.strict_problems(raw))
    if found:
        raise CdiError.of(_placed(found, data), file=file)
    remarks += advice.warnings(raw)
    return raw, tuple(_placed(remarks, data))


def _decode(data: bytes, file: str, profile: Profile) -> tuple[Spec, list[Problem], list[Problem]]:
    """The typed content, null elements left out of lists, and remarks about the text."""
    compat = profile.startswith("compat")
    old = profile in older.NEWEST_VERSION
    short = None if old else read_json(data, json_escapes=not compat)
    if short is not None:
        return short, [], []
    tidy = None if old else _read_block(data, compat=compat)
    if tidy is not None:
        return tidy, [], []
    document = nodes.compose(data, json_escapes=not compat, file=file)
    root = document.root
    if root is None and compat:
        raise CdiError.of([Problem("EOF: the text holds no document")], file=file)
    if root is not None and old:
        root = older.as_read_by(profile, root, file)
    raw, nulls = (
        (None, [])
        if root is None
        else decode.decode(root, compat=compat, file=file, rules=None if old else rules.problems)
    )
    if raw is None:
        raise CdiError.of([Problem("no Spec data: the first document is empty")], file=file)
    remarks: list[Problem] = []
    if document.trailing and not compat:
        line, column = document.trailing_place
        if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
            raise CdiError.of([Problem("text follows the JSON object", (), line, column)], file=file)
        remarks.append(Problem("only the first document counts, what follows is ignored", (), line, column))
    return raw, nulls, remarks


def _read_block(data: bytes, *, compat: bool) -> Spec | None:
    """The content of tidy YAML by the short way; None where the long way must decide or report."""
    if not data.isascii() or data.translate(None, _PRINTABLE):
        return None
    root = compose_block(data.decode("ascii"))
    if root is None:
        return None
    try:
        spec, nulls = decode.decode(root, compat=compat)
    except (decode.NoPlaceError, CdiError):
        return None
    return None if nulls else spec


_PRINTABLE: Final = bytes(range(0x20, 0x7F)) + b"\n"


def _placed(problems: list[Problem], data: bytes) -> list[Problem]:
    """Gives problems their line and column; the text is composed again since only bad files need it."""
    if all(problem.line for problem in problems):
        return problems
    root = nodes.compose(data, json_escapes=True).root
    if root is None:
        return problems
    return [
        problem if problem.line else Problem(problem.message, problem.path, *nodes.locate(root, problem.path))
        for problem in problems
    ]
