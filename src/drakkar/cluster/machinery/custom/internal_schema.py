"""A schema as a server prints its internal type: Go's field names in Go's order, every field written.

Source: `apiextensions-apiserver/pkg/apis/apiextensions/types_jsonschema.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["internal", "internal_rule", "set_fields"]

Schema = Mapping[str, Any]
_EXTENSION: Final = "x-kubernetes-"
#: Name in Go, name in JSON ("" if it follows from Go's), zero value.
_FIELDS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("ID", "id", ""), ("Schema", "$schema", ""), ("Ref", "$ref", None), ("Description", "", ""), ("Type", "", ""),
    ("Nullable", "", False), ("Format", "", ""), ("Title", "", ""), ("Default", "", None), ("Maximum", "", None),
    ("ExclusiveMaximum", "", False), ("Minimum", "", None), ("ExclusiveMinimum", "", False), ("MaxLength", "", None),
    ("MinLength", "", None), ("Pattern", "", ""), ("MaxItems", "", None), ("MinItems", "", None),
    ("UniqueItems", "", False), ("MultipleOf", "", None), ("Enum", "", None), ("MaxProperties", "", None),
    ("MinProperties", "", None), ("Required", "", None), ("Items", "", None), ("AllOf", "", None), ("OneOf", "", None),
    ("AnyOf", "", None), ("Not", "", None), ("Properties", "", None), ("AdditionalProperties", "", None),
    ("PatternProperties", "", None), ("Dependencies", "", None), ("AdditionalItems", "", None),
    ("Definitions", "", None), ("ExternalDocs", "", None), ("Example", "", None),
    ("XPreserveUnknownFields", f"{_EXTENSION}preserve-unknown-fields", None),
    ("XEmbeddedResource", f"{_EXTENSION}embedded-resource", False),
    ("XIntOrString", f"{_EXTENSION}int-or-string", False), ("XListMapKeys", f"{_EXTENSION}list-map-keys", None),
    ("XListType", f"{_EXTENSION}list-type", None), ("XMapType", f"{_EXTENSION}map-type", None),
    ("XValidations", f"{_EXTENSION}validations", None),
)  # fmt: skip
_RULE: Final = (
    ("Rule", "rule", ""), ("Message", "message", ""), ("MessageExpression", "messageExpression", ""),
    ("Reason", "reason", None), ("FieldPath", "fieldPath", ""), ("OptionalOldSelf", "optionalOldSelf", None),
)  # fmt: skip


def set_fields(schema: Schema) -> list[str]:
    """Go's names of the fields that are set, in Go's order."""
    return [shown for shown, name, zero in _FIELDS if _given(schema, shown, name, zero) != zero]


def internal(schema: Schema) -> dict[str, Any]:
    """The schema in Go's names."""
    return {shown: _value(shown, _given(schema, shown, name, zero)) for shown, name, zero in _FIELDS}


def _given(schema: Schema, shown: str, name: str, zero: Any) -> Any:
    value = schema.get(name or shown[0].lower() + shown[1:])
    return zero if value is None or (value == [] and shown in _COLLECTIONS) else value


_COLLECTIONS: Final = ("AllOf", "OneOf", "AnyOf", "Required", "XListMapKeys", "XValidations", "Enum")
_LISTS: Final = ("AllOf", "OneOf", "AnyOf")
_MAPS: Final = ("Properties", "PatternProperties", "Definitions")


def _value(shown: str, value: Any) -> Any:
    if value is None:
        return None
    if shown in _LISTS:
        return [internal(part) for part in value]
    if shown in _MAPS:
        return {name: internal(value[name]) for name in sorted(value)}
    if shown == "Not":
        return internal(value)
    if shown == "Items":
        several = isinstance(value, list)
        return {
            "Schema": None if several else internal(value),
            "JSONSchemas": [internal(part) for part in value] if several else None,
        }
    if shown in ("AdditionalProperties", "AdditionalItems"):
        inner = internal(value) if isinstance(value, Mapping) else None
        return {"Allows": value is not False, "Schema": inner}
    if shown == "ExternalDocs":
        return {"Description": value.get("description") or "", "URL": value.get("url") or ""}
    if shown == "XValidations":
        return [internal_rule(rule) for rule in value]
    if shown == "Dependencies":
        return {name: _dependency(value[name]) for name in sorted(value)}
    return value


def internal_rule(rule: Schema) -> dict[str, Any]:
    """A rule in CEL in Go's names."""
    return {field: rule.get(name, zero) for field, name, zero in _RULE}


def _dependency(value: Any) -> dict[str, Any]:
    is_schema = isinstance(value, Mapping)
    return {"Schema": internal(value) if is_schema else None, "Property": None if is_schema else value}
