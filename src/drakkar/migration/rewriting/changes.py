"""The difference of two JSON values as changes, and changes as JSON Patch (RFC 6902).

Entries of lists that have a name are found again by it, as people do; so a container that moved is not two changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from drakkar.migration.documents import Steps

__all__ = ["Change", "applied", "differences", "from_json_patch", "to_json_patch"]


@dataclass(frozen=True)
class Change:
    """One change: `put` replaces or adds a value in a mapping or list, `drop` removes, `insert` puts into a list.

    `after` is the key that a new key follows, "" for the end.
    """

    action: str
    steps: Steps
    value: Any = None
    after: str = ""


def differences(old: Any, new: Any, steps: Steps = ()) -> Iterator[Change]:
    """What makes `new` of `old`, in an order that can be applied one after the other."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _mappings(old, new, steps)
    elif isinstance(old, list) and isinstance(new, list) and (old or not new):
        yield from _lists(old, new, steps)
    elif not _same(old, new):
        yield Change("put", steps, new)


def _mappings(old: dict[str, Any], new: dict[str, Any], steps: Steps) -> Iterator[Change]:
    gone = [Change("drop", (*steps, key)) for key in old if key not in new]
    if len(gone) < len(old):
        yield from gone
    before = ""
    for key, value in new.items():
        if key in old:
            yield from differences(old[key], value, (*steps, key))
        else:
            yield Change("put", (*steps, key), value, before)
        before = key
    if len(gone) == len(old):  # last, so that the text never has an empty block
        yield from gone


def _lists(old: list[Any], new: list[Any], steps: Steps) -> Iterator[Change]:
    pairs = _aligned(old, new)
    if pairs is None:
        yield Change("put", steps, new)
        return
    kept = {left for left, _ in pairs}
    for number in reversed(range(len(old))):
        if number not in kept:
            yield Change("drop", (*steps, number))
    partner = {right: left for left, right in pairs}
    for number, value in enumerate(new):
        if number in partner:
            yield from differences(old[partner[number]], value, (*steps, number))
        else:
            yield Change("insert", (*steps, number), value)


def _aligned(old: list[Any], new: list[Any]) -> list[tuple[int, int]] | None:
    """Which entries are the same ones, in order; None if the order changed or nothing is left."""
    if len(old) == len(new) and not any(_identity(entry) for entry in (*old, *new)):
        return [(number, number) for number in range(len(old))]
    found: list[tuple[int, int]] = []
    start = 0
    for right, entry in enumerate(new):
        for left in range(start, len(old)):
            own = _identity(entry)
            if own == _identity(old[left]) and (own is not None or _same(old[left], entry)):
                found.append((left, right))
                start = left + 1
                break
    return found or None


def _identity(entry: Any) -> Any:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None


def _same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)


def applied(value: Any, changes: Sequence[Change]) -> Any:
    """A copy of the value with the changes made. Raises LookupError or TypeError for a place that is not there."""
    made = copy.deepcopy(value)
    for change in changes:
        if not change.steps:
            made = copy.deepcopy(change.value)
            continue
        holder = made
        for step in change.steps[:-1]:
            holder = holder[step]
        last: Any = change.steps[-1]
        if change.action == "drop":
            del holder[last]
        elif change.action == "insert":
            holder.insert(last, copy.deepcopy(change.value))
        elif change.after and last not in holder:
            _put_after(holder, last, copy.deepcopy(change.value), change.after)
        else:
            holder[last] = copy.deepcopy(change.value)
    return made


def _put_after(holder: dict[str, Any], key: str, value: Any, after: str) -> None:
    items = list(holder.items())
    holder.clear()
    for name, inner in items:
        holder[name] = inner
        if name == after:
            holder[key] = value
    holder.setdefault(key, value)


def to_json_patch(old: Any, new: Any) -> list[dict[str, Any]]:
    """The changes from `old` to `new` as a JSON Patch."""
    found = []
    for change in differences(old, new):
        path = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in change.steps)
        if change.action == "drop":
            found.append({"op": "remove", "path": path})
        else:
            replaces = change.action == "put" and not change.after and _there(old, change)
            found.append({"op": "replace" if replaces else "add", "path": path, "value": change.value})
    return found


def _there(value: Any, change: Change) -> bool:
    for step in change.steps:
        if isinstance(value, dict):
            if step not in value:
                return False
            value = value[step]
        else:
            return isinstance(value, list)  # indexes shift while a patch is applied; what is put there replaces
    return True


def from_json_patch(patch: Any, value: Any) -> list[Change]:
    """The changes of a JSON Patch to a value. Raises ValueError for what is none."""
    if not isinstance(patch, list):
        raise ValueError("a JSON Patch is a list")
    found: list[Change] = []
    for entry in patch:
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            raise ValueError("an operation has op and path")
        change = _change(entry, value)
        try:
            value = applied(value, [change])
        except (LookupError, TypeError):
            raise ValueError(f"there is no {entry['path']}") from None
        found.append(change)
    return found


def _change(entry: dict[str, Any], value: Any) -> Change:
    steps: list[str | int] = []
    holder = value
    for part in entry["path"].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        step: str | int = int(name) if isinstance(holder, list) and name.isdigit() else name
        steps.append(step)
        try:
            holder = holder[step]
        except (LookupError, TypeError):
            holder = None
    inside = steps and isinstance(steps[-1], int)
    match entry.get("op"):
        case "remove":
            return Change("drop", tuple(steps))
        case "add":
            return Change("insert" if inside else "put", tuple(steps), entry.get("value"))
        case "replace":
            return Change("put", tuple(steps), entry.get("value"))
    raise ValueError(f"operation {entry.get('op')!r} is not one of add, remove and replace")
