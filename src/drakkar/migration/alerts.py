"""Alerting and recording rules, wherever they stand, each with its parsed expression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from drakkar.migration.documents import Document, Steps
from drakkar.migration.findings import Finding
from drakkar.migration.promql import Expression, PromqlError, Selector, parse, walk
from drakkar.migration.review import Review

__all__ = ["Alert", "alerts_of"]


@dataclass(frozen=True)
class Alert:
    """One rule: the name of its alert or record, what people read of it, and its expression."""

    document: Document
    steps: Steps
    name: str
    record: bool
    prose: str
    text: str
    tree: Expression

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics it reads, in order, each once."""
        return list(dict.fromkeys(selector.metric for selector, _ in self.selectors() if selector.metric))

    def selectors(self) -> Iterator[tuple[Selector, tuple[Expression, ...]]]:
        """Its vector selectors, with what stands above them."""
        for node, above in walk(self.tree):
            if isinstance(node, Selector):
                yield node, above

    def finding(self, code: str, message: str, fix: str = "") -> Finding:
        """A finding at the expression."""
        return self.document.finding(code, (*self.steps, "expr"), message, fix)


def alerts_of(review: Review) -> list[Alert]:
    """Every rule of PrometheusRules and of plain rule files; expressions that are no PromQL are left out."""
    found = []
    for document in review.documents:
        if document.kind == "PrometheusRule":
            found += list(_alerts(document, ("spec", "groups")))
        elif not document.kind and not document.chart:
            found += list(_alerts(document, ("groups",)))
    return found


def _alerts(document: Document, steps: Steps) -> Iterator[Alert]:
    groups = document.at(steps)
    for number, group in enumerate(groups if isinstance(groups, list) else ()):
        rules = group.get("rules") if isinstance(group, dict) else None
        for place, entry in enumerate(rules if isinstance(rules, list) else ()):
            text = entry.get("expr") if isinstance(entry, dict) else None
            tree = _parsed(text) if isinstance(text, str) else None
            if tree is not None:
                at = (*steps, number, "rules", place)
                name = str(entry.get("alert") or entry.get("record") or "")
                yield Alert(document, at, name, "record" in entry, _prose(entry), str(text), tree)


def _prose(entry: dict[str, Any]) -> str:
    annotations = entry.get("annotations")
    texts = annotations.values() if isinstance(annotations, dict) else ()
    return " ".join(str(text) for text in texts)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Expression | None:
    try:
        return parse(text)
    except PromqlError:
        return None
