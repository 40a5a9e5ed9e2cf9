"""Whether the rules in a definition's schema can be used: they compile, their paths exist, and they cannot cost too
much.

What a rule costs is estimated for the worst object that the schema allows, times how often the place of the rule can
occur in it. Source: `apiextensions-apiserver/pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_many
from drakkar.cel import CelError, Program
from drakkar.cluster.machinery.custom.declarations import REQUEST_BYTES, Declaration, Schema, declared, escaped
from drakkar.cluster.machinery.custom.internal_schema import internal_rule
from drakkar.cluster.machinery.custom.rules import Rule, compile_rules

__all__ = ["check_schema_rules", "check_selectable_fields", "field_path_exists"]

Found = list[FieldError]
EXPRESSION_LIMIT: Final = 10_000_000
DEFINITION_LIMIT: Final = 100_000_000
_MOST: Final = (1 << 64) - 1
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_BREAKS: Final = re.compile("[\n\r]")
_SHOWN_EXPENSIVE: Final = 4


def check_schema_rules(schema: Schema, path: str) -> Found:
    """What is wrong with the rules anywhere in a schema."""
    walk = _Walk()
    walk.visit(schema, path, declared(schema, root=True), 1, "")
    found = walk.found
    if walk.total > DEFINITION_LIMIT:
        told = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        found += [forbidden(place, told) for _, place in sorted(walk.costs, key=lambda one: -one[0])[:_SHOWN_EXPENSIVE]]
        words = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        found.append(forbidden(path, _too_dear(words, walk.total, DEFINITION_LIMIT)))
    return found


class _Walk:
    def __init__(self) -> None:
        self.found: Found = []
        self.total = 0
        self.costs: list[tuple[int, str]] = []

    def visit(
        self, schema: Schema, path: str, declaration: Declaration | None, cardinality: int | None, loose: str
    ) -> None:
        """`cardinality`: how often the place can occur, None if nothing limits it. `loose`: the first place on the way
        whose items cannot be recognised after a change."""
        most = _most_inside(schema)
        inner = None if cardinality is None or most is None else min(_MOST, cardinality * most)
        extra, items = schema.get("additionalProperties"), schema.get("items")
        of = declaration.of if declaration is not None else None
        if isinstance(extra, dict):
            self.visit(extra, f"{path}.additionalProperties", of or declared(extra), inner, loose)
        for name, part in (schema.get("properties") or {}).items():
            identifier = escaped(name)
            known = declaration.fields.get(identifier) if declaration is not None and identifier else None
            place = f"{path}.properties[{name}]"
            self.visit(part, place, known or declared(part, name="selfType"), inner, loose)
        if isinstance(items, dict):
            apart = loose or ("" if schema.get("x-kubernetes-list-type") == "map" else path)
            self.visit(items, f"{path}.items", of or declared(items), inner, apart)
        self._rules(schema, path, declaration, cardinality, loose)

    def _rules(
        self, schema: Schema, path: str, declaration: Declaration | None, cardinality: int | None, loose: str
    ) -> None:
        specs = schema.get("x-kubernetes-validations") or ()
        base = f"{path}.x-kubernetes-validations"
        before = len(self.found)
        for index, spec in enumerate(specs):
            self._written(spec, schema, f"{base}[{index}]")
        if not specs or len(self.found) > before or declaration is None:
            return
        times = REQUEST_BYTES // (declaration.smallest + 1) if cardinality is None else cardinality
        for index, rule in enumerate(compile_rules(schema, schema, declaration)):
            self._compiled(rule, f"{base}[{index}]", times, loose)

    def _written(self, spec: Any, schema: Schema, path: str) -> None:
        rule, message = str(spec.get("rule") or ""), str(spec.get("message") or "")
        found = self.found
        if not rule.strip():
            found.append(required(f"{path}.rule", "rule is not specified"))
        elif message and not message.strip():
            found.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
        elif _BREAKS.search(message.strip()):
            found.append(invalid(f"{path}.message", message, "must not contain line breaks"))
        elif _BREAKS.search(rule.strip()) and not message.strip():
            found.append(required(f"{path}.message", "message must be specified if rule contains line breaks"))
        expression = str(spec.get("messageExpression") or "")
        if expression and not expression.strip():
            found.append(required(f"{path}.messageExpression", "messageExpression must be non-empty if specified"))
        reason = spec.get("reason")
        if reason is not None and reason not in _REASONS:
            found.append(not_supported(f"{path}.reason", reason, _REASONS))
        place = str(spec.get("fieldPath") or "")
        if place and not place.strip():
            found.append(invalid(f"{path}.fieldPath", place, "must be non-empty if specified"))
        if _BREAKS.search(place):
            found.append(invalid(f"{path}.fieldPath", place, "must not contain line breaks"))
        if place and not field_path_exists(schema, place):
            found.append(invalid(f"{path}.fieldPath", place, "must be a valid path"))

    def _compiled(self, rule: Rule, path: str, times: int, loose: str) -> None:
        if isinstance(rule.program, Program):
            self._price(min(_MOST, rule.program.estimated_cost * times), f"{path}.rule", "estimated rule cost")
        elif isinstance(rule.program, CelError):
            self.found.append(invalid(f"{path}.rule", internal_rule(rule.spec), str(rule.program)))
        if isinstance(rule.message, CelError):
            self.found.append(invalid(f"{path}.messageExpression", internal_rule(rule.spec), str(rule.message)))
        elif rule.message is not None:
            self._price(rule.message.estimated_cost, f"{path}.messageExpression", "estimated messageExpression cost")
        if rule.uses_old and loose:
            told = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {loose}"
            self.found.append(invalid(f"{path}.rule", rule.spec.get("rule"), told))
        elif not rule.uses_old and rule.spec.get("optionalOldSelf") is not None:
            told = "may not be set if oldSelf is not used in rule"
            self.found.append(invalid(f"{path}.optionalOldSelf", rule.spec["optionalOldSelf"], told))

    def _price(self, cost: int, path: str, words: str) -> None:
        if cost > EXPRESSION_LIMIT:
            self.found.append(forbidden(path, _too_dear(words, cost, EXPRESSION_LIMIT)))
        self.total = min(_MOST, self.total + cost)
        if cost >= DEFINITION_LIMIT // 100:
            self.costs.append((cost, path))


def _most_inside(schema: Schema) -> int | None:
    """How often what is inside can occur in one value; None if nothing limits it."""
    if schema.get("type") == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    elif schema.get("type") == "array":
        limit = schema.get("maxItems")
    else:
        return 1
    return None if limit is None else max(0, int(limit))


def _too_dear(words: str, cost: int, limit: int) -> str:
    factor = cost / limit
    times = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{words} exceeds budget by factor of {times} (try simplifying the rule, or adding maxItems, maxProperties, and"
        " maxLength where arrays, maps, and strings are declared)"
    )


_TOKEN: Final = re.compile(r"[.\[\]]|'(?:[^'\\]|\\.)*'|[^.\[\]]+")


class PathProblem(Exception):
    """Why a path names no part of a schema."""


def field_at(schema: Schema, path: str, *, arrays: bool = True) -> tuple[list[str], Schema]:
    """The names on a path such as `.spec.ports['http']`, and the schema of what it ends at. Raises `PathProblem`."""
    tokens = iter(_TOKEN.findall(path))
    names: list[str] = []
    node = schema
    for mark in tokens:
        if mark == "[":
            if not arrays:
                raise PathProblem("array notation is not allowed")
            name = next(tokens, None)
            if name is None:
                raise PathProblem("unexpected end of JSON path")
            if not name.startswith("'") or not name.endswith("'") or len(name) < 2:
                raise PathProblem(f"expected single quoted string but got {name}")
            name = name[1:-1].replace("\\'", "'").replace("\\\\", "\\")
            node = _inside(node, name)
            close = next(tokens, None)
            if close != "]":
                raise PathProblem("unexpected end of JSON path" if close is None else f"expected ] but got {close}")
        elif mark == ".":
            name = next(tokens, None)
            if name is None:
                raise PathProblem("unexpected end of JSON path")
            node = _inside(node, name)
        else:
            raise PathProblem(f"expected [ or . but got: {mark}")
        names.append(name)
    return names, node


def _inside(node: Schema, name: str) -> Schema:
    properties, extra = node.get("properties"), node.get("additionalProperties")
    found: Any = properties.get(name) if properties is not None else extra
    if not isinstance(found, dict):
        raise PathProblem("does not refer to a valid field")
    return found


def field_path_exists(schema: Schema, path: str) -> bool:
    """Whether a path names a part of what the schema describes."""
    try:
        return bool(field_at(schema, path)[0])
    except PathProblem:
        return False


def check_selectable_fields(fields: Any, schema: Schema, path: str) -> Found:
    """The fields that lists of a custom kind may be narrowed by (KEP-4358)."""
    found: Found = []
    seen: set[tuple[str, ...]] = set()
    for index, one in enumerate(fields):
        place, text = f"{path}[{index}].jsonPath", str(one.get("jsonPath") or "")
        if not text:
            found.append(required(place))
            continue
        try:
            names, there = field_at(schema, text, arrays=False)
        except PathProblem as problem:
            found.append(invalid(place, text, f"is an invalid path: {problem}"))
            continue
        if names[:1] == ["metadata"]:
            found.append(invalid(place, text, "must not point to fields in metadata"))
        if there.get("type") not in ("string", "boolean", "integer"):
            told = "must point to a field of type string, boolean or integer. Enum string fields and strings with"
            found.append(invalid(place, text, f"{told} formats are allowed."))
        if tuple(names) in seen:
            found.append(duplicate(place, text))
        seen.add(tuple(names))
    if len(seen) > _MOST_SELECTABLE:
        found.append(too_many(path, len(seen), _MOST_SELECTABLE))
    return found


_MOST_SELECTABLE: Final = 8
