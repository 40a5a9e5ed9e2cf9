"""Regular expressions with RE2's syntax and linear time: matches, find, findAll.

RE2 is the engine. Patterns that are plain text (alternatives of plain text, perhaps anchored) need none: "A100|H100" is
two substring tests. Go, which upstream uses, is stricter than RE2 in a few places; those are refused here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from drakkar.cel.signatures import Library
from drakkar.cel.values import Failure, size_of, tenth

_PLAIN: Final = re.compile(r"[A-Za-z0-9 _/:@#%&=~\"',;<>!\-]+", re.ASCII)
_SHORT: Final = 128
_MAX_SIMPLE_NESTING: Final = 20
_SIMPLE: Final = re.compile(
    r"""(?P<literal>[A-Za-z0-9 _/:@#%&=~"',;<>!-])|(?P<escape>\\[.+*?()|\[\]{}^$/-])|(?P<digit>\\[dwDW])|(?P<dot>\.)"""
    r"""|(?P<class>\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ .,:/@])+-?\])|(?P<start>\^)|(?P<end>\$)"""
    r"""|(?P<repeat>[*+?]\??)|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)""",
    re.ASCII,
)
_PYTHON: Final = {
    "$": r"\Z",
    "^": r"\A",
    ".": r"[^\n]",
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
}
_MAX_NESTING: Final = 1000


class Pattern:
    """A compiled pattern: `test` says whether it is found in a text."""

    __slots__ = ("_engine", "_search", "test", "text")

    text: str
    test: Callable[[str], bool]

    def __init__(self, text: str, engine: Any = None) -> None:
        """A pattern of the simple kind if no RE2 engine is given (it is made when a long text asks for it)."""
        self.text = text
        self._engine = engine
        self._search = None if engine is not None else re.compile(_translated(text) or "").search
        self.test = _plain_test(text) or self._test

    def _found(self, text: str, position: int = 0) -> Any:
        if self._search is not None and len(text) <= _SHORT:
            return self._search(text, position) if not position else self._re2().search(text, position)
        return self._re2().search(text, position)

    def _re2(self) -> Any:
        if self._engine is None:
            self._engine = _engine(self.text)
        return self._engine

    def _test(self, text: str) -> bool:
        if self._search is not None and len(text) <= _SHORT:
            return self._search(text) is not None
        return self._re2().search(text) is not None

    def find(self, text: str) -> str:
        """The leftmost match, or an empty string."""
        found = self._found(text)
        return "" if found is None else str(found.group())

    def find_all(self, text: str, count: int) -> list[str]:
        """At most `count` matches (all, if negative), none overlapping; no empty match right after another match."""
        matches: list[str] = []
        position, previous_end = 0, -1
        while position <= len(text) and (count < 0 or len(matches) < count):
            found = self._found(text, position)
            if found is None:
                break
            start, end = found.span()
            if end > start or start != previous_end:
                matches.append(text[start:end])
            previous_end = end
            position = end if end > start else end + 1
        return matches


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Pattern | Failure:
    """A pattern, or the error Go would give; compiled patterns are kept."""
    if _translated(text) is not None:
        return Pattern(text)
    problem = _refused_by_go(text)
    if problem:
        return Failure(f"error parsing regexp: {problem}")
    try:
        return Pattern(text, _engine(text))
    except ValueError as failure:
        return Failure(f"error parsing regexp: {_in_go_words(str(failure))}")


_NAMED: Final = re.compile(r"\(\?P?<([^=!>][^>]*)>")
_NAME: Final = re.compile(r"\w+", re.ASCII)
_GO_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\ at end": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}


def _in_go_words(message: str) -> str:
    """RE2's complaint as Go words it."""
    words, colon, part = message.partition(": ")
    return f"{_GO_WORDS.get(words, words)}: `{part}`" if colon else message


def _engine(text: str) -> Any:
    """RE2's own pattern; raises `ValueError` with its message."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 64 << 20
    try:
        return re2.compile(text, options)
    except re2.error as failure:
        message = failure.args[0] if failure.args else ""
        raise ValueError(message.decode(errors="replace") if isinstance(message, bytes) else str(message)) from None


def _translated(text: str) -> str | None:
    """The pattern for Python's engine if it is so simple that both engines agree and backtracking stays cheap.

    Literals, dots, plain classes, anchors, alternatives and groups, at most two unbounded repetitions, none of a group.
    """
    position, unbounded, depth = 0, 0, 0
    pieces: list[str] = []
    repeatable = False
    while position < len(text):
        found = _SIMPLE.match(text, position)
        if found is None:
            return None
        kind, word = str(found.lastgroup), found.group()
        position = found.end()
        if kind == "repeat":
            if not repeatable:
                return None
            unbounded += word[0] in "*+"
            pieces.append(word)
            repeatable = False
            continue
        depth += (kind == "open") - (kind == "close")
        if not 0 <= depth <= _MAX_SIMPLE_NESTING or (
            kind == "close" and text[position : position + 1] in ("*", "+", "{")
        ):
            return None
        repeatable = kind in ("literal", "escape", "dot", "class", "digit") or kind == "close"
        pieces.append(_PYTHON.get(word, word))
    if depth or unbounded > 2:
        return None
    translated = "".join(pieces)
    try:
        re.compile(translated)
    except re.error:
        return None
    return translated


def _plain_test(text: str) -> Callable[[str], bool] | None:
    """A test without an engine for patterns that only name texts, else None."""
    parts = text.split("|")
    if len(parts) <= 8 and all(_PLAIN.fullmatch(part) for part in parts):
        if len(parts) == 1:
            return lambda subject: text in subject
        if len(parts) == 2:
            first, second = parts
            return lambda subject: first in subject or second in subject
        return lambda subject: any(part in subject for part in parts)
    inner = text.removeprefix("^").removesuffix("$")
    if not _PLAIN.fullmatch(inner):
        return None
    starts, ends = text.startswith("^"), text.endswith("$")
    if starts and ends:
        return lambda subject: subject == inner
    return (lambda subject: subject.startswith(inner)) if starts else (lambda subject: subject.endswith(inner))


def _refused_by_go(text: str) -> str:
    """What Go refuses although RE2 takes it: \\C, groups nested beyond 1000, repetitions beyond 1000 in total."""
    if "\\" not in text and "(" not in text and "{" not in text:
        return ""
    depth, index, in_class = 0, 0, False
    while index < len(text):
        character = text[index]
        if character == "\\":
            following = text[index + 1 : index + 2]
            if following == "Q" and not in_class:
                end = text.find("\\E", index)
                index = len(text) if end < 0 else end + 2
                continue
            if following == "C":
                return "invalid escape sequence: `\\C`"
            index += 2
            continue
        if in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
            index += 1 if text[index + 1 : index + 2] == "^" else 0
            index += 1 if text[index + 1 : index + 2] == "]" else 0
        elif character == "(":
            depth += 1
            if depth > _MAX_NESTING - 1:
                return "expression nests too deeply"
            named = _NAMED.match(text, index)
            if named is not None and not _NAME.fullmatch(named[1]):
                return f"invalid named capture: `{named[0]}`"
        elif character == ")":
            depth -= 1
        index += 1
    return ""


def _matches(text: str, pattern: str) -> Any:
    compiled = compile_pattern(pattern)
    return compiled if isinstance(compiled, Failure) else compiled.test(text)


def _find(text: str, pattern: str) -> Any:
    compiled = compile_pattern(pattern)
    return compiled if isinstance(compiled, Failure) else compiled.find(text)


def _find_all(text: str, pattern: str, count: int = -1) -> Any:
    compiled = compile_pattern(pattern)
    return compiled if isinstance(compiled, Failure) else compiled.find_all(text, count)


def pattern_price(text_size: int, pattern_size: int) -> int:
    """⌈(text + 1) / 10⌉ · ⌈pattern / 4⌉."""
    return tenth(text_size + 1) * -(-pattern_size // 4)


def _price(arguments: Any, _: Any) -> int:
    return pattern_price(size_of(arguments[0]), size_of(arguments[1]))


MATCHES: Final = Library(
    name="matches",
    declarations="""
matches(string, string) -> bool    matches
string.matches(string) -> bool    matches_string
""",
    implementations={"matches": _matches, "matches_string": _matches},
    prices={"matches": _price, "matches_string": _price},
)

REGEX: Final = Library(
    name="regex",
    declarations="""
string.find(string) -> string    string_find_string
string.findAll(string) -> list(string)    string_find_all_string
string.findAll(string, int) -> list(string)    string_find_all_string_int
""",
    implementations={
        "string_find_string": _find,
        "string_find_all_string": _find_all,
        "string_find_all_string_int": _find_all,
    },
    function_prices={"find": _price, "findAll": _price},
)
