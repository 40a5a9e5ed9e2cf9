"""JSON patch (RFC 6902) with the liberties of the library that Kubernetes uses.

`replace` creates a missing key of an object, negative indices count from the end, and the part of a path before its
first slash is ignored. Objects are copied along the paths that change only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from drakkar.cluster.machinery.patching.errors import PatchError

__all__ = ["json_patch"]

MAX_OPERATIONS: Final = 10_000
_INDEX: Final = re.compile(r"[+-]?\d+", re.ASCII)


def json_patch(obj: Any, operations: Sequence[Any]) -> Any:
    """The object after all operations. Raises `PatchError` if one of them does not apply."""
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}",
            413,
            "RequestEntityTooLarge",
        )
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchError.rejected()
        obj = _apply(obj, operation)
    return obj


def _apply(obj: Any, operation: dict[str, Any]) -> Any:
    name, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise PatchError.rejected()
    if path == "" and name in ("replace", "test"):
        return _whole(obj, name, operation.get("value"))
    if name == "add":
        return _add(obj, _parts(path), operation.get("value"))
    if name == "replace":
        return _replace(obj, _parts(path), operation.get("value"))
    if name == "remove":
        return _remove(obj, _parts(path))
    if name == "test":
        found, value = _find(obj, _parts(path))
        if (found or operation.get("value") is not None) and not _equal(value, operation.get("value")):
            raise PatchError.rejected()
        return obj
    if name in ("move", "copy") and isinstance(operation.get("from"), str):
        source = _parts(operation["from"])
        found, value = _find(obj, source)
        if not found:
            raise PatchError.rejected()
        return _add(_remove(obj, source) if name == "move" else obj, _parts(path), value)
    raise PatchError.rejected()


def _whole(obj: Any, name: str, value: Any) -> Any:
    """The empty path, which only these two operations know: the document itself."""
    if not isinstance(value, dict | list) or (name == "test" and not _equal(obj, value)):
        raise PatchError.rejected()
    return value if name == "replace" else obj


def _parts(path: str) -> list[str]:
    parts = path.split("/")[1:]
    if not parts:
        raise PatchError.rejected()
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _position(items: list[Any], key: str, *, last: int) -> int:
    """The index that `key` names, at most `last`; negative ones count from the end."""
    if not _INDEX.fullmatch(key):
        raise PatchError.rejected()
    index = int(key)
    if index < 0:
        index += last + 1
    if not 0 <= index <= last:
        raise PatchError.rejected()
    return index


def _find(obj: Any, parts: list[str]) -> tuple[bool, Any]:
    """Whether the place exists, and its value; the place's parent must exist."""
    for depth, part in enumerate(parts):
        if isinstance(obj, dict):
            if part not in obj:
                if depth == len(parts) - 1:
                    return False, None
                raise PatchError.rejected()
            obj = obj[part]
        elif isinstance(obj, list):
            obj = obj[_position(obj, part, last=len(obj) - 1)]
        else:
            raise PatchError.rejected()
    return True, obj


def _change(obj: Any, parts: list[str], change: Any) -> Any:
    """A copy of the object along the path, with `change(container, key)` applied to a copy of the last container."""
    part = parts[0]
    copy: Any = dict(obj) if isinstance(obj, dict) else list(obj) if isinstance(obj, list) else None
    if copy is None:
        raise PatchError.rejected()
    if len(parts) == 1:
        change(copy, part)
        return copy
    if isinstance(copy, dict):
        if not isinstance(copy.get(part), dict | list):
            raise PatchError.rejected()
        copy[part] = _change(copy[part], parts[1:], change)
    else:
        index = _position(copy, part, last=len(copy) - 1)
        copy[index] = _change(copy[index], parts[1:], change)
    return copy


def _add(obj: Any, parts: list[str], value: Any) -> Any:
    def add(container: Any, key: str) -> None:
        if isinstance(container, dict):
            container[key] = value
        elif key == "-":
            container.append(value)
        else:
            container.insert(_position(container, key, last=len(container)), value)

    return _change(obj, parts, add)


def _replace(obj: Any, parts: list[str], value: Any) -> Any:
    def replace(container: Any, key: str) -> None:
        if isinstance(container, dict):
            container[key] = value
        else:
            container[_position(container, key, last=len(container) - 1)] = value

    return _change(obj, parts, replace)


def _remove(obj: Any, parts: list[str]) -> Any:
    def remove(container: Any, key: str) -> None:
        if isinstance(container, dict):
            if key not in container:
                raise PatchError.rejected()
            del container[key]
        else:
            del container[_position(container, key, last=len(container) - 1)]

    return _change(obj, parts, remove)


def _equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
