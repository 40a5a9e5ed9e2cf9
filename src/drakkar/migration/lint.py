"""The review itself: every rule over every file, findings in the order of the files.

Comments switch findings off one by one, with a reason:

    resourceClaimName: shared-card  # drakkar: ignore[claim-shared-by-replicas] one card is enough for all
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.migration.context import Context
from drakkar.migration.documents import Source, read_folder
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import Rule, all_rules

__all__ = ["Context", "Finding", "lint", "lint_range"]

_DEFAULT = Context()


def lint(
    files: str | Path | Sequence[Source],
    *,
    inventory: Iterable[Mapping[str, Any]] | None = None,
    context: Context = _DEFAULT,
) -> list[Finding]:
    """What is wrong with the files of a folder (or with documents read already).

    `inventory` are recorded objects of the cluster (ResourceSlices, DeviceClasses, Nodes, claims): with them selectors,
    rollouts and tolerations are judged against real devices. Raises DrakkarError for files that cannot be read.
    """
    sources = read_folder(Path(files)) if isinstance(files, str | Path) else list(files)
    review = Review(sources, inventory, context)
    found: dict[Finding, Source] = {}
    by_place = {(source.file, source.reference): source for source in reversed(sources)}
    for rule in all_rules():
        for finding in _findings(rule, review):
            found.setdefault(finding, by_place[finding.file, finding.object])
    kept = [finding for finding, source in found.items() if not source.ignored(finding)]
    order = {source.file: number for number, source in reversed(list(enumerate(sources)))}
    return sorted(kept, key=lambda each: (order[each.file], each.line, each.column, each.code))


def _findings(rule: Rule, review: Review) -> list[Finding]:
    try:
        return list(rule.check(review))
    except DrakkarError:
        raise
    except Exception as problem:  # a rule that no file may break, and yet one did: say which, not where in our code
        raise DrakkarError(
            f"rule {rule.family}/{rule.name} cannot judge these files: {type(problem).__name__}: {problem}",
            reason="RuleFailed",
            subject=f"{rule.family}/{rule.name}",
            next_step="this is a defect of drakkar lint: please report it with the file",
        ) from problem


def lint_range(
    files: str | Path | Sequence[Source],
    contexts: Sequence[Context],
    *,
    inventory: Iterable[Mapping[str, Any]] | None = None,
) -> list[Finding]:
    """Reviews for several versions in one: what holds for some of them only says for which."""
    sources = read_folder(Path(files)) if isinstance(files, str | Path) else list(files)
    recorded = list(inventory) if inventory is not None else None
    merged: dict[tuple[str, str, str, str], tuple[Finding, list[str]]] = {}
    for context in contexts:
        for finding in lint(sources, inventory=recorded, context=context):
            key = (finding.code, finding.file, finding.object, finding.path)
            merged.setdefault(key, (finding, []))[1].append(context.kubernetes)
    order = {source.file: number for number, source in reversed(list(enumerate(sources)))}
    found = [
        finding
        if len(versions) == len(contexts)
        else replace(finding, message=f"{finding.message} ({_list(versions)})")
        for finding, versions in merged.values()
    ]
    return sorted(found, key=lambda each: (order[each.file], each.line, each.column, each.code))


def _list(versions: Sequence[str]) -> str:
    return f"for Kubernetes {', '.join(dict.fromkeys(versions))}"
