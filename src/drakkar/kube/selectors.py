"""Label and field selectors: the textual forms of query strings and the structured form of objects.

The grammar is that of `k8s.io/apimachinery/pkg/labels`: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b)``,
``a``, ``!a``, ``a>1``, ``a<1``; field selectors know ``=``, ``==`` and ``!=`` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from drakkar.errors import DrakkarError

_TOKEN = re.compile(r"\s*(==|=|!=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_QUALIFIED = re.compile(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = 2**63 - 1
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class SelectorError(DrakkarError):
    """A selector that cannot be read."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """`operator` is one of In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        holds: bool = _OPERATORS[self.operator](value, self.values)
        return holds


def _compare(value: str | None, wanted: str, sign: int) -> bool:
    """Both sides as Go's `strconv.ParseInt` reads them; what it refuses, or cannot hold in 64 bits, never matches."""
    if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(wanted):
        return False
    left, right = int(value), int(wanted)
    return max(abs(left), abs(right)) <= _INT64 and (left - right) * sign > 0


_OPERATORS: dict[str, Any] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values[0], 1),
    "Lt": lambda value, values: _compare(value, values[0], -1),
}


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; no requirements select everything, `NOTHING` selects nothing."""

    requirements: tuple[Requirement, ...] = ()
    selects_nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.selects_nothing and all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def empty(self) -> bool:
        return not self.requirements and not self.selects_nothing

    @staticmethod
    def parse(text: str) -> LabelSelector:
        """Read the query-string form; raises `SelectorError`."""
        return LabelSelector(tuple(_Parser(text).requirements()))

    @staticmethod
    def from_labels(labels: Mapping[str, str]) -> LabelSelector:
        """Equality with every given label (a Service's or ReplicationController's selector)."""
        return LabelSelector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())))

    @staticmethod
    def from_object(selector: Mapping[str, Any] | None) -> LabelSelector:
        """Read `metav1.LabelSelector`; None selects nothing, ``{}`` everything. Raises `SelectorError`."""
        if selector is None:
            return NOTHING
        found = [Requirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
        for expression in selector.get("matchExpressions") or ():
            operator = expression.get("operator", "")
            if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
                raise SelectorError(f"{operator!r} is not a valid label selector operator", subject=str(expression))
            found.append(Requirement(expression.get("key", ""), operator, tuple(expression.get("values") or ())))
        return LabelSelector(tuple(found))

    def __str__(self) -> str:
        return ",".join(_render(requirement) for requirement in self.requirements)


NOTHING = LabelSelector((), True)


def _render(requirement: Requirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In":
            return f"{key}={values[0]}" if len(values) == 1 else f"{key} in ({','.join(sorted(values))})"
        case "NotIn":
            return f"{key}!={values[0]}" if len(values) == 1 else f"{key} notin ({','.join(sorted(values))})"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            return f"{key}{'>' if operator == 'Gt' else '<'}{values[0]}"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    @staticmethod
    def _split(text: str) -> list[str]:
        tokens, position = [], 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise SelectorError(f"unable to parse requirement: unexpected character at {position} in {text!r}")
            tokens.append(match.group(1))
            position = match.end()
        return tokens

    def requirements(self) -> Iterable[Requirement]:
        while self._peek():
            yield self._requirement()
            if self._peek() == ",":
                self._next()
                if not self._peek():
                    raise self._error("identifier after ','")
            elif self._peek():
                raise self._error("',' or the end")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _error(self, expected: str) -> SelectorError:
        return SelectorError(
            f"unable to parse requirement: found '{self._peek()}', expected: {expected}", subject=self._text
        )

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), "DoesNotExist")
        key = self._key()
        match self._peek():
            case "" | ",":
                return Requirement(key, "Exists")
            case "=" | "==":
                self._next()
                return Requirement(key, "In", (self._value(),))
            case "!=":
                self._next()
                return Requirement(key, "NotIn", (self._value(),))
            case ">" | "<" as sign:
                self._next()
                value = self._value()
                if not _INTEGER.fullmatch(value):
                    raise SelectorError(
                        f"values[0]: Invalid value: {value!r}: for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                return Requirement(key, "Gt" if sign == ">" else "Lt", (value,))
            case "in" | "notin" as word:
                self._next()
                return Requirement(key, "In" if word == "in" else "NotIn", self._set())
            case _:
                raise self._error("'=', '!=', '==', 'in', 'notin', '>', '<'")

    def _key(self) -> str:
        if not _QUALIFIED.fullmatch(self._peek()):
            raise self._error("a label key")
        return self._next()

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        if not _VALUE.fullmatch(self._peek()):
            raise self._error("a label value")
        return self._next()

    def _set(self) -> tuple[str, ...]:
        if self._next() != "(":
            self._at -= 1
            raise self._error("'('")
        values = []
        while True:
            if not self._peek():
                raise self._error("',', or identifier")
            values.append("" if self._peek() == ")" else self._value())
            mark = self._next()
            if mark == ")":
                return tuple(values)
            if mark != ",":
                self._at -= 1
                raise self._error("',' or ')'")


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Requirements are ``(path, equal, value)``: `path` must (or must not) have exactly this text."""

    requirements: tuple[tuple[str, bool, str], ...] = ()

    @property
    def empty(self) -> bool:
        return not self.requirements

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(path, "") == value) is equal for path, equal, value in self.requirements)

    @staticmethod
    def parse(text: str) -> FieldSelector:
        """Read ``a.b=x,c!=y`` with backslash escapes for ``,``, ``=`` and itself; raises `SelectorError`."""
        found = []
        for part in re.split(r"(?<!\\),", text):
            if not part:
                continue
            match = re.fullmatch(r"((?:\\.|[^\\=!])+)(==|=|!=)(.*)", part, re.DOTALL)
            if match is None:
                raise SelectorError(
                    f"invalid selector: '{text}'; can't understand '{part}'", subject=text, expected="path=value"
                )
            path, operator, value = match.groups()
            found.append((path.strip(), operator != "!=", re.sub(r"\\([\\,=])", r"\1", value.strip())))
        return FieldSelector(tuple(found))
