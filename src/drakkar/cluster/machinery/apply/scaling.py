"""Who owns the number of replicas after a write through the scale subresource.

A Scale is another object with fields of its own, so ownership is translated there and back (apimachinery's
`ScaleHandler`). What that does is visible: whoever scales owns the number under the subresource `scale` and without a
time, everybody else loses it; and since the two objects have different versions, the translation back takes it from an
updater even if nothing changed, and gives it to him again as an entry without a time. A scale to the number that is
there already is therefore a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drakkar.cluster.machinery.apply import entries
from drakkar.cluster.machinery.apply.entries import APPLY, UPDATE, Manager, Managers
from drakkar.cluster.machinery.apply.fieldsets import FieldSet, Path, difference, insert, intersection

__all__ = ["after_scaling"]


def after_scaling(
    listed: Sequence[dict[str, Any]] | None,
    path: Path,
    group_version: str,
    *,
    manager: str,
    before: int,
    after: int,
) -> list[dict[str, Any]]:
    """managedFields of an object whose replicas, at `path`, `manager` has set from `before` to `after`."""
    replicas: FieldSet = {}
    insert(replicas, path)
    known = entries.decode(listed)
    kept, timeless = Managers(), []
    for owner, fields in known.fields.items():
        if owner.version != group_version:
            continue
        if not intersection(fields, replicas) or (owner.operation == APPLY and before == after):
            _keep(owner, fields, known, kept)
            continue
        rest = difference(fields, replicas)
        if rest:
            _keep(owner, rest, known, kept)
        if before == after:
            timeless.append(owner)
    if before != after and after:  # zero is not written in a Scale, and what is not there has no owner
        timeless.append(Manager(manager or "unknown", UPDATE, group_version, "scale"))
    alone = Managers()
    alone.fields = dict.fromkeys(timeless, replicas)
    found = [*entries.encode(alone), *entries.encode(kept)]
    return sorted(found, key=_order)


def _keep(owner: Manager, fields: FieldSet, known: Managers, kept: Managers) -> None:
    kept.fields[owner] = fields
    kept.stored[owner] = known.stored[owner]
    if owner in known.times:
        kept.times[owner] = known.times[owner]


def _order(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry.get(name, "") for name in ("operation", "time", "manager", "apiVersion", "subresource"))
