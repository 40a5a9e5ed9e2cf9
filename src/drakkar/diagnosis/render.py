"""A verdict as text for a terminal of 80 columns, or as JSON; nothing here decides anything."""

from __future__ import annotations

import json
import textwrap
from typing import Final

from drakkar.diagnosis.verdict import Verdict, cause_of
from drakkar.evidence.records import BOUNDARIES, EvidenceRecord

__all__ = ["as_json", "text", "wrapped"]

WIDTH: Final = 80
_MARKS: Final = {"proved": "ok", "refuted": "NO", "unknown": "? "}


def text(verdict: Verdict, *, width: int = WIDTH, records: bool = True) -> str:
    """The verdict for people: the sentence first, then what to do, then the evidence and each boundary.

    Without `records` the boundaries of each device are left out.
    """
    lines = [*wrapped(verdict.sentence, width), ""]
    if not verdict.healthy:
        meaning = f"{verdict.cause}: {cause_of(verdict.cause).meaning}"
        lines.append(f"boundary   {verdict.boundary}")
        lines += wrapped(meaning, width, first="cause      ", rest="           ")
    lines += [f"subject    {verdict.subject}", f"confidence {verdict.confidence}"]
    if verdict.next_step:
        lines += wrapped(verdict.next_step, width, first="next step  ", rest="           ")
    if not verdict.healthy:
        if verdict.command:
            lines += wrapped(verdict.command, width, first="look       ", rest="           ")
        if verdict.confirm:
            lines += wrapped(verdict.confirm, width, first="confirmed  ", rest="           ")
    if verdict.evidence:
        lines += ["", "evidence"]
        for item in verdict.evidence:
            lines += wrapped(item.text, width, first="  - ", rest="    ")
            if item.source:
                lines += wrapped(f"({item.source})", width, first="    ", rest="    ")
    if verdict.finding.rules_out:
        lines += ["", "ruled out"]
        for reason in verdict.finding.rules_out:
            lines += wrapped(reason, width, first="  - ", rest="    ")
    for defect, version in verdict.defects:
        words = f"{defect.component} {version}: {defect.symptom} {defect.advice} ({defect.reference})"
        lines += ["", *wrapped(words, width, first="known defect of ", rest="    ")]
    for record in verdict.records if records else ():
        lines += ["", *_record(record, width)]
    for problem in verdict.unread:
        lines += wrapped(problem, width, first="not read: ", rest="          ")
    return "\n".join(lines) + "\n"


def as_json(verdict: Verdict) -> str:
    """The verdict for programs."""
    return json.dumps(verdict.to_dict(), indent=2, ensure_ascii=False) + "\n"


def _record(record: EvidenceRecord, width: int) -> list[str]:
    device = str(record.device) if record.device else "no device"
    lines = [f"claim {record.claim}", f"  {record.claim_uid} on {record.node or 'no node'}: {device}"]
    for name in BOUNDARIES:
        proof = record.boundaries[name]
        when = f"{proof.time}  " if proof.time else ""
        source = f" ({proof.source})" if proof.source else ""
        lines += wrapped(
            f"{when}{proof.text}{source}", width, first=f"  {_MARKS[proof.state]} {name:11} ", rest=" " * 17
        )
    return lines


def wrapped(content: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """A text as lines of at most `width` characters, unless a word is longer; `first` and `rest` stand before them."""
    return textwrap.wrap(
        " ".join(content.split()),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
