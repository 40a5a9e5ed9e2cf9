"""A verdict: which boundary failed, why, about what object, shown by what, and what to do next.

The cause codes and their boundaries are data (``data/causes.yaml``); a verdict may name no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

from drakkar.evidence.records import EvidenceRecord

__all__ = ["HEALTHY", "UNDECIDED", "Cause", "Evidence", "Finding", "Verdict", "cause_of"]

HEALTHY = "healthy"
UNDECIDED = "not-enough-evidence"


class Cause(NamedTuple):
    """One code a verdict may name."""

    code: str
    boundary: str
    meaning: str


class Evidence(NamedTuple):
    """One observed fact and where it stands: an object's field, an event, or a file and its line."""

    text: str
    source: str = ""

    def to_dict(self) -> dict[str, str]:
        """The evidence as plain JSON."""
        return {"text": self.text, "source": self.source} if self.source else {"text": self.text}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one detector found: a cause with its subject and evidence.

    Attributes:
        subject: ``Kind/namespace/name`` of the object or node it is about.
        affects: references of the objects that it explains, beside the subject.
        boundary: only where the cause does not fix it: the boundary at which evidence ends.
        confidence: certain (the objects prove it), likely, or possible.
        rules_out: what was looked at and is not the cause.
    """

    cause: str
    subject: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    next_step: str = ""
    confidence: str = "certain"
    rules_out: tuple[str, ...] = ()
    affects: frozenset[str] = frozenset()
    boundary: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for a target: the finding that explains it best, and what is known of each boundary."""

    target: str
    finding: Finding
    records: tuple[EvidenceRecord, ...] = ()
    unread: tuple[str, ...] = field(default=())

    @property
    def cause(self) -> str:
        return self.finding.cause

    @property
    def boundary(self) -> str:
        return self.finding.boundary or cause_of(self.finding.cause).boundary

    @property
    def subject(self) -> str:
        return self.finding.subject

    @property
    def sentence(self) -> str:
        return self.finding.sentence

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return self.finding.evidence

    @property
    def next_step(self) -> str:
        return self.finding.next_step

    @property
    def confidence(self) -> str:
        return self.finding.confidence

    @property
    def healthy(self) -> bool:
        return self.finding.cause == HEALTHY

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain JSON."""
        finding = self.finding
        return {
            "target": self.target,
            "boundary": self.boundary,
            "cause": finding.cause,
            "meaning": cause_of(finding.cause).meaning,
            "subject": finding.subject,
            "sentence": finding.sentence,
            "confidence": finding.confidence,
            "evidence": [item.to_dict() for item in finding.evidence],
            "rulesOut": list(finding.rules_out),
            "nextStep": finding.next_step,
            "records": [record.to_dict() for record in self.records],
            "unread": list(self.unread),
        }


def cause_of(code: str) -> Cause:
    """The cause of that code; raises KeyError for a code that is not in the list."""
    return _causes()[code]


@lru_cache(maxsize=1)
def _causes() -> Mapping[str, Cause]:
    import yaml

    text = resources.files("drakkar.diagnosis").joinpath("data/causes.yaml").read_text()
    listed = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return {code: Cause(code, boundary, meaning) for code, (boundary, meaning) in listed.items()}
