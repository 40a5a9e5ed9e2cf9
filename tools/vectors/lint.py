"""Lint cases: a folder of files to review, and exactly the findings that belong to it.

The format is described in cases/lint/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from drakkar.migration.findings import Finding
from drakkar.migration.lint import Context, lint
from tools.vectors import Outcome

DEFAULT = "cases/lint"


def run(folder: Path) -> Iterator[Outcome]:
    """Every case of the folder, which may also be a single one."""
    cases = (
        [folder] if (folder / "expect.yaml").is_file() else sorted(path.parent for path in folder.glob("*/expect.yaml"))
    )
    for case in cases:
        yield Outcome(case.name, check(case))


def check(case: Path) -> list[str]:
    """What is missing and what is too much; whatever the review raises counts as well."""
    try:
        found = lint(case / "input", inventory=inventory(case), context=context(case))
    except Exception as problem:
        return [f"raised {type(problem).__name__}: {problem}"]
    expected = yaml.safe_load((case / "expect.yaml").read_text())
    wanted = [] if isinstance(expected, dict) and expected.get("clean") else list(expected)
    differences = []
    left = list(found)
    for entry in wanted:
        match = next((finding for finding in left if _is(finding, entry)), None)
        if match is None:
            differences.append(f"missing {entry['code']} at {entry['object']} {entry['path']}")
            continue
        left.remove(match)
        for text in entry.get("mustMention") or ():
            if str(text) not in match.message:
                differences.append(f"{match.code}: wanted {text!r} in the message, got {match.message!r}")
    return differences + [f"unexpected {each.code} at {each.object} {each.path}: {each.message}" for each in left]


def context(case: Path) -> Context:
    """The versions of a case."""
    path = case / "context.yaml"
    given: dict[str, Any] = yaml.safe_load(path.read_text()) if path.is_file() else {}
    names = {"kubernetes": "kubernetes", "driver": "driver", "dcgmExporter": "dcgm_exporter"}
    return Context(**{names[key]: str(value) for key, value in given.items()})


def inventory(case: Path) -> list[dict[str, Any]] | None:
    """The recorded objects of a case, if it has any."""
    path = case / "inventory" / "objects.yaml"
    if not path.is_file():
        return None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [obj for obj in yaml.load_all(path.read_text(), Loader=loader) if obj]


def _is(finding: Finding, entry: dict[str, Any]) -> bool:
    return all(getattr(finding, name) == entry[name] for name in ("code", "severity", "object", "path"))
