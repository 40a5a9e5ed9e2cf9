"""Node selectors: of pods, of allocations and of resource slices.

Terms are alternatives, the requirements inside a term must all hold, and a term without requirements matches nothing
(`k8s.io/component-helpers/scheduling/corev1/nodeaffinity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.kube.selectors import Requirement

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One alternative: requirements on labels and on fields (only metadata.name exists)."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self.labels and not self.fields:
            return False
        return all(one.matches(labels) for one in self.labels) and all(
            one.matches({"metadata.name": name}) for one in self.fields
        )

    def names(self) -> frozenset[str] | None:
        """The node names this term is limited to, or None if it names none."""
        for one in self.fields:
            if one.key == "metadata.name" and one.operator == "In":
                return frozenset(one.values)
        return None


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """Alternatives; an empty list matches no node."""

    terms: tuple[NodeTerm, ...]

    @staticmethod
    def parse(selector: Mapping[str, Any]) -> NodeSelector:
        """Read `v1.NodeSelector`. Raises `DrakkarError` for an unknown operator."""
        return NodeSelector(tuple(parse_term(term) for term in selector.get("nodeSelectorTerms") or ()))

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return any(term.matches(name, labels) for term in self.terms)

    def names(self) -> frozenset[str] | None:
        """The only nodes that can match because every alternative names some; None if any node might."""
        found: set[str] = set()
        for term in self.terms:
            named = term.names()
            if named is None:
                return None
            found |= named
        return frozenset(found) if self.terms else None


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    """What a pod says about nodes: `nodeSelector`, required and preferred node affinity."""

    selector: tuple[tuple[str, str], ...]
    required: NodeSelector | None
    preferred: tuple[tuple[int, NodeTerm], ...]

    @staticmethod
    def parse(spec: Mapping[str, Any]) -> NodeAffinity:
        """Read it from a pod's spec. Raises `DrakkarError` for an unknown operator."""
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        return NodeAffinity(
            tuple(sorted((spec.get("nodeSelector") or {}).items())),
            None if required is None else NodeSelector.parse(required),
            tuple((int(one.get("weight") or 0), parse_term(one.get("preference") or {})) for one in preferred),
        )

    @property
    def empty(self) -> bool:
        return not self.selector and self.required is None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the node satisfies what is required."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.required is None or self.required.matches(name, labels)

    def preference(self, name: str, labels: Mapping[str, str]) -> int:
        """The sum of the weights of the preferred terms that the node satisfies."""
        return sum(weight for weight, term in self.preferred if weight and term.matches(name, labels))

    def names(self) -> frozenset[str] | None:
        """The only nodes that can satisfy it (a DaemonSet's pod names one), or None if any might."""
        return None if self.required is None else self.required.names()


def parse_term(term: Mapping[str, Any]) -> NodeTerm:
    """Read `v1.NodeSelectorTerm`. Raises `DrakkarError` for an unknown operator."""
    return NodeTerm(
        _requirements(term.get("matchExpressions") or ()),
        _requirements(term.get("matchFields") or ()),
    )


def _requirements(expressions: Iterable[Mapping[str, Any]]) -> tuple[Requirement, ...]:
    found = []
    for one in expressions:
        operator = one.get("operator") or ""
        if operator not in _OPERATORS:
            raise DrakkarError(
                f"{operator!r} is not a valid node selector operator",
                reason="InvalidNodeSelector",
                subject=str(one.get("key") or ""),
                expected=", ".join(_OPERATORS),
            )
        found.append(Requirement(one.get("key") or "", operator, tuple(one.get("values") or ())))
    return tuple(found)
