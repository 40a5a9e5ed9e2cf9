"""The text form of label selectors, read as `k8s.io/apimachinery/pkg/labels` reads it, with the same complaints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from drakkar.kube import names

__all__ = ["SyntaxProblem", "Term", "terms"]

_SPECIAL: Final = frozenset("=!(),><")
_SYMBOLS: Final = frozenset((")", ",", "!", "==", "=", "(", "!=", ">", "<"))
_OPERATORS: Final = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}
_BINARY: Final = "in, notin, =, ==, !=, gt, lt"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = 1 << 63
_LONGEST: Final = 1024  # digits, zeros in front included
_NO_INTEGER: Final = "for 'Gt', 'Lt' operators, the value must be an integer"


class SyntaxProblem(ValueError):
    """A text that is no selector, in Kubernetes' words."""


class Term(NamedTuple):
    """One requirement: key, operator (In, NotIn, Exists, DoesNotExist, Gt, Lt), values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


def terms(text: str) -> list[Term]:
    """The requirements of a selector. Raises `SyntaxProblem`."""
    return list(_Reader(text).terms())


class _Token(NamedTuple):
    kind: str  # "identifier", "end", "error", or the symbol itself
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] in _SPECIAL:
            length = next((size for size in (2, 1) if text[at : at + size] in _SYMBOLS), 0)
            yield _Token(text[at : at + length], text[at : at + length])
            at += length
        else:
            end = at
            while end < len(text) and text[end] not in " \t\r\n" and text[end] not in _SPECIAL:
                end += 1
            yield _Token("identifier", text[at:end])
            at = end


_END: Final = _Token("end", "")


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def _ahead(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._ahead()
        self._at += 1
        return token

    def terms(self) -> Iterator[Term]:
        while True:
            token = self._ahead()
            if token.kind == "end":
                return
            if token.kind not in ("identifier", "!"):
                raise SyntaxProblem(f"found '{token.text}', expected: !, identifier, or 'end of string'")
            try:
                yield self._term()
            except SyntaxProblem as problem:
                raise SyntaxProblem(f"unable to parse requirement: {problem}") from None
            token = self._take()
            if token.kind == "end":
                return
            if token.kind != ",":
                raise SyntaxProblem(f"found '{token.text}', expected: ',' or 'end of string'")
            token = self._ahead()
            if token.kind not in ("identifier", "!"):
                raise SyntaxProblem(f"found '{token.text}', expected: identifier after ','")

    def _term(self) -> Term:
        token = self._take()
        absent = token.kind == "!"
        if absent:
            token = self._take()
        if token.kind != "identifier":
            raise SyntaxProblem(f"found '{token.text}', expected: identifier")
        key = token.text
        complaints = names.label_key(key)
        if complaints:
            raise SyntaxProblem(f"<nil>: Invalid value: {json.dumps(key)}: {'; '.join(complaints)}")
        if absent:
            return Term(key, "DoesNotExist")
        if self._ahead().kind in ("end", ","):
            return Term(key, "Exists")
        token = self._take()
        operator = _OPERATORS.get(token.text)
        if operator is None:
            raise SyntaxProblem(f"found '{token.text}', expected: {_BINARY}")
        values = self._set() if token.text in ("in", "notin") else {self._value()}
        return Term(key, operator, _checked(key, operator, sorted(values)))

    def _value(self) -> str:
        if self._ahead().kind in ("end", ","):
            return ""
        token = self._take()
        if token.kind != "identifier":
            raise SyntaxProblem(f"found '{token.text}', expected: identifier")
        return token.text

    def _set(self) -> set[str]:
        token = self._take()
        if token.kind != "(":
            raise SyntaxProblem(f"found '{token.text}' expected: '('")
        token = self._ahead()
        if token.kind == ")":
            self._take()
            return {""}
        if token.kind not in ("identifier", ","):
            raise SyntaxProblem(f"found '{token.text}', expected: ',', ')' or identifier")
        found = self._list()
        self._take()
        return found

    def _list(self) -> set[str]:
        """Identifiers between commas, as far as a closing parenthesis; nothing between two commas is an empty value."""
        found: set[str] = set()
        while True:
            token = self._take()
            if token.kind == "identifier":
                found.add(token.text)
                token = self._ahead()
                if token.kind == ")":
                    return found
                if token.kind != ",":
                    raise SyntaxProblem(f"found '{token.text}', expected: ',' or ')'")
            elif token.kind == ",":
                if not found:
                    found.add("")
                token = self._ahead()
                if token.kind == ")":
                    return found | {""}
                if token.kind == ",":
                    self._take()
                    found.add("")
            else:
                raise SyntaxProblem(f"found '{token.text}', expected: ',', or identifier")


def _checked(key: str, operator: str, values: list[str]) -> tuple[str, ...]:
    problems: list[str] = []
    if operator in ("Gt", "Lt"):
        problems += [
            f"values[{index}]: Invalid value: {json.dumps(value)}: {_NO_INTEGER}"
            for index, value in enumerate(values)
            if not _INTEGER.fullmatch(value) or len(value) > _LONGEST or not -_INT64 <= int(value) < _INT64
        ]
    for index, value in enumerate(values):
        complaints = names.label_value(value)
        if complaints:
            problems.append(f"values[{index}][{key}]: Invalid value: {json.dumps(value)}: {'; '.join(complaints)}")
    if problems:
        raise SyntaxProblem(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return tuple(values)
