"""How the values of a type merge: structs and maps by field, lists by their list type (KEP-555), the rest as a whole.

The walks that server-side apply needs over such a tree: the set of fields of a value, the comparison of two values, the
merge of one into another, the removal of a set of fields, and the check of an applied configuration against its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from drakkar.cluster.machinery import recall
from drakkar.cluster.machinery.apply.fieldsets import FieldSet, is_member, path_text, union
from drakkar.cluster.machinery.schemas import ATOMIC, MAP, SET, Field, Struct, Type

__all__ = ["Comparison", "Node", "compare", "field_set", "merge", "node_of", "problems", "without"]

LEAF: Final = "leaf"
STRUCT: Final = "struct"
ENTRIES: Final = "map"
ITEMS: Final = "list"
VALUES: Final = "set"
DEDUCED: Final = "deduced"
_BRANCHES: Final = (STRUCT, ENTRIES)


class Node:
    """One place in a type: `kind` is leaf, struct, map, list (by keys), set (by value) or deduced (shape decides)."""

    __slots__ = ("_item", "_known", "_struct", "defaults", "keys", "kind", "scalar")

    def __init__(self, kind: str, item: Type | None = None, struct: Struct | None = None) -> None:
        self.kind = kind
        self.keys: tuple[str, ...] = ()
        self.defaults: dict[str, Any] = {}
        self.scalar = ""
        self._known: dict[str, Node] = {}
        self._item = item
        self._struct = struct

    def declares(self, element: str) -> bool:
        """Whether the element is a field of a struct."""
        return self.kind == STRUCT and self._struct is not None and element[2:] in self._struct.fields

    def child(self, element: str) -> Node:
        """The place below a path element."""
        if element.startswith("f:"):
            return self.field(element[2:]) or _DEDUCED
        return self.item

    def field(self, name: str) -> Node | None:
        """The place of a field or map entry; None if a struct has no such field."""
        if self.kind != STRUCT:
            return self.item
        known = self._known
        if name not in known:
            field = self._struct.fields.get(name) if self._struct is not None else None
            if field is None:
                return None
            known[name] = _of_field(field)
        return known[name]

    @property
    def item(self) -> Node:
        """The place of items and map entries."""
        return _DEDUCED if self._item is None else _of_type(self._item)


_DEDUCED: Final = Node(DEDUCED)


def node_of(struct: Struct | None) -> Node:
    """The tree of a kind; without a struct (custom resources) the values' shapes decide and lists are atomic."""
    return _DEDUCED if struct is None else _of_struct(struct)


@cache
def _of_struct(struct: Struct) -> Node:
    return Node(LEAF) if struct.atomic else Node(STRUCT, struct=struct)


@cache
def _of_type(kind: Type) -> Node:
    """Items: structs by field, maps by entry, lists of lists as a whole."""
    if kind.code == "@":
        return _of_struct(kind.struct)
    if kind.code == "K":
        return Node(ENTRIES, kind.item)
    leaf = Node(LEAF)
    leaf.scalar = kind.code
    return leaf


@cache
def _of_field(field: Field) -> Node:
    kind = field.type
    if field.list_type == ATOMIC:
        node = Node(LEAF)
        node.scalar = kind.code
        return node
    if kind.code != "L":
        return _of_type(kind)
    if field.list_type == MAP:
        node = Node(ITEMS, kind.item)
        node.keys = field.keys
        fields = kind.item.struct.fields
        node.defaults = {key: value for key in field.keys if (value := _default(fields[key])) is not None}
        return node
    if field.list_type == SET:
        return Node(VALUES, kind.item)
    node = Node(LEAF)
    node.scalar = "L"
    return node


def _default(field: Field) -> Any:
    """What an absent key of a list item counts as: the declared default, else the zero value where Go writes one."""
    if field.default is not None or field.omitempty or field.pointer:
        return field.default
    return field.type.zero()


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _element(node: Node, item: Any) -> str:
    """The path element of a list item. ValueError if it has none."""
    if node.kind == VALUES:
        if isinstance(item, dict | list):
            raise ValueError("associative list without keys has an element that's a map type")
        return f"v:{_encode(item)}"
    if item is None:
        raise ValueError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ValueError("associative list with keys may not have non-map elements")
    keys = {}
    for name in sorted(node.keys):
        value = item.get(name)
        if value is None:
            value = node.defaults.get(name)
        if value is not None:  # an optional key that is absent makes another item than one that is there
            keys[name] = value
    if not keys:
        listed = " ".join(f'"{name}"' for name in node.keys)
        raise ValueError(
            f"associative list with keys has an element that omits all key fields [{listed}]"
            " (and doesn't have default values for any key fields)"
        )
    return f"k:{_encode(keys)}"


def _index(node: Node, items: Iterable[Any]) -> dict[str, list[Any]]:
    """Items by path element; keyless ones are left out."""
    found: dict[str, list[Any]] = {}
    for item in items:
        try:
            found.setdefault(_element(node, item), []).append(item)
        except ValueError:
            continue
    return found


def _kind(node: Node, *values: Any) -> str:
    """The kind of a place, given the values at it."""
    if node.kind != DEDUCED:
        return node.kind
    return ENTRIES if any(isinstance(value, dict) for value in values) else LEAF


def field_set(node: Node, value: Any) -> FieldSet:
    """The fields that a value has."""
    found: FieldSet = {}
    _collect(node, value, found)
    return found


def _collect(node: Node, value: Any, found: FieldSet) -> None:
    """Fill `found` with what lies below; leaves are marked by their parent."""
    kind = _kind(node, value)
    if kind in (STRUCT, ENTRIES):
        for name, item in value.items() if isinstance(value, dict) else ():
            child = node.field(name) or _DEDUCED
            below: FieldSet = {}
            leaf = _is_leaf(child, item)
            if not leaf:
                _collect(child, item, below)
            if leaf or not below:
                if leaf or item is None or item == {}:
                    found[f"f:{name}"] = {}
            elif node.declares(f"f:{name}"):
                found[f"f:{name}"] = below
            else:
                found[f"f:{name}"] = {".": {}, **below}
    elif kind in (ITEMS, VALUES):
        for item in value if isinstance(value, list) else ():
            try:
                element = _element(node, item)
            except ValueError:
                continue
            below = {}
            if kind == ITEMS:
                _collect(node.item, item, below)
            found[element] = {".": {}, **below} if below else {}


def _is_leaf(node: Node, value: Any) -> bool:
    return _kind(node, value) == LEAF


class Comparison:
    """What differs between two values."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: FieldSet = {}
        self.modified: FieldSet = {}
        self.removed: FieldSet = {}

    def changed(self) -> FieldSet:
        """Added and modified paths."""
        return union(self.modified, self.added)

    def put(self, element: str, below: Comparison) -> None:
        """Note what differs below an element."""
        if below.added:
            self.added[element] = below.added
        if below.modified:
            self.modified[element] = below.modified
        if below.removed:
            self.removed[element] = below.removed

    def take(self, other: Comparison) -> None:
        """Note what differs elsewhere at the same level."""
        self.added.update(other.added)
        self.modified.update(other.modified)
        self.removed.update(other.removed)


class _Absent:
    __slots__ = ()


_ABSENT: Final = _Absent()


def compare(node: Node, before: Mapping[str, Any], after: Mapping[str, Any], *, new: bool = False) -> Comparison:
    """Added, modified and removed fields from one object to another. `new`: `before` is the type's zero value."""
    return _compare_entries(node, before, after, new=new)


def _compare_entries(node: Node, left: Mapping[str, Any], right: Mapping[str, Any], *, new: bool = False) -> Comparison:
    found = Comparison()
    for name, before in left.items():
        after = right.get(name, _ABSENT)
        if before is not after and before != after:
            child, element = node.field(name) or _DEDUCED, f"f:{name}"
            if new and recall.keeps(after):
                found.take(_compared_with_zero(child, before, after, element))
            else:
                _compare(child, before, after, element, found)
    for name, after in right.items():
        if name not in left:
            found.added[f"f:{name}"] = _whole(node.field(name) or _DEDUCED, after)
    return found


def _compared_with_zero(node: Node, zero: Any, value: dict[str, Any], element: str) -> Comparison:
    """The comparison of a part that is the same in many objects; zero values last as long as their types."""

    def work() -> Comparison:
        found = Comparison()
        _compare(node, zero, value, element, found)
        return found

    return recall.once(value, ("compared", element, id(node), id(zero)), work)


def _compare(node: Node, before: Any, after: Any, element: str, found: Comparison) -> None:
    """Note at `element` how two values differ, which are not equal."""
    if before is _ABSENT:
        found.added[element] = _whole(node, after)
        return
    if after is _ABSENT:
        found.removed[element] = _whole(node, before)
        return
    kind = _kind(node, before, after)
    if kind in _BRANCHES:
        left: Any = before if isinstance(before, dict) else {}
        right: Any = after if isinstance(after, dict) else {}
        if left or right:
            found.put(element, _compare_entries(node, left, right))
            return
    elif kind != LEAF:
        left, right = (_index(node, value) if isinstance(value, list) else {} for value in (before, after))
        if left or right:
            found.put(element, _compare_items(node, left, right))
            return
    found.modified[element] = {}


def _compare_items(node: Node, left: Mapping[str, list[Any]], right: Mapping[str, list[Any]]) -> Comparison:
    found = Comparison()
    for element in [*left, *(element for element in right if element not in left)]:
        olds, news = left.get(element, []), right.get(element, [])
        if olds == news:
            continue
        if len(olds) <= 1 and len(news) <= 1:
            _compare(node.item, olds[0] if olds else _ABSENT, news[0] if news else _ABSENT, element, found)
        else:
            kind = found.removed if len(news) <= 1 else found.added if len(olds) <= 1 else found.modified
            kind[element] = {}
    return found


def _whole(node: Node, value: Any) -> FieldSet:
    """Every path of a value that appears or disappears, itself included."""
    kind = _kind(node, value)
    if kind in _BRANCHES:
        if not isinstance(value, dict) or not value:
            return {}
        below = {f"f:{name}": _whole(node.field(name) or _DEDUCED, item) for name, item in value.items()}
        return {".": {}, **below}
    if kind in (ITEMS, VALUES) and isinstance(value, list) and value:
        found: FieldSet = {".": {}}
        for element, items in _index(node, value).items():
            found[element] = _whole(node.item, items[0]) if len(items) == 1 and kind == ITEMS else {}
        return found
    return {}


def merge(node: Node, live: Any, applied: Any) -> Any:
    """`live` with the applied values in it; unchanged parts are shared."""
    kind = _kind(node, live, applied)
    if kind in (STRUCT, ENTRIES) and isinstance(applied, dict) and applied:
        result = dict(live) if isinstance(live, dict) else {}
        for name, value in applied.items():
            child = node.field(name) or _DEDUCED
            result[name] = merge(child, result[name], value) if name in result else value
        return result
    if kind in (ITEMS, VALUES) and isinstance(applied, list) and applied:
        return _merge_items(node, live if isinstance(live, list) else [], applied)
    if kind != LEAF and not applied and live:
        return live
    return applied


def _merge_items(node: Node, live: list[Any], applied: list[Any]) -> list[Any]:
    """Items of both lists: applied ones in their order, the others where they were relative to their neighbours."""
    before = [_element_or_index(node, item, index) for index, item in enumerate(live)]
    after = [_element_or_index(node, item, index) for index, item in enumerate(applied)]
    olds = dict(zip(before, live, strict=True))
    news = dict(zip(after, applied, strict=True))
    shared = [element for element in after if element in olds]
    result: list[Any] = []
    done: set[str] = set()

    def take(element: str) -> None:
        done.add(element)
        if shared and shared[0] == element:
            shared.pop(0)
        if element in olds and element in news:
            result.append(merge(node.item, olds[element], news[element]) if node.kind == ITEMS else news[element])
        else:
            result.append(news[element] if element in news else olds[element])

    left = right = 0
    while left < len(before) or right < len(after):
        if left < len(before) and right < len(after):
            element = before[left]
            if element == after[right]:
                take(element)
                left, right = left + 1, right + 1
                continue
            if element in news and shared and shared[0] != element:
                left += 1
                continue
        if left < len(before):
            element = before[left]
            if element not in news:
                take(element)
                left += 1
                continue
            if element in done:
                left += 1
        if right < len(after):
            take(after[right])
            right += 1
    return result


def _element_or_index(node: Node, item: Any, index: int) -> str:
    try:
        return _element(node, item)
    except ValueError:
        return f"i:{index}"


def without(node: Node, value: Any, fields: FieldSet) -> Any:
    """The value without the fields of the set; None where nothing is left."""
    kind = _kind(node, value)
    if kind in (STRUCT, ENTRIES) and isinstance(value, dict) and value:
        kept: dict[str, Any] = {}
        for name, item in value.items():
            below = fields.get(f"f:{name}")
            if below is None:
                kept[name] = item
            elif not is_member(below):
                kept[name] = without(node.field(name) or _DEDUCED, item, below)
        return kept or None
    if kind in (ITEMS, VALUES) and isinstance(value, list) and value:
        items: list[Any] = []
        for index, item in enumerate(value):
            below = fields.get(_element_or_index(node, item, index))
            if below is None:
                items.append(item)
            elif not is_member(below):
                items.append(without(node.item, item, below))
        return items or None
    return None if kind != LEAF else value


_NUMERIC: Final = "if"


def problems(node: Node, value: Any, path: str = "") -> list[str]:
    """What is wrong with an applied configuration, each as `path: complaint`."""
    found: list[str] = []
    if value is None:
        return found
    kind = _kind(node, value)
    if kind in (STRUCT, ENTRIES):
        if not isinstance(value, dict):
            return [_problem(path, f"expected map, got &{{{_shown(value)}}}")]
        for name, item in value.items():
            child = node.field(name)
            if child is None:
                found.append(f"{path}.{name}: field not declared in schema")
            else:
                found += problems(child, item, f"{path}.{name}")
    elif kind in (ITEMS, VALUES):
        if not isinstance(value, list):
            return [_problem(path, f"expected list, got &{{{_shown(value)}}}")]
        found += _item_problems(node, value, path)
    else:
        found += _scalar_problems(node, value, path)
    return found


def _item_problems(node: Node, items: list[Any], path: str) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        try:
            element = _element(node, item)
        except ValueError as error:
            found.append(_problem(path, f"element {index}: {error}"))
            continue
        if element in seen:
            found.append(_problem(path, f"duplicate entries for key {path_text((element,))}"))
        seen.add(element)
        found += problems(node.item, item, path + path_text((element,)))
    return found


def _scalar_problems(node: Node, value: Any, path: str) -> list[str]:
    """Scalars of a known type; places without one (atomic structs) are not looked into."""
    scalar = node.scalar
    if scalar in ("s", "B") and not isinstance(value, str):
        return [_problem(path, f"expected string, got &value.valueUnstructured{{Value:{_shown(value)}}}")]
    if scalar and scalar in _NUMERIC and (isinstance(value, bool) or not isinstance(value, int | float)):
        return [_problem(path, f"expected numeric (int or float), got {_go_type(value)}")]
    if scalar == "b" and not isinstance(value, bool):
        return [_problem(path, f"expected boolean, got &{{{_shown(value)}}}")]
    if scalar == "L" and not isinstance(value, list):
        return [_problem(path, f"expected list, got &{{{_shown(value)}}}")]
    return []


def _problem(path: str, complaint: str) -> str:
    return f"{path}: {complaint}" if path else complaint


def _shown(value: Any) -> str:
    from drakkar.cluster.machinery.patching.strategic import go_text

    return go_text(value)


def _go_type(value: Any) -> str:
    for kind, name in ((bool, "bool"), (str, "string"), (list, "[]interface {}"), (dict, "map[string]interface {}")):
        if isinstance(value, kind):
            return name
    return "int64"
