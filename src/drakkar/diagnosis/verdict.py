"""A verdict: which boundary failed, why, about what object, shown by what, and what to do next.

The cause codes and their boundaries are data (`causes`); a verdict may name no other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from drakkar.diagnosis.causes import Cause, cause_of, filled, page_of
from drakkar.diagnosis.defects import Defect
from drakkar.evidence.records import EvidenceRecord

__all__ = ["HEALTHY", "UNDECIDED", "Cause", "Evidence", "Finding", "Verdict", "cause_of", "place_of"]

HEALTHY = "healthy"
UNDECIDED = "not-enough-evidence"


class Evidence(NamedTuple):
    """One observed fact and where it stands: an object's field, an event, or a file and its line."""

    text: str
    source: str = ""

    def to_dict(self) -> dict[str, str]:
        """The evidence as plain JSON: text and source, and the source taken apart into object and field, or file."""
        if not self.source:
            return {"text": self.text}
        return {"text": self.text, "source": self.source, **place_of(self.source)}


def place_of(source: str) -> dict[str, str]:
    """Where a source points: ``object`` and ``field`` of the API, or a ``file`` of the bundle.

    ``Pod/ml/p spec.nodeName``, ``node-3 journal.txt``, ``metrics/x.prom``, ``event Failed of Pod/ml/p``,
    ``log of pod/container`` and the like; {} for words that point nowhere.
    """
    if match := _EVENT.match(source):
        return {"object": match[2], "event": match[1]} if match[1] else {"object": match[2]}
    if match := _LOG.match(source):
        return {"file": f"pods/*/{match[1]}/{match[2]}{'.previous' if match[3] else ''}.log"}
    if match := _OBJECT.match(source):
        return {"object": match[1], "field": match[2]} if match[2] else {"object": match[1]}
    if match := _NODE_FILE.match(source):
        return {"file": f"nodes/{match[1]}/{match[2]}"}
    return {"file": source} if _FILE.match(source) else {}


_EVENT: Final = re.compile(r"event (?:(\w+) )?of ([A-Z]\w+/[^\s,]+)")
_LOG: Final = re.compile(r"log of ([^/\s]+)/(\S+)( \(previous\))?$")
_OBJECT: Final = re.compile(r"([A-Z]\w+/[^\s,]+)(?:,? (.+))?$")
_NODE_FILE: Final = re.compile(r"(\S+) ((?:cdi/|injections/)?[\w.-]+\.(?:txt|toml|json|yaml|prom)|dra_manager_state)$")
_FILE: Final = re.compile(r"(?:metrics|manifests|nodes|pods)/\S+$")


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
    defects: tuple[tuple[Defect, str], ...] = ()  # known ones that may be behind it, with the version that is here

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
    def command(self) -> str:
        """The next command, which only reads; "" where there is none to give."""
        return filled(page_of(self.finding.cause).check, self.finding.subject)

    @property
    def confirm(self) -> str:
        """What would confirm the verdict."""
        return filled(page_of(self.finding.cause).confirm, self.finding.subject)

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
            "command": self.command,
            "confirm": self.confirm,
            "records": [record.to_dict() for record in self.records],
            "unread": list(self.unread),
            "knownDefects": [{**defect.to_dict(), "version": version} for defect, version in self.defects],
        }
