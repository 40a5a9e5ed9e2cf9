"""Which parts of a device a selector reads, so that devices which agree in those parts share its answer.

`device.attributes["d"].x`, in every spelling with constant domain and name, reads one value; `device.driver` another.
As soon as an expression uses a device in any other way (a macro over its domains, a computed name) it reads everything.
Cost and errors of such expressions depend on nothing but the values read, too.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from drakkar.cel.expressions import CallNode, IdentNode, LiteralNode, SelectNode, children

_INDEX: Final = ("_[_]", "_[?_]", "_?._")
_SINGLE: Final = ("driver", "allowMultipleAllocations")
_MAPS: Final = ("attributes", "capacity")
_LENGTH: Final = 4  # device, field, domain, name


class Read(NamedTuple):
    """One value of a device; domain and name are empty for `driver` and `allowMultipleAllocations`."""

    field: str
    domain: str
    name: str


def reads_of(root: Any) -> tuple[Read, ...] | None:
    """The values a checked expression reads of `device`, or None if that cannot be told."""
    found: set[Read] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        path = _path(node)
        if path is None:
            if isinstance(node, IdentNode) and node.name == "device":
                return None
            stack += children(node)
            continue
        if len(path) == 2 and path[1] in _SINGLE:
            found.add(Read(path[1], "", ""))
        elif len(path) == _LENGTH and path[1] in _MAPS:
            found.add(Read(path[1], path[2], path[3]))
        else:
            return None
    return tuple(sorted(found))


def _path(node: Any) -> list[str] | None:
    """The constant keys from `device` down to a node: exactly two (a field) or four (a value), else None."""
    keys: list[str] = []
    while not isinstance(node, IdentNode):
        if isinstance(node, SelectNode):
            keys.append(node.field)
            node = node.operand
        elif (
            isinstance(node, CallNode) and node.function in _INDEX and len(node.arguments) == 2 and node.target is None
        ):
            key = node.arguments[1]
            if not isinstance(key, LiteralNode) or not isinstance(key.value, str):
                return None
            keys.append(key.value)
            node = node.arguments[0]
        else:
            return None
        if len(keys) >= _LENGTH:
            return None
    if node.name != "device" or not keys:
        return None
    return ["device", *reversed(keys)]
