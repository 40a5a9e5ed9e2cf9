"""Strategic merge patch: lists merge by keys that the Go types name, directives delete, replace and reorder.

Directives: `$patch` (replace, delete) in a map or list item, `$retainKeys` for unions, `$setElementOrder/<list>` and
`$deleteFromPrimitiveList/<list>`. Follows the algorithm of apimachinery's strategicpatch, including its error texts;
see "Strategic Merge Patch" in the Kubernetes community's API documents.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.machinery.patching.errors import PatchError
from drakkar.cluster.machinery.schemas import Field, Struct, Type

__all__ = ["go_text", "strategic_merge_patch"]

DIRECTIVE: Final = "$patch"
RETAIN: Final = "$retainKeys"
ORDER: Final = "$setElementOrder"
DELETE: Final = "$deleteFromPrimitiveList"
_BAD_RETAIN: Final = "invalid patch format of retainKeys"
_BAD_ORDER: Final = "invalid patch format of setElementOrder list"
_BAD_PRIMITIVES: Final = "invalid patch format of primitive list"

Map = dict[str, Any]
Schema = Struct | Type | None


def strategic_merge_patch(obj: Map, patch: Map, struct: Struct) -> Map:
    """The object with the patch merged in. Raises `PatchError` with upstream's text and status."""
    return _merge_map(obj, patch, struct)


def go_text(value: Any) -> str:
    """A JSON value as Go prints it with %v: `map[a:1 b:[x y]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _field(schema: Schema, name: str) -> tuple[Field | None, Schema]:
    """The field's rules (None inside maps) and the schema of its value or items."""
    if isinstance(schema, Struct):
        field = schema.fields.get(name)
        if field is None:
            raise PatchError(f'unable to find api field in struct {schema.short_name} for the json field "{name}"')
        kind = field.type.item if field.type.code == "L" else field.type
        return field, _inner(kind)
    if isinstance(schema, Type) and schema.code == "K":
        kind = schema.item.item if schema.item.code == "L" else schema.item
        return None, _inner(kind)
    raise PatchError(f'unable to find api field in struct RawExtension for the json field "{name}"')


def _inner(kind: Type) -> Schema:
    return kind.struct if kind.code == "@" else kind if kind.code == "K" else None


def _merge_map(original: Map, patch: Map, schema: Schema) -> Map:
    if DIRECTIVE in patch:
        directive = patch[DIRECTIVE]
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        if directive == "delete":
            return {}
        raise _bad_directive(directive, patch)
    result, patch = dict(original), dict(patch)
    _retain(result, patch)
    _set_orders(result, patch, schema)
    for key, value in patch.items():
        deleting = key.startswith(DELETE)
        name = _after(key, DELETE, _BAD_PRIMITIVES) if deleting else key
        if value is None:
            result.pop(name, None)
            continue
        before = result.get(name)
        if name in result and _alike(before, value):
            if isinstance(value, dict) and isinstance(before, dict):
                field, inner = _field(schema, name)
                replace = field is not None and "replace" in field.strategy
                result[name] = value if replace else _merge_map(before, value, inner)
                continue
            if isinstance(value, list) and isinstance(before, list):
                field, inner = _field(schema, name)
                result[name] = _merge_list(before, value, field, inner, deleting=deleting)
                continue
        if not deleting:
            kept, clean = _clean(value)
            if kept:
                result[name] = clean
            else:
                result.pop(name, None)
    return result


def _alike(left: Any, right: Any) -> bool:
    return type(left) is type(right)


def _after(key: str, prefix: str, complaint: str) -> str:
    head, slash, name = key.partition("/")
    if not slash or head != prefix:
        raise PatchError.bad_request(complaint)
    return name


def _bad_directive(directive: Any, item: Map) -> PatchError:
    return PatchError(f"unknown patch type: {go_text(directive)} in map: {go_text(item)}")


def _no_key(item: Map, key: str) -> PatchError:
    return PatchError(f"map: {go_text(item)} does not contain declared merge key: {key}")


def _retain(result: Map, patch: Map) -> None:
    """Clear the fields of a union that the patch does not name."""
    if RETAIN not in patch:
        return
    names = patch.pop(RETAIN)
    if not isinstance(names, list):
        raise PatchError.bad_request(_BAD_RETAIN)
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE, ORDER)) and key not in names:
            raise PatchError.bad_request(_BAD_RETAIN)
    for key in [key for key in result if key not in names]:
        del result[key]


def _clean(value: Any) -> tuple[bool, Any]:
    """A new value without nulls and directives; first whether it stays at all."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return False, None
        cleaned = {key: _clean(item) for key, item in value.items() if item is not None}
        return True, {key: item for key, (kept, item) in cleaned.items() if kept}
    if isinstance(value, list):
        return True, [item for kept, item in map(_clean, value) if kept]
    return True, value


def _merge_list(
    before: list[Any], patch: list[Any], field: Field | None, schema: Schema, *, deleting: bool
) -> list[Any]:
    if not deleting and (field is None or "merge" not in field.strategy):
        return patch
    if not before and not patch:
        return before
    key = field.merge_key if field else ""
    if not _of_maps(before, patch):
        if deleting:
            return [item for item in before if item not in patch]
        merged = list(dict.fromkeys([*before, *patch]))
        return _ordered(merged, patch, before, "")
    if not key:
        raise PatchError(
            f"cannot merge lists without merge key for {schema.short_name if isinstance(schema, Struct) else ''}"
        )
    base, additions = _apply_directives(before, patch, key)
    if additions is None:
        return base
    return _ordered(_merge_items(base, additions, key, schema), additions, base, key)


def _of_maps(*lists: list[Any]) -> bool:
    kinds = {type(item) for items in lists for item in items}
    if list in kinds:
        raise PatchError("lists of lists are not supported", 422, "Invalid", {})
    if len(kinds) > 1:
        raise PatchError(f"list element types are not identical: {go_text(list(lists))}")
    return dict in kinds


def _apply_directives(before: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any] | None]:
    """The list after deletions and what remains to be merged (None: the patch replaced the list)."""
    base, additions, replaced = list(before), [], False
    for item in patch:
        if DIRECTIVE not in item:
            additions.append(item)
            continue
        directive = item[DIRECTIVE]
        if directive == "delete":
            if key not in item:
                raise _no_key(item, key)
            base = [old for old in base if not (key in old and old[key] == item[key])]
        elif directive == "replace":
            replaced = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(directive, item)
    return (additions, None) if replaced else (base, additions)


def _merge_items(before: list[Any], patch: list[Any], key: str, schema: Schema) -> list[Any]:
    merged = list(before)
    for item in patch:
        if key not in item:
            raise _no_key(item, key)
        for index, old in enumerate(merged):
            if key in old and old[key] == item[key]:
                merged[index] = _merge_map(old, item, schema)
                break
        else:
            merged.append(item)
    return merged


def _identity(item: Any, key: str) -> Any:
    """What tells items apart: the value of the key (as text if it is no scalar, as Go prints it)."""
    if key and key not in item:
        raise _no_key(item, key)
    value = item[key] if key else item
    return go_text(value) if isinstance(value, dict | list) else value


def _ordered(merged: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """Items that `order` names in its order, the others in their former order, interleaved as they were before."""
    wanted = {_identity(item, key): index for index, item in reversed(list(enumerate(order)))}
    former = {_identity(item, key): index for index, item in reversed(list(enumerate(before)))}
    patched = sorted(
        (item for item in merged if _identity(item, key) in wanted), key=lambda item: wanted[_identity(item, key)]
    )
    others = sorted(
        (item for item in merged if _identity(item, key) not in wanted),
        key=lambda item: former.get(_identity(item, key), len(former)),
    )
    result: list[Any] = []
    while others and patched:
        left, right = former.get(_identity(others[0], key)), former.get(_identity(patched[0], key))
        take_other = left is not None and right is not None and left < right
        result.append((others if take_other else patched).pop(0))
    return result + others + patched


def _set_orders(result: Map, patch: Map, schema: Schema) -> None:
    """Carry out `$setElementOrder/<list>` together with the list's own patch."""
    for directive in [key for key in patch if key.startswith(ORDER)]:
        order = patch.pop(directive)
        if not isinstance(order, list):
            raise PatchError(f"expected a []interface {{}}, but received a {_go_type(order)}")
        name = _after(directive, ORDER, _BAD_ORDER)
        before, changes = result.get(name), patch.get(name)
        for value in (before, changes):
            if value is not None and not isinstance(value, list):
                raise PatchError(f"expected a []interface {{}}, but received a {_go_type(value)}")
        field, inner = _field(schema, name)
        key = field.merge_key if field else ""
        _check_order(changes or [], order, key)
        if before is None and changes is None:
            continue
        if changes is None:
            merged = list(before or [])
        elif before is None:
            merged = _clean(changes)[1]
        else:
            merged = _merge_list(before, changes, field, inner, deleting=False)
        patch.pop(name, None)
        if not merged and not order:
            result[name] = merged
            continue
        result[name] = _ordered(merged, order, before or [], key)


def _check_order(changes: list[Any], order: list[Any], key: str) -> None:
    """The patch's items must come in the order that the directive names."""
    remaining = [item for item in changes if not (isinstance(item, dict) and DIRECTIVE in item)]
    if not order or not changes:
        return
    position = 0
    for wanted in order:
        if position < len(remaining) and _identity(remaining[position], key) == _identity(wanted, key):
            position += 1
    if position < len(remaining):
        raise PatchError(
            f"The order in patch list:\n{go_text(changes)}\n doesn't match {ORDER} list:\n{go_text(order)}\n"
        )


def _go_type(value: Any) -> str:
    for kind, name in ((bool, "bool"), (str, "string"), (int, "int64"), (float, "float64"), (list, "[]interface {}")):
        if isinstance(value, kind):
            return name
    return "map[string]interface {}" if isinstance(value, dict) else "%!s(<nil>)"
