"""The review itself: every rule over every file, findings in the order of the files.

Comments switch findings off one by one, with a reason:

    resourceClaimName: shared-card  # drakkar: ignore[claim-shared-by-replicas] one card is enough for all
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drakkar.migration.context import Context
from drakkar.migration.documents import Source, read_folder
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import all_rules

__all__ = ["Context", "Finding", "lint"]

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
        for finding in rule.check(review):
            found.setdefault(finding, by_place[finding.file, finding.object])
    kept = [finding for finding, source in found.items() if not source.ignored(finding)]
    order = {source.file: number for number, source in reversed(list(enumerate(sources)))}
    return sorted(kept, key=lambda each: (order[each.file], each.line, each.column, each.code))
