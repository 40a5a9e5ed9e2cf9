"""Label and field selectors: the textual forms of query strings and the structured form of objects.

The grammar is that of `k8s.io/apimachinery/pkg/labels`: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b)``,
``a``, ``!a``, ``a>1``, ``a<1``; field selectors know ``=``, ``==`` and ``!=`` only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.kube.label_syntax import SyntaxProblem, terms

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = 2**63 - 1


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
        try:
            return LabelSelector(tuple(Requirement(*term) for term in terms(text)))
        except SyntaxProblem as problem:
            raise SelectorError(str(problem), subject=text) from None

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
