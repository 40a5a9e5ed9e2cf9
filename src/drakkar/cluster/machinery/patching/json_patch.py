"""JSON patch (RFC 6902) with the liberties of the library that Kubernetes uses.

`replace` creates a missing key of an object, negative indices count from the end, and the part of a path before its
first slash is ignored. Objects are copied along the paths that change only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from drakkar.cluster.machinery.patching.errors import PatchError

__all__ = ["json_patch"]

MAX_OPERATIONS: Final = 10_000
_INDEX: Final = re.compile(r"[+-]?\d+", re.ASCII)


class _NowhereError(Exception):
    """What the path goes through is not there."""


class _UnfitError(Exception):
    """The container is there, but not such a key or index."""


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
    apply = _OPERATIONS.get(name) if isinstance(name, str) else None
    if apply is None:
        raise PatchError.rejected(f"Unexpected kind: {name or 'unknown'}")
    if not isinstance(path, str):
        raise PatchError.rejected(f"{name} operation failed to decode path: missing value")
    try:
        return apply(obj, operation, path)
    except _NowhereError:
        where = _MISSING[str(name)].format(path)
        raise PatchError.rejected(f"{name} operation does not apply: {where}: missing value") from None
    except _UnfitError as error:
        raise PatchError.rejected(f"error in {name} for path: '{path}': {error}") from None


_MISSING: Final = {
    "add": 'doc is missing path: "{}"',
    "remove": 'doc is missing path: "{}"',
    "replace": "doc is missing path: {}",
    "test": "is missing path: {}",
    "move": "doc is missing from path: {}",
    "copy": "doc is missing from path: {}",
}


def _tested(obj: Any, operation: dict[str, Any], path: str) -> Any:
    wanted = operation.get("value")
    if path == "":
        return _whole(obj, "test", wanted)
    found, value = _find(obj, _parts(path))
    if (found or wanted is not None) and not _equal(value, wanted):
        raise PatchError.rejected(f"testing value {path} failed: test failed")
    return obj


def _transferred(obj: Any, operation: dict[str, Any], path: str) -> Any:
    if not isinstance(operation.get("from"), str):
        raise PatchError.rejected(f"{operation['op']} operation failed to decode from: missing value")
    source = _parts(operation["from"])
    found, value = _find(obj, source)
    if not found:
        raise _NowhereError
    return _add(_remove(obj, source) if operation["op"] == "move" else obj, _parts(path), value)


def _replaced(obj: Any, operation: dict[str, Any], path: str) -> Any:
    if path == "":
        return _whole(obj, "replace", operation.get("value"))
    return _replace(obj, _parts(path), operation.get("value"))


_OPERATIONS: Final[dict[str, Callable[[Any, dict[str, Any], str], Any]]] = {
    "add": lambda obj, operation, path: _add(obj, _parts(path), operation.get("value")),
    "remove": lambda obj, operation, path: _remove(obj, _parts(path)),
    "replace": _replaced,
    "test": _tested,
    "move": _transferred,
    "copy": _transferred,
}


def _whole(obj: Any, name: str, value: Any) -> Any:
    """The empty path, which only these two operations know: the document itself."""
    if not isinstance(value, dict | list) or (name == "test" and not _equal(obj, value)):
        raise PatchError.rejected(f"testing value  failed: {name} failed")
    return value if name == "replace" else obj


def _parts(path: str) -> list[str]:
    parts = path.split("/")[1:]
    if not parts:
        raise _NowhereError
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _position(items: list[Any], key: str, *, last: int) -> int:
    """The index that `key` names, at most `last`; negative ones count from the end. Raises `_UnfitError`."""
    if not _INDEX.fullmatch(key):
        why = f'strconv.Atoi: parsing "{key}": invalid syntax'
        raise _UnfitError(f"value was not a proper array index: '{key}': {why}")
    given = index = int(key)
    if index < 0:
        index += last + 1
    if not 0 <= index <= last:
        raise _UnfitError(f"Unable to access invalid index: {given}: invalid index referenced")
    return index


def _find(obj: Any, parts: list[str]) -> tuple[bool, Any]:
    """Whether the place exists, and its value; the place's parent must exist."""
    for depth, part in enumerate(parts):
        if isinstance(obj, dict):
            if part not in obj:
                if depth == len(parts) - 1:
                    return False, None
                raise _NowhereError
            obj = obj[part]
        elif isinstance(obj, list):
            obj = obj[_position(obj, part, last=len(obj) - 1)]
        else:
            raise _NowhereError
    return True, obj


def _change(obj: Any, parts: list[str], change: Any) -> Any:
    """A copy of the object along the path, with `change(container, key)` applied to a copy of the last container."""
    part = parts[0]
    copy: Any = dict(obj) if isinstance(obj, dict) else list(obj) if isinstance(obj, list) else None
    if copy is None:
        raise _NowhereError
    if len(parts) == 1:
        change(copy, part)
        return copy
    if isinstance(copy, dict):
        if not isinstance(copy.get(part), dict | list):
            raise _NowhereError
        copy[part] = _change(copy[part], parts[1:], change)
    else:
        try:
            index = _position(copy, part, last=len(copy) - 1)
        except _UnfitError:
            raise _NowhereError from None
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
                raise _UnfitError(f"Unable to remove nonexistent key: {key}: missing value")
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
