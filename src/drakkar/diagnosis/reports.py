"""A survey as people and their tools read it: a page of 80 columns, SARIF 2.1.0 for code scanning, JUnit for CI.

In JUnit every workload and node is a test case: one that has its devices passes, one that has not fails with the
verdict as its message, and one that the evidence cannot decide is an error, so that a CI run shows which is which.
"""

from __future__ import annotations

import re
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from drakkar.diagnosis.causes import cause_of, page_of
from drakkar.diagnosis.render import wrapped
from drakkar.diagnosis.survey import Entry, Survey
from drakkar.diagnosis.verdict import UNDECIDED, Verdict, place_of

__all__ = ["junit", "sarif", "survey_text", "verdict_entry"]

WIDTH: Final = 80
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"certain": "error", "likely": "error", "possible": "warning"}
_GOOD_SHOWN: Final = 6


def survey_text(found: Survey, *, width: int = WIDTH) -> str:
    """The worst first, one line per workload and node; then how many are well."""
    lines: list[str] = []
    for title, entries in (("WORKLOADS", found.workloads), ("NODES", found.nodes), ("OTHERS", found.others)):
        bad = [entry for entry in entries if not entry.healthy]
        if not entries:
            continue
        good = len(entries) - len(bad)
        counted = f"{len(bad)} with a finding, {good} without" if bad else f"{good}, none with a finding"
        lines += ["", f"{title}: {counted}"]
        for entry in bad:
            lines += _line(entry, width)
        if not bad:
            for entry in entries[:_GOOD_SHOWN]:
                lines += wrapped(f"ok  {_named(entry)}: {entry.finding.sentence}", width, rest="    ")
            if good > _GOOD_SHOWN:
                lines.append(f"    and {good - _GOOD_SHOWN} more")
    for problem in found.unread:
        lines += wrapped(f"not read: {problem}", width, rest="  ")
    return "\n".join(lines).lstrip("\n") + ("\n" if lines else "")


def _line(entry: Entry, width: int) -> list[str]:
    code = entry.finding.cause
    head = f"{'? ' if code == UNDECIDED else 'NO'}  {_named(entry)}: {entry.boundary}, {code}"
    about = "" if entry.finding.subject == entry.subject else f" (about {entry.finding.subject})"
    return [
        *wrapped(head + about, width, rest="    "),
        *wrapped(entry.finding.sentence, width, first="    ", rest="    "),
    ]


def _named(entry: Entry) -> str:
    return entry.subject + (f" ({entry.failing} of {entry.pods} pods)" if entry.pods > 1 and entry.failing else "")


def sarif(found: Survey, version: str, bundle: str = "") -> dict[str, Any]:
    """One run with one result per finding, and the rules (causes) that it used with their repair as help."""
    entries = list(found.wrong)
    used = sorted({entry.finding.cause for entry in entries})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": cause_of(code).meaning},
            "fullDescription": {"text": page_of(code).evidence},
            "help": {"text": f"{page_of(code).repair} {page_of(code).prevention}"},
            "properties": {"boundary": cause_of(code).boundary},
        }
        for code in used
    ]
    driver = {"name": "drakkar doctor", "version": version, "rules": rules}
    results = [_result(entry, used.index(entry.finding.cause), bundle) for entry in entries]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(entry: Entry, index: int, bundle: str) -> dict[str, Any]:
    finding = entry.finding
    files = [place["file"] for item in finding.evidence if "file" in (place := place_of(item.source))]
    base = f"{bundle.rstrip('/')}/" if bundle else ""
    location: dict[str, Any] = {
        "artifactLocation": {"uri": base + next((file for file in files if "*" not in file), "objects.yaml")}
    }
    text = f"{finding.sentence}. Next: {finding.next_step}" if finding.next_step else finding.sentence
    return {
        "ruleId": finding.cause,
        "ruleIndex": index,
        "level": _LEVELS[finding.confidence],
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": location,
                "logicalLocations": [{"fullyQualifiedName": finding.subject, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {"causeAndSubject/v1": f"{finding.cause}:{finding.subject}"},
        "properties": {"boundary": entry.boundary, "evidence": [item.text for item in finding.evidence]},
    }


def junit(found: Survey, name: str) -> str:
    """One suite per kind of line, one test case per line."""
    suites = [
        (title, entries)
        for title, entries in (("workloads", found.workloads), ("nodes", found.nodes), ("others", found.others))
        if entries
    ]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={_attribute(f'drakkar doctor {name}'.strip())}>",
    ]
    for title, entries in suites:
        undecided = sum(entry.finding.cause == UNDECIDED for entry in entries)
        failures = sum(not entry.healthy for entry in entries) - undecided
        lines.append(
            f'  <testsuite name="{title}" tests="{len(entries)}" failures="{failures}" errors="{undecided}" time="0">'
        )
        for entry in entries:
            lines += _case(title, entry)
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _case(title: str, entry: Entry) -> list[str]:
    head = f'    <testcase classname={_attribute(title)} name={_attribute(entry.subject)} time="0"'
    if entry.healthy:
        return [head + "/>"]
    finding = entry.finding
    element = "error" if finding.cause == UNDECIDED else "failure"
    verdict = Verdict(entry.subject, finding)
    body = [finding.sentence, f"boundary {entry.boundary}, cause {finding.cause}, subject {finding.subject}"]
    body += [f"evidence: {item.text}" + (f" ({item.source})" if item.source else "") for item in finding.evidence]
    body += [f"next: {text}" for text in (finding.next_step, verdict.command) if text]
    return [
        head + ">",
        f"      <{element} type={_attribute(finding.cause)} message={_attribute(finding.sentence)}>",
        escape(_printable("\n".join(body))) + f"</{element}>",
        "    </testcase>",
    ]


def verdict_entry(verdict: Verdict) -> Survey:
    """A verdict about one target as a survey of one line, for the formats that want one."""
    entry = Entry(verdict.target, verdict.finding)
    kind = verdict.target.partition("/")[0]
    if kind == "Node":
        return Survey(verdict, nodes=(entry,), unread=verdict.unread)
    return Survey(verdict, workloads=(entry,), unread=verdict.unread)


def _attribute(text: str) -> str:
    return quoteattr(_printable(text))


def _printable(text: str) -> str:
    """Without what XML 1.0 cannot carry."""
    return _NOT_XML.sub("?", text)


_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
