"""Sets of field paths in the very form that FieldsV1 has: nested dicts of path elements.

A path element is `f:name` (field), `k:{"name":"x"}` (item by keys), `v:"x"` (item by value) or `i:0`. `{}` is a path
that is in the set and has nothing below it; `.` marks one that has. Sets are values: operations return new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

__all__ = ["all_paths", "difference", "insert", "intersection", "path_text", "union", "with_parents"]

FieldSet = dict[str, Any]
Path = tuple[str, ...]
SELF: Final = "."


def is_member(node: FieldSet) -> bool:
    """Whether the path itself is in the set."""
    return not node or SELF in node


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """All paths of both."""
    if not left:
        return right
    if not right:
        return left
    result = dict(left)
    for element, node in right.items():
        if element == SELF:
            result[SELF] = {}
        elif element in result:
            result[element] = _union_node(result[element], node)
        else:
            result[element] = node
    return result


def _union_node(left: FieldSet, right: FieldSet) -> FieldSet:
    merged = union(left, right)
    if merged and (is_member(left) or is_member(right)):
        return {SELF: {}, **merged}
    return merged


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The paths of `left` that are not in `right`."""
    if not right or (type(right) is dict and left.keys().isdisjoint(right)):
        return left  # the very set: who wrote nothing of it keeps the entry as it is
    result: FieldSet = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None or element == SELF:
            if element != SELF:
                result[element] = node
            continue
        remaining = _without(node, other)
        if remaining is not None:
            result[element] = remaining
    return result


def _without(node: FieldSet, other: FieldSet) -> FieldSet | None:
    """The node without the other's paths; None if nothing is left."""
    member = is_member(node) and not is_member(other)
    if not node:
        return {} if member else None
    below = difference({key: value for key, value in node.items() if key != SELF} if SELF in node else node, other)
    if not below:
        return {} if member else None
    return {SELF: {}, **below} if member else below


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """The paths of both."""
    result: FieldSet = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None or element == SELF:
            continue
        below = intersection(node, other)
        member = is_member(node) and is_member(other)
        if below:
            result[element] = {SELF: {}, **below} if member else below
        elif member:
            result[element] = {}
    return result


def insert(target: FieldSet, path: Path) -> None:
    """Add a path to a set that is being built (changes `target`)."""
    for element in path[:-1]:
        inner = target.get(element)
        if inner is None:
            inner = target[element] = {}
        elif not inner:
            inner[SELF] = {}
        target = inner
    last = path[-1]
    present = target.get(last)
    target[last] = {} if present is None else _union_node(present, {})


def all_paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """All paths in upstream's order: at each level first the members, then what lies below, fields before keys."""
    names = sorted((name for name in fields if name != SELF), key=_order)
    for name in names:
        if is_member(fields[name]):
            yield (*prefix, name)
    for name in names:
        yield from all_paths(fields[name], (*prefix, name))


_KINDS: Final = {"f": 0, "k": 1, "v": 2, "i": 3}


def _order(element: str) -> tuple[int, str]:
    return _KINDS.get(element[0], 4), element


def with_parents(fields: FieldSet, declared: Any) -> FieldSet:
    """The set with every declared struct field on the way added; `declared` is a node of `trees`."""
    result: FieldSet = {}
    for element, node in fields.items():
        if element == SELF:
            result[SELF] = {}
            continue
        child = declared.child(element)
        below = with_parents(node, child) if node else node
        if below and SELF not in below and declared.declares(element):
            below = {SELF: {}, **below}
        result[element] = below
    return result


def path_text(path: Path) -> str:
    """A path as people see it: `.spec.containers[name="a"].image`."""
    return "".join(_element_text(element) for element in path)


def _element_text(element: str) -> str:
    kind, _, text = element.partition(":")
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = msgspec.json.decode(text)
        return "[" + ",".join(f"{name}={_value_text(keys[name])}" for name in sorted(keys)) + "]"
    if kind == "v":
        return f"[={_value_text(msgspec.json.decode(text))}]"
    return f"[{text}]"


def _value_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
