"""Apply and update as transactions over ownership: conflicts, forcing, pruning of what an applier no longer wants.

The order of steps is upstream's (structured-merge-diff's updater inside apimachinery's chain of managers), because
each step is visible: which entry gets a new time, what happens with the annotation of client-side apply, what a no-op
is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from drakkar.cluster.machinery.apply import entries, trees
from drakkar.cluster.machinery.apply.entries import APPLY, UPDATE, Manager, Managers
from drakkar.cluster.machinery.apply.fieldsets import (
    FieldSet,
    Path,
    all_paths,
    difference,
    intersection,
    path_text,
    union,
    with_parents,
)
from drakkar.cluster.machinery.patching.errors import PatchError
from drakkar.cluster.machinery.schemas import Struct
from drakkar.cluster.machinery.shapes import Findings, ShapeError, shape

__all__ = ["ApplyConflict", "Typed", "apply", "same_but_for_times", "update_managed_fields"]

Json = dict[str, Any]
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
BEFORE_FIRST_APPLY: Final = "before-first-apply"
KUBECTL: Final = "kubectl"
# What belongs to the system in every object and to no manager.
_STRIPPED: Final[FieldSet] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
        "f:clusterName": {}, "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {},
    },
}  # fmt: skip
# What a write through a path cannot change and therefore does not own: by subresource, and by kind where it differs.
_RESET: Final[dict[str, tuple[str, ...]]] = {"": ("status",), "status": ("spec",)}
_RESET_OF_KIND: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("ResourceClaim", "status"): ("spec", "metadata"),
    ("DeviceTaintRule", "status"): ("spec", "metadata"),
    ("Pod", "status"): ("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
    ("Deployment", "status"): ("spec", "metadata.labels"),
    ("CustomResourceDefinition", "status"): ("spec", "metadata"),
}


class Typed(Protocol):
    """The part of a kind that ownership needs."""

    @property
    def schema(self) -> Struct | None: ...
    @property
    def group_version(self) -> str: ...
    @property
    def kind(self) -> str: ...


class ApplyConflict(ValueError):
    """Other managers own fields that an apply without force wants to change."""

    def __init__(self, conflicts: list[tuple[Manager, Path]]) -> None:
        self.conflicts = conflicts
        self.message = _conflict_text(conflicts)
        super().__init__(self.message)

    def status(self, *_: object) -> Json:
        """The 409 Status with a cause for each field."""
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {manager.shown}",
                "field": path_text(path),
            }
            for manager, path in self.conflicts
        ]
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": "Conflict", "details": {"causes": causes}, "code": 409,
        }  # fmt: skip


def _conflict_text(conflicts: list[tuple[Manager, Path]]) -> str:
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {manager.shown}: {path_text(path)}"
    by_manager: dict[str, list[Path]] = {}
    for manager, path in sorted(conflicts, key=lambda conflict: conflict[0]):
        by_manager.setdefault(manager.shown, []).append(path)
    lines: list[str] = []
    for shown, paths in by_manager.items():
        lines.append(f"conflicts with {shown}:")
        lines += [f"- {path_text(path)}" for path in paths]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def update_managed_fields(
    live: Json | None, new: Json, kind: Typed, *, manager: str, subresource: str = "", now: str = ""
) -> Json:
    """`new` with its managedFields brought up to date for a write that is not an apply.

    `live` is the stored object (None for a creation), `now` RFC 3339 with whole seconds.
    """
    given = _meta(new).get("managedFields")
    live_entries = _meta(live).get("managedFields") if live is not None else None
    if subresource:
        managers = entries.decode(live_entries)
    elif given in ([], [{}]):
        managers = Managers()
    else:
        managers = entries.decode(given)
        if not managers.fields:
            managers = entries.decode(live_entries)
    if not managers.fields and live is not None:
        return _with_entries(new, managers)
    me = Manager(manager or "unknown", UPDATE, kind.group_version, subresource)
    _note_update(managers, live, new, kind, me, now)
    entries.merge_oldest(managers)
    return _with_entries(new, managers)


def _note_update(managers: Managers, live: Json | None, new: Json, kind: Typed, me: Manager, now: str) -> None:
    """Give `me` what changed from `live` to `new`, and take it from the others (changes `managers`)."""
    tree = trees.node_of(kind.schema)
    before = _empty(kind) if live is None else _without_entries(live)
    comparison = trees.compare(tree, before, _without_entries(new), new=live is None)
    reset = _reset(kind, me.subresource)
    changed, removed = difference(comparison.changed(), reset), difference(comparison.removed, reset)
    for other in list(managers.fields):
        remaining = difference(difference(managers.fields[other], changed), removed)
        if remaining:
            managers.fields[other] = remaining
        else:
            del managers.fields[other]
    taken = difference(changed, _STRIPPED)
    if taken:
        managers.fields[me] = union(taken, managers.fields.get(me, {}))
        managers.times[me] = now


def apply(
    live: Json | None,
    patch: Json,
    kind: Typed,
    *,
    manager: str,
    force: bool = False,
    subresource: str = "",
    now: str = "",
) -> Json:
    """The live object with an applied configuration merged in, and its managedFields.

    `live` is None when the apply creates the object. The result is shaped but not yet defaulted. Raises `PatchError`
    for a configuration that does not fit its type, `ApplyConflict` if others own what it wants to change.
    """
    group, _, version = kind.group_version.rpartition("/")
    if patch.get("apiVersion") != kind.group_version or patch.get("kind") != kind.kind:
        raise PatchError.bad_request(_wrong_kind(patch))
    if _meta(patch).get("managedFields") is not None:
        raise PatchError.bad_request("metadata.managedFields must be nil")
    tree = trees.node_of(kind.schema)
    wrong = trees.problems(tree, patch)
    if wrong:
        place = f"{_meta(patch).get('namespace') or ''}/{_meta(patch).get('name') or ''}"
        listed = wrong[0] if len(wrong) == 1 else "\n  ".join(["errors:", *wrong])
        named = f"{group}/{version}, Kind={kind.kind}"
        raise PatchError(f"failed to create typed patch object ({place}; {named}): {listed}")
    transaction = _Apply(live, patch, kind, Manager(manager, APPLY, kind.group_version, subresource), now)
    try:
        merged = transaction.run(force=force)
    except ApplyConflict as conflict:
        merged = transaction.retry_for_kubectl(conflict)
    return _refresh_last_applied(merged, patch, manager)


def _shaped(obj: Json, kind: Typed, live: Json | None) -> Json:
    """The merged object in the shape of its type, as decoding a body would give it."""
    if kind.schema is None:
        return obj
    try:
        typed = shape(obj, kind.schema, Findings(), live)
    except ShapeError as error:
        raise PatchError.invalid(msgspec.json.encode(obj).decode(), str(error)) from None
    return {**typed, "kind": kind.kind, "apiVersion": kind.group_version}


class _Apply:
    def __init__(self, live: Json | None, patch: Json, kind: Typed, me: Manager, now: str) -> None:
        self.live, self.patch, self.kind, self.me, self.now = live, patch, kind, me, now
        self.tree = trees.node_of(kind.schema)
        self.base = _without_entries(live) if live is not None else _empty(kind)

    def run(self, *, force: bool) -> Json:
        managers = self.managers()
        last = managers.fields.get(self.me)
        reset = _reset(self.kind, self.me.subresource)
        merged = trees.merge(self.tree, self.base, self.patch)
        managers.fields[self.me] = difference(trees.field_set(self.tree, self.patch), reset)
        merged = _shaped(self.prune(merged, managers, last), self.kind, self.live)
        comparison = trees.compare(self.tree, self.base, merged)
        changed, removed = difference(comparison.changed(), reset), difference(comparison.removed, reset)
        self.settle(managers, changed, removed, force=force)
        own = difference(managers.fields.get(self.me, {}), _STRIPPED)
        if own:
            managers.fields[self.me] = own
        else:
            managers.fields.pop(self.me, None)
        if merged != self.base:
            managers.times[self.me] = self.now
        return _with_entries(merged, managers)

    def managers(self) -> Managers:
        """The managers of the live object; an object without any gets one for all that is there."""
        managers = entries.decode(_meta(self.live).get("managedFields") if self.live is not None else None)
        if not managers.fields and self.live is not None:
            before = Manager(BEFORE_FIRST_APPLY, UPDATE, self.kind.group_version, self.me.subresource)
            _note_update(managers, None, self.live, self.kind, before, self.now)
        return managers

    def prune(self, merged: Json, managers: Managers, last: FieldSet | None) -> Json:
        """Remove what this manager applied last time and no longer does, unless somebody else owns it."""
        if not last:
            return merged
        last_all = with_parents(last, self.tree)
        pruned = trees.without(self.tree, merged, last_all) or {}
        merged_set = with_parents(trees.field_set(self.tree, merged), self.tree)
        owned: FieldSet = {}
        for fields in managers.fields.values():
            owned = union(owned, fields)
        pruned_set = with_parents(trees.field_set(self.tree, pruned), self.tree)
        gone = difference(merged_set, union(pruned_set, with_parents(owned, self.tree)))
        pruned = trees.without(self.tree, merged, gone) or {}
        pruned_set = with_parents(trees.field_set(self.tree, pruned), self.tree)
        gone = intersection(difference(merged_set, pruned_set), last_all)
        result: Json = trees.without(self.tree, merged, gone) or {}
        return result

    def settle(self, managers: Managers, changed: FieldSet, removed: FieldSet, *, force: bool) -> None:
        """Take changed and removed fields from other managers; without force changed ones are conflicts."""
        conflicts: list[tuple[Manager, Path]] = []
        for other in sorted(managers.fields):
            if other == self.me:
                continue
            shared = intersection(managers.fields[other], changed)
            if shared and not force:
                conflicts += [(other, path) for path in _paths(shared)]
        if conflicts:
            raise ApplyConflict(conflicts)
        for other in list(managers.fields):
            if other == self.me:
                continue
            remaining = difference(difference(managers.fields[other], changed), removed)
            if remaining:
                managers.fields[other] = remaining
            else:
                del managers.fields[other]

    def retry_for_kubectl(self, conflict: ApplyConflict) -> Json:
        """Conflicts with what kubectl itself applied client-side before are none: it is moving to server-side apply."""
        if self.me.name != KUBECTL:
            raise conflict
        allowed = self.last_applied_fields()
        if allowed is None:
            raise conflict
        remaining = [entry for entry in conflict.conflicts if entry[1] not in allowed]
        if remaining:
            raise ApplyConflict(remaining)
        return self.run(force=True)

    def last_applied_fields(self) -> set[Path] | None:
        """Fields of the last-applied annotation that the live object still has unchanged."""
        text = (_meta(self.base).get("annotations") or {}).get(LAST_APPLIED)
        if not text:
            return None
        try:
            last = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return None
        if not isinstance(last, dict) or last.get("apiVersion") != self.kind.group_version:
            return None
        comparison = trees.compare(self.tree, last, self.base)
        fields = difference(trees.field_set(self.tree, last), comparison.changed())
        return set(_paths(difference(fields, comparison.removed)))


def _paths(fields: FieldSet) -> list[Path]:
    return list(all_paths(fields))


def _wrong_kind(patch: Json) -> str:
    group, _, version = str(patch.get("apiVersion") or "").rpartition("/")
    return f"invalid object type: {group}/{version}, Kind={patch.get('kind') or ''}"


def _refresh_last_applied(merged: Json, patch: Json, manager: str) -> Json:
    """Keep the annotation of client-side apply true, if there is one and kubectl applies."""
    annotations = _meta(merged).get("annotations") or {}
    if manager != KUBECTL or not annotations.get(LAST_APPLIED):
        return merged
    meta = dict(_meta(patch))
    kept = {name: value for name, value in (meta.get("annotations") or {}).items() if name != LAST_APPLIED}
    if "annotations" in meta:
        meta["annotations"] = kept
    text = msgspec.json.encode({**patch, "metadata": meta}, order="sorted").decode() + "\n"
    return {**merged, "metadata": {**_meta(merged), "annotations": {**annotations, LAST_APPLIED: text}}}


def same_but_for_times(new: Json, old: Json) -> bool:
    """Whether two objects differ in nothing but the times of managedFields (and the version): a write that is none."""
    return _timeless(new) == _timeless(old)


def _timeless(obj: Json) -> Json:
    meta = {name: value for name, value in _meta(obj).items() if name != "resourceVersion"}
    if "managedFields" in meta:
        meta["managedFields"] = [
            {name: value for name, value in entry.items() if name != "time"} for entry in meta["managedFields"]
        ]
    return {**obj, "metadata": meta}


def _reset(kind: Typed, subresource: str) -> FieldSet:
    """Fields that a write through this path cannot own, everything below included."""
    schema = kind.schema
    if subresource == "" and schema is not None and not _has_status(schema):
        return {}
    return _reset_of(kind.kind, subresource)


@lru_cache(maxsize=256)
def _reset_of(kind: str, subresource: str) -> FieldSet:
    names = _RESET_OF_KIND.get((kind, subresource)) or _RESET.get(subresource, ())
    found: FieldSet = {}
    for name in names:
        node = found
        for part in name.split(".")[:-1]:
            node = node.setdefault(f"f:{part}", {})
        node[f"f:{name.split('.')[-1]}"] = _Everything()
    return found


class _Everything(dict[str, Any]):
    """A field set that contains every path below it."""

    def __contains__(self, key: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        return self


def _has_status(schema: Struct) -> bool:
    return "status" in schema.fields


def _meta(obj: Json | None) -> Json:
    found = (obj or {}).get("metadata")
    return found if isinstance(found, dict) else {}  # an applied configuration may hold anything there


def _empty(kind: Typed) -> Json:
    """The zero object of the kind, which creations are compared with."""
    zero = dict(kind.schema.zero) if kind.schema is not None else {}
    return {**zero, "apiVersion": kind.group_version, "kind": kind.kind}


def _without_entries(obj: Json) -> Json:
    meta = _meta(obj)
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def _with_entries(obj: Json, managers: Managers) -> Json:
    listed = entries.encode(managers)
    meta = _meta(_without_entries(obj))
    return {**obj, "metadata": {**meta, "managedFields": listed} if listed else meta}
