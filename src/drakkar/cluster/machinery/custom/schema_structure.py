"""Whether a schema of a definition is structural, and whether it uses only what Kubernetes lets it use.

First the structure (every field has a type, value rules only restrict what the structure has), sorted by their texts;
if that holds, the limits of OpenAPI in Kubernetes in the order of the document. Sources:
`apiextensions-apiserver/pkg/apiserver/schema/validation.go` and `pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from drakkar.api.fields import FieldError, forbidden, invalid, not_supported, required
from drakkar.cel.libraries.regex import compile_pattern
from drakkar.cel.values import Failure
from drakkar.cluster.machinery.custom.checks import check
from drakkar.cluster.machinery.custom.internal_schema import internal, set_fields
from drakkar.cluster.machinery.custom.structural import prune

__all__ = ["anywhere", "check_schema"]

Schema = Mapping[str, Any]
Errors = Iterator[FieldError]
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_LIST_TYPES: Final = ("atomic", "set", "map")
_MAP_TYPES: Final = ("atomic", "granular")
_META: Final = ("metadata", "kind", "apiVersion")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_WITHOUT_TYPE: Final = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
#: What a rule for values may not say itself, and how that is put.
_STRUCTURE: Final = (
    ("type", "must be empty to be structural"), ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"), ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"), ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)  # fmt: skip


def check_schema(schema: Schema, path: str, *, status: bool = False) -> list[FieldError]:
    """What is wrong with a schema apart from its rules in CEL. `status`: its `status` is looked at alone, too."""
    found = _check_root(schema, path) if status else []
    found += [forbidden(f"{path}.nullable", "nullable cannot be true at the root")] if schema.get("nullable") else []
    if not anywhere(schema, _beyond):
        # Go's maps have no order, so the server sorts by text.
        structure = sorted([*_invariants(schema, "root", path), *_complete(schema, schema, path, path)], key=str)
        found += structure or _defaults(schema, path, root=True)
    return found + list(_limits(schema, path, root=True, meta=False))


def _check_root(schema: Schema, path: str) -> list[FieldError]:
    """Beside a status subresource the root may only have what is not lost when the schema of the status is taken."""
    for name in set_fields(schema):
        if name == "Type" and schema.get("type") != "object":
            words = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            )
            return [invalid(f"{path}.type", schema["type"], words)]
        if name not in _AT_ROOT:
            words = f"only [{' '.join(_AT_ROOT)}] fields are allowed at the root of the schema"
            return [invalid(path, internal(schema), f"{words} if the status subresource is enabled")]
    return []


_AT_ROOT: Final = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum",
    "MaxLength", "MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items",
    "Properties", "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
)  # fmt: skip


def anywhere(schema: Schema, holds: Callable[[Schema], bool]) -> bool:
    """Whether something holds for a schema or for one inside it."""
    if holds(schema):
        return True
    items = schema.get("items")
    parts = [*items] if isinstance(items, list) else [items]
    parts += [schema.get(name) for name in ("additionalProperties", "additionalItems", "not")]
    for name in ("allOf", "anyOf", "oneOf"):
        parts += schema.get(name) or ()
    for name in ("properties", "patternProperties", "definitions", "dependencies"):
        parts += (schema.get(name) or {}).values()
    return any(anywhere(part, holds) for part in parts if isinstance(part, Mapping))


def _beyond(schema: Schema) -> bool:
    """Whether something is used that no structural schema can say; then nothing is said about its structure."""
    return any(schema.get(name) for name in (*_UNSUPPORTED, "$schema")) or isinstance(schema.get("items"), list)


def _invariants(schema: Schema, level: str, path: str) -> Errors:
    kind, items, extra = schema.get("type") or "", schema.get("items"), schema.get("additionalProperties")
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    embedded, loose = _is(schema, "embedded-resource"), _is(schema, "preserve-unknown-fields")
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        yield from _invariants(items, "item", f"{path}.items")
    for name, part in properties.items():
        yield from _invariants(part, "field", f"{path}.properties[{name}]")
    if extra is not None:
        if level == "root":
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(extra, Mapping):
            yield from _invariants(extra, "field", f"{path}.additionalProperties")
    if _is(schema, "int-or-string"):
        for other in ("preserve-unknown-fields", "embedded-resource"):
            if _is(schema, other):
                place = f"{path}.x-kubernetes-{other}"
                yield invalid(place, True, "must be false if x-kubernetes-int-or-string is true")
    yield from _values(schema, path, spare=True)
    if embedded and kind != "object":
        words = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(f"{path}.type", kind, words) if kind else required(f"{path}.type", words)
    elif not kind and not _is(schema, "int-or-string") and not loose:
        yield required(f"{path}.type", _WITHOUT_TYPE[level])
    if embedded and extra is not None:
        words = "must not be used if x-kubernetes-embedded-resource is set"
        yield forbidden(f"{path}.additionalProperties", words)
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    yield from _metadata(schema, level, path)
    if embedded and not loose and not properties:
        words = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", words)


def _metadata(schema: Schema, level: str, path: str) -> Errors:
    properties = schema.get("properties") or {}
    if level != "root" and not _is(schema, "embedded-resource"):
        return
    for name in ("kind", "apiVersion"):
        if name in properties and properties[name].get("type") != "string":
            yield invalid(f"{path}.properties[{name}].type", properties[name].get("type") or "", "must be string")
    if "metadata" not in properties:
        return
    meta, place = properties["metadata"], f"{path}.properties[metadata]"
    if meta.get("type") != "object":
        yield invalid(f"{place}.type", meta.get("type") or "", "must be object")
    if level == "root" and (
        set(meta.get("properties") or ()) - {"name", "generateName"} or set(meta) - {"type", "properties", "default"}
    ):
        words = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(place, words)


def _values(schema: Schema, path: str, *, spare: bool) -> Errors:
    """The rules for values; `spare`: the two forms of an integer or a text are no rules."""
    if not (spare and schema.get("anyOf") == _INT_OR_STRING):
        for index, part in enumerate(schema.get("anyOf") or ()):
            yield from _nested(part, f"{path}.anyOf[{index}]")
    for index, part in enumerate(schema.get("allOf") or ()):
        first = spare and not index and part.get("anyOf") == _INT_OR_STRING
        yield from _nested({**part, "anyOf": None} if first else part, f"{path}.allOf[{index}]")
    for index, part in enumerate(schema.get("oneOf") or ()):
        yield from _nested(part, f"{path}.oneOf[{index}]")
    if schema.get("not") is not None:
        yield from _nested(schema["not"], f"{path}.not")
    problem = compile_pattern(schema.get("pattern") or "")
    if isinstance(problem, Failure):
        words = f"must be a valid regular expression, but isn't: {problem.message}"
        yield invalid(f"{path}.pattern", schema["pattern"], words)


def _nested(schema: Schema, path: str) -> Errors:
    yield from _values(schema, path, spare=False)
    if isinstance(schema.get("items"), Mapping):
        yield from _nested(schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        yield from _nested(part, f"{path}.properties[{name}]")
    for name, words in _STRUCTURE:
        value = schema.get(name)
        if value if "empty" in words or "false" in words else value is not None:
            yield forbidden(f"{path}.{name}", words)
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _complete(rules: Schema, structure: Schema, path: str, at: str) -> Errors:
    """What rules at the root speak of must be in the structure; `at` is the place in the rules."""
    parts: list[tuple[str, Schema]] = [("not", rules["not"])] if rules.get("not") is not None else []
    for name in ("allOf", "anyOf", "oneOf"):
        parts += [(f"{name}[{index}]", part) for index, part in enumerate(rules.get(name) or ())]
    for name, part in parts:
        yield from _counterparts(part, structure, path, f"{at}.{name}")


def _counterparts(rules: Schema, structure: Schema, path: str, at: str) -> Errors:
    yield from _complete(rules, structure, path, at)
    pairs = [
        (f"properties[{name}]", part, (structure.get("properties") or {}).get(name))
        for name, part in (rules.get("properties") or {}).items()
    ]
    if isinstance(rules.get("items"), Mapping):
        pairs.append(("items", rules["items"], structure.get("items")))
    for name, part, counterpart in pairs:
        if counterpart is None:
            yield required(f"{path}.{name}", f"because it is defined in {at}.{name}")
        else:
            yield from _counterparts(part, counterpart, f"{path}.{name}", f"{at}.{name}")


def _defaults(schema: Schema, path: str, *, meta: bool = False, root: bool = False) -> Errors:
    """Defaults must be what the schema allows; those inside metadata are looked at as a whole elsewhere."""
    embedded = root or _is(schema, "embedded-resource")
    meta = meta and not embedded
    if schema.get("default") is not None and not meta:
        value, gone = schema["default"], list[str]()
        prune(value, dict(schema), gone.append, root=embedded)
        if gone:
            yield invalid(f"{path}.default", value, "must not have unknown fields")
        for error in check(value, dict(schema)):
            field = "" if error.field == _NOWHERE else error.field
            detail = error.detail.removeprefix(_NOWHERE) if error.field == _NOWHERE else error.detail
            yield replace(error, field=f"{path}.default.{field}" if field else f"{path}.default", detail=detail)
    if isinstance(schema.get("items"), Mapping):
        yield from _defaults(schema["items"], f"{path}.items", meta=meta)
    for name, part in (schema.get("properties") or {}).items():
        yield from _defaults(part, f"{path}.properties[{name}]", meta=meta or (embedded and name in _META))


#: The name of what has no name, in complaints about whole objects.
_NOWHERE: Final = "<nil>"


def _limits(schema: Schema, path: str, *, root: bool, meta: bool, default: str = "") -> Errors:
    """`meta`: inside an object's metadata. `default`: why no default may stand here."""
    yield from _supported(schema, path, meta=meta, default=default)
    if schema.get("uniqueItems"):
        words = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", words)
    extra, properties, items = schema.get("additionalProperties"), schema.get("properties") or {}, schema.get("items")
    if extra is not None and properties and extra is not True:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if isinstance(extra, Mapping):
        why = "inside additionalProperties applying to object metadata" if meta else default
        yield from _limits(extra, f"{path}.additionalProperties", root=False, meta=meta, default=why)
    for name, part in properties.items():
        inside = (root or _is(schema, "embedded-resource")) and name in _META
        why = f"in top-level {name}" if inside and root else default
        yield from _limits(part, f"{path}.properties[{name}]", root=False, meta=meta or inside, default=why)
    if schema.get("not") is not None:
        yield from _limits(schema["not"], f"{path}.not", root=False, meta=meta, default=default)
    for name in ("allOf", "oneOf", "anyOf"):
        for index, part in enumerate(schema.get(name) or ()):
            yield from _limits(part, f"{path}.{name}[{index}]", root=False, meta=meta, default=default)
    if isinstance(items, Mapping):
        yield from _limits(items, f"{path}.items", root=False, meta=meta, default=default)
    yield from _extensions(schema, path)


def _supported(schema: Schema, path: str, *, meta: bool, default: str) -> Errors:
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if default and "default" in schema:
        yield forbidden(f"{path}.default", f"must not be set {default}")
    for name in _UNSUPPORTED:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if meta and _is(schema, "embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")


def _extensions(schema: Schema, path: str) -> Errors:
    kind, items = schema.get("type") or "", schema.get("items")
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    for name, value, wanted in (("map-type", map_type, "object"), ("list-type", list_type, "array")):
        if value is not None and kind != wanted:
            words = f"must be {wanted} if x-kubernetes-{name} is specified"
            yield invalid(f"{path}.type", kind, words) if kind else required(f"{path}.type", words)
        if value is not None and kind == wanted and name == "list-type" and value == "set":
            yield from _set_items(items if isinstance(items, Mapping) else {}, f"{path}.items")
        accepted = _MAP_TYPES if name == "map-type" else _LIST_TYPES
        if value is not None and value not in accepted:
            yield not_supported(f"{path}.x-kubernetes-{name}", value, accepted)
    if schema.get("x-kubernetes-list-map-keys") and list_type != "map":
        words, place = "must be map if x-kubernetes-list-map-keys is non-empty", f"{path}.x-kubernetes-list-type"
        yield required(place, words) if list_type is None else invalid(place, list_type, words)
    if list_type == "map":
        yield from _map_items(schema, path)
    if list_type in ("set", "map") and isinstance(items, Mapping):
        yield from _not_null(schema, items, path)


def _set_items(items: Schema, path: str) -> Errors:
    words = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid(f"{path}.x-kubernetes-list-type", list_type, words)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield invalid(f"{path}.x-kubernetes-map-type", list_type, words)


def _map_items(schema: Schema, path: str) -> Errors:
    keys, items, place = (
        schema.get("x-kubernetes-list-map-keys") or [],
        schema.get("items"),
        f"{path}.x-kubernetes-list-map-keys",
    )
    if not keys:
        yield required(place, "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    if not isinstance(items, Mapping):
        return
    kind = items.get("type") or ""
    if kind != "object":
        yield invalid(f"{path}.items.type", kind, "must be object if parent array's x-kubernetes-list-type is map")
        return
    for index, key in enumerate(keys):
        part = (items.get("properties") or {}).get(key)
        if part is None:
            yield invalid(place, keys, "entries must all be names of item properties")
        elif part.get("type") in ("array", "object"):
            words = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", kind, words)
        if key in keys[:index]:
            yield invalid(place, keys, "must not contain duplicate entries")


def _not_null(schema: Schema, items: Schema, path: str) -> Errors:
    list_type = schema["x-kubernetes-list-type"]
    if items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    for key in (schema.get("x-kubernetes-list-map-keys") or ()) if list_type == "map" else ():
        part = (items.get("properties") or {}).get(key)
        if part is None:
            continue
        place, words = f"{path}.items.properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if key not in (items.get("required") or ()) and part.get("default") is None:
            yield required(f"{place}.default", f"{words} must have a default or be a required property")
        if part.get("nullable"):
            yield forbidden(f"{place}.nullable", f"{words} cannot be nullable")


def _is(schema: Schema, extension: str) -> bool:
    return bool(schema.get(f"x-kubernetes-{extension}"))
