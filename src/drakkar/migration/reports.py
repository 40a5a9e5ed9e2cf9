"""Findings as people and their tools read them: text, SARIF 2.1.0, and annotations of GitHub's workflow commands.

SARIF is specified by OASIS; code-scanning pages of most forges read it. JSON and YAML are the findings' own fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from drakkar.migration.findings import SEVERITIES, Finding, codes

__all__ = ["github", "sarif", "text"]

_LEVELS: Final = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS: Final = {"error": "error", "warning": "warning", "info": "notice"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def text(findings: Sequence[Finding], files: int) -> str:
    """One block per finding, and a closing line that counts them."""
    lines = []
    for each in findings:
        lines.append(f"{each.file}:{each.line}:{each.column}: {each.severity}: {each.message}")
        lines.append(f"  {each.code} at {each.object} {each.path}")
        if each.fix:
            lines.append(f"  fix: {each.fix}")
    counted = Counter(each.severity for each in findings)
    shown = ", ".join(f"{counted[name]} {name}{_plural(name, counted[name])}" for name in SEVERITIES if counted[name])
    lines.append(f"{shown or 'nothing found'} in {files} file{'' if files == 1 else 's'}")
    return "\n".join(lines)


def _plural(severity: str, count: int) -> str:
    return "" if count == 1 or severity == "info" else "s"


def sarif(findings: Sequence[Finding], version: str) -> dict[str, Any]:
    """One run with one result per finding, and the rules that it used."""
    used = sorted({each.code for each in findings})
    rules = [
        {
            "id": name,
            "shortDescription": {"text": codes()[name].meaning},
            "defaultConfiguration": {"level": _LEVELS[codes()[name].severity]},
        }
        for name in used
    ]
    driver = {"name": "drakkar lint", "version": version, "rules": rules}
    results = [_result(each, used.index(each.code)) for each in findings]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding, index: int) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": finding.file},
        "region": {"startLine": finding.line, "startColumn": finding.column},
    }
    logical = {"fullyQualifiedName": f"{finding.object} {finding.path}", "kind": "member"}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": place, "logicalLocations": [logical]}],
    }


def github(findings: Sequence[Finding]) -> str:
    """One workflow command per finding."""
    lines = []
    for each in findings:
        properties = {"file": each.file, "line": each.line, "col": each.column, "title": f"{each.code}: {each.object}"}
        shown = ",".join(f"{name}={_escaped(str(value), ',:')}" for name, value in properties.items())
        lines.append(f"::{_COMMANDS[each.severity]} {shown}::{_escaped(each.message)}")
    return "\n".join(lines)


def _escaped(value: str, more: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in "%\r\n" + more else char for char in value)
