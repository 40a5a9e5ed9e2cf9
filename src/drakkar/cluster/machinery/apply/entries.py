"""metadata.managedFields as a table: one set of fields per manager, read from and written to the object.

A manager is its name together with operation, API version and subresource; two writers with the same name but different
operations are two managers. Entries come out in upstream's order: applies first, then by time and name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from drakkar.cluster.machinery.apply.fieldsets import FieldSet, union

__all__ = ["Manager", "Managers", "decode", "encode", "merge_oldest"]

APPLY: Final = "Apply"
UPDATE: Final = "Update"
MAX_UPDATE_MANAGERS: Final = 10
ANCIENT: Final = "ancient-changes"


class Manager(NamedTuple):
    """The identity of a manager."""

    name: str
    operation: str
    version: str
    subresource: str = ""

    @property
    def shown(self) -> str:
        """The manager as conflict messages name it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == UPDATE:
            text += f" using {self.version}"
        return text


class Managers:
    """Sets of fields by manager, with the time of the last change; `stored` are the entries that were read."""

    __slots__ = ("fields", "stored", "times")

    def __init__(self) -> None:
        self.fields: dict[Manager, FieldSet] = {}
        self.times: dict[Manager, str] = {}
        self.stored: dict[Manager, dict[str, Any]] = {}


def decode(entries: Sequence[dict[str, Any]] | None) -> Managers:
    """Read the entries of an object; broken ones count as none at all, as upstream treats them in updates."""
    found = Managers()
    for entry in entries or ():
        if entry.get("operation") not in (APPLY, UPDATE) or entry.get("fieldsType", "FieldsV1") != "FieldsV1":
            return Managers()
        manager = Manager(
            entry.get("manager") or "",
            entry["operation"],
            entry.get("apiVersion") or "",
            entry.get("subresource") or "",
        )
        found.fields[manager] = entry.get("fieldsV1") or {}
        found.stored[manager] = entry
        if entry.get("time"):
            found.times[manager] = entry["time"]
    return found


def encode(managers: Managers) -> list[dict[str, Any]]:
    """The entries in their order."""

    def order(manager: Manager) -> tuple[Any, ...]:
        time = managers.times.get(manager, "")
        return manager.operation, time, manager.name, manager.version, manager.subresource

    return [_entry(manager, managers) for manager in sorted(managers.fields, key=order)]


def _entry(manager: Manager, managers: Managers) -> dict[str, Any]:
    fields, time = managers.fields[manager], managers.times.get(manager)
    stored = managers.stored.get(manager)
    if stored is not None and stored.get("fieldsV1") is fields and stored.get("time") == time:
        return stored
    entry: dict[str, Any] = {
        "manager": manager.name, "operation": manager.operation, "apiVersion": manager.version, "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": interned(fields), "subresource": manager.subresource,
    }  # fmt: skip
    return {name: value for name, value in entry.items() if value or name == "fieldsV1"}


def interned(fields: FieldSet) -> FieldSet:
    """One value for equal sets: the objects that one controller makes from one template own the same fields."""
    text = msgspec.json.encode(fields)
    if len(text) > _LONGEST:
        return fields
    known = _INTERNED.get(text)
    if known is None:
        if len(_INTERNED) >= _MOST:
            _INTERNED.clear()
        known = _INTERNED[text] = fields
    return known


_INTERNED: Final[dict[bytes, FieldSet]] = {}
_LONGEST: Final = 4096
_MOST: Final = 512


def merge_oldest(managers: Managers) -> None:
    """Put the oldest updaters together when there are more than ten (changes `managers`)."""
    if len(managers.fields) <= MAX_UPDATE_MANAGERS:
        return
    updaters = sorted(
        (manager for manager in managers.fields if manager.operation == UPDATE),
        key=lambda manager: (managers.times.get(manager, ""), manager),
    )
    first: dict[str, Manager] = {}
    count = len(updaters)
    for manager in updaters:
        if count <= MAX_UPDATE_MANAGERS:
            return
        bucket = Manager(ANCIENT, UPDATE, manager.version)
        if manager.version not in first:
            first[manager.version] = manager
            continue
        if bucket not in managers.fields:
            managers.fields[bucket] = managers.fields.pop(first[manager.version])
        time = managers.times.get(manager, "")
        managers.fields[bucket] = union(managers.fields.pop(manager), managers.fields[bucket])
        managers.times[bucket] = time
        count -= 1
