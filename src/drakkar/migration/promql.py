"""PromQL read into a small tree: enough to say what an expression selects, divides, compares and covers.

Rules about alerts need structure, not text: whether a counter is inside rate(), whether a comparison filters a count,
whether the same series also appears with an offset. The grammar is Prometheus' own (precedence, modifiers, grouping,
subqueries); anything that is not PromQL (LogQL, templates) raises and is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Binary", "Call", "Expression", "Matcher", "Number", "PromqlError", "Selector", "parse", "walk"]


class PromqlError(ValueError):
    """The text is no PromQL."""


@dataclass(frozen=True)
class Matcher:
    """One label matcher: `=`, `!=`, `=~` or `!~`."""

    label: str
    operator: str
    value: str

    def matches(self, value: str) -> bool:
        """Whether a label of this value passes."""
        if self.operator in ("=", "!="):
            return (value == self.value) == (self.operator == "=")
        import re2

        try:
            found = re2.fullmatch(self.value, value) is not None
        except re2.error:
            return True
        return found == (self.operator == "=~")


@dataclass(frozen=True)
class Expression:
    """Any expression."""


@dataclass(frozen=True)
class Number(Expression):
    """A literal; strings are kept as NaN."""

    value: float


@dataclass(frozen=True)
class Selector(Expression):
    """A vector selector, with its range and offset if it has them."""

    metric: str
    matchers: tuple[Matcher, ...] = ()
    range: bool = False
    offset: bool = False


@dataclass(frozen=True)
class Call(Expression):
    """A function or aggregation, with the labels of `by`."""

    name: str
    arguments: tuple[Expression, ...]
    by: tuple[str, ...] = ()
    subquery: bool = False


@dataclass(frozen=True)
class Binary(Expression):
    """An operator; `bool` comparisons do not filter; `labels` are those of on, ignoring and group_*."""

    operator: str
    left: Expression
    right: Expression
    bool: bool = False
    labels: tuple[str, ...] = field(default=())


def parse(text: str) -> Expression:
    """The tree of an expression. Raises PromqlError."""
    return _Parser(text).whole()


def walk(node: Expression, above: tuple[Expression, ...] = ()) -> Iterator[tuple[Expression, tuple[Expression, ...]]]:
    """Every node with the nodes above it, outermost first."""
    yield node, above
    if isinstance(node, Call):
        for argument in node.arguments:
            yield from walk(argument, (*above, node))
    elif isinstance(node, Binary):
        for side in (node.left, node.right):
            yield from walk(side, (*above, node))


_TOKEN: Final = re.compile(
    r"""\s+|\#[^\n]*
    |(?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![a-zA-Z0-9_]))
    |(?P<number>0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![a-zA-Z0-9_:]))
    |(?P<word>(?!:[\d\]])[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    |(?P<symbol>=~|!~|==|!=|<=|>=|[-+*/%^<>=(){}\[\],:@])
    """,
    re.VERBOSE,
)
_PRECEDENCE: Final = {
    "or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4, "*": 5, "/": 5,
    "%": 5, "atan2": 5, "^": 6,
}  # fmt: skip
_AGGREGATIONS: Final = frozenset({
    "sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile",
    "limitk", "limit_ratio",
})  # fmt: skip
MAX_DEPTH: Final = 100


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._binary(0)
        if self._kind():
            raise PromqlError(f"unexpected {self._text()!r}")
        return found

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _text(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, text: str = "") -> str:
        found = self._text()
        if not self._kind() or (text and found != text):
            raise PromqlError(f"expected {text or 'more'!r}, found {found!r}")
        self._at += 1
        return found

    def _accept(self, *texts: str) -> bool:
        if self._text() in texts and self._kind() in ("word", "symbol"):
            self._at += 1
            return True
        return False

    def _binary(self, least: int) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PromqlError("nested too deeply")
        left = self._unary()
        while self._kind() in ("word", "symbol") and _PRECEDENCE.get(self._text(), 0) > least:
            operator = self._take()
            precedence = _PRECEDENCE[operator]
            with_bool = self._accept("bool")
            labels: tuple[str, ...] = ()
            if self._accept("on", "ignoring"):
                labels += self._labels()
                if self._accept("group_left", "group_right") and self._text() == "(":
                    labels += self._labels()
            right = self._binary(precedence - 1 if operator == "^" else precedence)
            left = Binary(operator, left, right, with_bool, labels)
        self._depth -= 1
        return left

    def _unary(self) -> Expression:
        if self._accept("-"):
            inner = self._binary(5)
            return Number(-inner.value) if isinstance(inner, Number) else Binary("-", Number(0), inner)
        if self._accept("+"):
            return self._unary()
        return self._suffixed(self._primary())

    def _primary(self) -> Expression:
        kind, text = self._kind(), self._text()
        if kind == "number":
            self._at += 1
            return Number(float(int(text, 16)) if text.startswith("0x") else float(text))
        if kind == "string":
            self._at += 1
            return Number(float("nan"))
        if self._accept("("):
            inner = self._binary(0)
            self._take(")")
            return inner
        if text == "{":
            return self._selector("")
        if kind != "word":
            raise PromqlError(f"unexpected {text!r}")
        self._at += 1
        following = self._text()
        if text in _AGGREGATIONS and following in ("(", "by", "without"):
            return self._aggregation(text)
        if following == "(":
            return Call(text, self._arguments())
        if text.lower() in ("nan", "inf"):
            return Number(float(text))
        return self._selector(text)

    def _aggregation(self, name: str) -> Expression:
        by = self._grouping()
        arguments = self._arguments()
        return Call(name, arguments, by or self._grouping())

    def _grouping(self) -> tuple[str, ...]:
        if self._accept("by"):
            return self._labels()
        if self._accept("without"):
            self._labels()
        return ()

    def _labels(self) -> tuple[str, ...]:
        self._take("(")
        found = []
        while not self._accept(")"):
            found.append(self._take().strip("\"'"))
            self._accept(",")
        return tuple(found)

    def _arguments(self) -> tuple[Expression, ...]:
        self._take("(")
        found = []
        while not self._accept(")"):
            found.append(self._binary(0))
            if self._text() != ")":
                self._take(",")
        return tuple(found)

    def _selector(self, metric: str) -> Expression:
        matchers = []
        if self._accept("{"):
            while not self._accept("}"):
                if self._kind() == "string":
                    metric = self._take()[1:-1]
                else:
                    label, operator = self._take(), self._take()
                    if operator not in ("=", "!=", "=~", "!~") or self._kind() != "string":
                        raise PromqlError(f"no label matcher: {label}{operator}")
                    matchers.append(Matcher(label, operator, _unquoted(self._take())))
                if self._text() != "}":
                    self._take(",")
        named = [matcher.value for matcher in matchers if (matcher.label, matcher.operator) == ("__name__", "=")]
        return Selector(metric or (named[0] if named else ""), tuple(matchers))

    def _suffixed(self, node: Expression) -> Expression:
        while True:
            if self._accept("["):
                self._duration()
                subquery = self._accept(":")
                if subquery and self._text() != "]":
                    self._duration()
                self._take("]")
                if subquery or not isinstance(node, Selector):
                    node = Call("", (node,), subquery=True)
                else:
                    node = Selector(node.metric, node.matchers, True, node.offset)
            elif self._accept("offset"):
                self._accept("-")
                self._duration()
                if isinstance(node, Selector):
                    node = Selector(node.metric, node.matchers, node.range, True)
            elif self._accept("@"):
                if self._kind() == "word":
                    self._take()
                    self._arguments()
                else:
                    self._take()
            else:
                return node

    def _duration(self) -> None:
        if self._kind() not in ("duration", "number"):
            raise PromqlError(f"no duration: {self._text()!r}")
        self._at += 1


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PromqlError(f"unexpected character {text[at]!r}")
        at = match.end()
        if match.lastgroup:
            found.append((match.lastgroup, match[0]))
    return found


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    return inner if text[0] == "`" else re.sub(r"\\(.)", r"\1", inner)
