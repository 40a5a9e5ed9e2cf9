"""The rules of a schema (`x-kubernetes-validations`): compiled with it, evaluated when objects are written.

A rule sees the value that it stands at as `self` and, if there is one, the value before as `oldSelf`. One that uses
`oldSelf` holds for changes only, unless it takes it as an optional. What fails but has not changed is a warning
(ratcheting, KEP-4008). Words are those of `apiextensions-apiserver/pkg/apiserver/schema/cel`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, quote, required
from drakkar.cel import CelError, Environment, Program, types
from drakkar.cel.environment import Limits
from drakkar.cel.expressions import IdentNode, Node, nodes_of
from drakkar.cel.libraries.catalog import libraries_for
from drakkar.cel.values import NONE, Optional
from drakkar.cluster.machinery.custom.declarations import Declaration, Schema, declared, escaped, value_of
from drakkar.cluster.machinery.custom.items import correlated, key_of
from drakkar.cluster.machinery.expressions import BUDGET, CALL_LIMIT, OUT_OF_BUDGET, VERSION, proper_message

__all__ = ["Rule", "SchemaRules", "compile_rules", "rules_of"]

_OMITTED: Final = ("object", "array")


@dataclass(slots=True)
class Rule:
    """One rule, compiled; `program` and `message` are None where there is nothing to compile."""

    spec: Mapping[str, Any]
    program: Program | CelError | None
    message: Program | CelError | None
    uses_old: bool
    path: str

    @property
    def optional(self) -> bool:
        return bool(self.spec.get("optionalOldSelf"))

    @property
    def told(self) -> str:
        """The rule in errors: its message, or its text."""
        return str(self.spec.get("message") or self.spec.get("rule") or "").strip()


@dataclass(slots=True)
class SchemaRules:
    """The rules at and below one place of a schema."""

    schema: Schema
    root: bool
    own: list[Rule]
    properties: dict[str, SchemaRules] = field(default_factory=dict)
    values: SchemaRules | None = None
    items: SchemaRules | None = None
    all_of: list[SchemaRules] = field(default_factory=list)


def rules_of(schema: Schema) -> SchemaRules | None:
    """The rules of a whole schema; None if it has none."""
    if not _has_rules(schema):
        return None
    return _rules(schema, schema, declared(schema, root=True), root=True)


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if schema.get("x-kubernetes-validations"):
        return True
    parts = [schema.get("items"), schema.get("additionalProperties"), *(schema.get("properties") or {}).values()]
    return any(_has_rules(part) for part in (*parts, *(schema.get("allOf") or ())))


def _rules(rules: Schema, node: Schema, declaration: Declaration | None, *, root: bool) -> SchemaRules | None:
    own = compile_rules(rules, node, declaration) if declaration is not None else []
    made = SchemaRules(node, root, own)
    inner = declaration.of if declaration is not None else None
    for name, part in (rules.get("properties") or {}).items():
        there = (node.get("properties") or {}).get(name)
        if there is None:
            continue
        identifier = escaped(name)
        known = declaration.fields.get(identifier) if declaration is not None and identifier else None
        if known is None and identifier is None:
            known = declared(there)
        found = _rules(part, there, known, root=bool(there.get("x-kubernetes-embedded-resource")))
        if found is not None and known is not None:
            made.properties[name] = found
    for name in ("items", "additionalProperties"):
        part, there = rules.get(name), node.get(name)
        if isinstance(part, dict) and isinstance(there, dict):
            found = _rules(part, there, inner, root=bool(there.get("x-kubernetes-embedded-resource")))
            if name == "items":
                made.items = found
            else:
                made.values = found
    for part in rules.get("allOf") or ():
        found = _rules(part, node, declaration, root=root)
        if found is not None:
            made.all_of.append(found)
    empty = not (own or made.properties or made.values or made.items or made.all_of)
    return None if empty else made


def compile_rules(rules: Schema, node: Schema, declaration: Declaration) -> list[Rule]:
    """The rules that stand at one place, compiled against its declaration."""
    made = []
    environments: dict[bool, Environment] = {}
    for spec in rules.get("x-kubernetes-validations") or ():
        optional = bool(spec.get("optionalOldSelf"))
        if optional not in environments:
            environments[optional] = _environment(declaration, optional)
        made.append(_compiled(spec, node, environments[optional]))
    return made


def _environment(declaration: Declaration, optional: bool) -> Environment:
    old = types.optional_of(declaration.type) if optional else declaration.type
    sizes = declaration.sizes()
    return Environment(
        libraries_for(VERSION, includes=True),
        {"self": declaration.type, "oldSelf": old},
        structs=declaration.structs(),
        limits=_Sizes(sizes),
    )


class _Sizes(Limits):
    """Sizes by path below the root, whatever the path begins with: upstream's estimator does not look at that."""

    def size_at(self, path: tuple[str, ...]) -> int | None:
        return Limits({"self": self.sizes}).size_at(("self", *path[1:])) if path else None


def _compiled(spec: Mapping[str, Any], node: Schema, environment: Environment) -> Rule:
    text = str(spec.get("rule") or "")
    program: Program | CelError | None = None
    message: Program | CelError | None = None
    uses_old = False
    if text.strip():
        program = _program(environment, text, types.BOOL, "cel expression must evaluate to a bool", "")
        if isinstance(program, Program):
            uses_old = _names(program.root, "oldSelf")
            if spec.get("messageExpression"):
                words = "messageExpression must evaluate to a string"
                message = _program(
                    environment, str(spec["messageExpression"]), types.STRING, words, "messageExpression "
                )
    return Rule(spec, program, message, uses_old, str(spec.get("fieldPath") or "").removeprefix("."))


def _program(environment: Environment, text: str, wanted: types.Type, words: str, prefix: str) -> Program | CelError:
    try:
        program = environment.compile(text)
    except CelError as error:
        return CelError(f"{prefix}{error}", error.kind)
    return program if program.type is wanted else CelError(words, "compile")


def _names(root: Node, name: str) -> bool:
    """Whether an expression names a variable anywhere (one that a macro declared may hide it: as upstream)."""
    return any(isinstance(node, IdentNode) and node.name.removeprefix(".") == name for node in nodes_of(root))


# --- evaluation -----------------------------------------------------------------------------------------------------


class _Spent(Exception):
    """The budget is spent: no further rules are run."""


class Judgement:
    """One object against the rules of its schema: `errors`, and `warnings` for what was wrong before already."""

    def __init__(self, rules: SchemaRules, obj: Any, old: Any = None) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self._left = BUDGET
        try:
            self._visit(rules, obj, old, "", same=old is not None and obj == old)
        except _Spent:
            pass

    def _visit(self, rules: SchemaRules, obj: Any, old: Any, path: str, *, same: bool) -> None:
        """`same`: this value, or one around it, is what it was."""
        if obj is None:
            return
        if rules.own:
            self._judge(rules, obj, old, path, same=same)
        for part in rules.all_of:
            self._visit(part, obj, old, path, same=same)
        if isinstance(obj, list):
            if rules.items is not None:
                before = correlated(rules.schema, old)
                for index, item in enumerate(obj):
                    known = before.get(key_of(rules.schema, item)) if before else None
                    unchanged = same or (known is not None and known == item) or _same_place(old, index, item)
                    self._visit(rules.items, item, known, f"{path}[{index}]", same=unchanged)
        elif isinstance(obj, dict):
            earlier = old if isinstance(old, dict) else {}
            for inner, parts in self._parts(rules, obj):
                name, place = parts
                known = earlier.get(name)
                unchanged = same or (name in earlier and known == obj[name])
                self._visit(
                    inner, obj[name], known, f"{path}{place}" if path else place.removeprefix("."), same=unchanged
                )

    def _parts(self, rules: SchemaRules, obj: dict[str, Any]) -> Iterator[tuple[SchemaRules, tuple[str, str]]]:
        if rules.values is not None:
            for name in sorted(obj):
                yield rules.values, (name, f"[{name}]")
        for name in sorted(obj):
            if name in rules.properties:
                yield rules.properties[name], (name, f".{name}")

    def _judge(self, rules: SchemaRules, obj: Any, old: Any, path: str, *, same: bool) -> None:
        kind = str(rules.schema.get("type") or "")
        if self._left <= 0:
            self._stop(path, kind, OUT_OF_BUDGET)
        current = value_of(obj, rules.schema, root=rules.root)
        before = None if old is None else value_of(old, rules.schema, root=rules.root)
        plain = {"self": current, "oldSelf": before}
        optional = {"self": current, "oldSelf": NONE if old is None else Optional(before)}
        for rule in rules.own:
            if isinstance(rule.program, CelError):
                self.errors.append(invalid(_shown(path), kind, f"rule compile error: {rule.program}"))
                continue
            if rule.program is None or (rule.uses_old and old is None and not rule.optional):
                continue
            variables = optional if rule.optional else plain
            holds = self._holds(rule, variables, path, kind)
            if holds is False:
                self._refuse(rule, variables, rules.schema, obj, path, same=same)

    def _holds(self, rule: Rule, variables: dict[str, Any], path: str, kind: str) -> bool | None:
        """Whether the rule holds; None if that is told already."""
        assert isinstance(rule.program, Program)
        try:
            evaluation = rule.program.evaluate(variables, cost_limit=CALL_LIMIT)
        except CelError as error:
            if error.kind == "cost":
                words = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: "
                self._stop(path, kind, words + rule.told)
            self._spend(error.cost, path, kind)
            text = f"{error} evaluating rule: {rule.told}"
            if str(error).startswith("no such overload"):
                words = "call arguments did not match a supported operator, function or macro signature for rule:"
                text = f"'{error}': {words} {rule.told}"
            self.errors.append(invalid(_shown(path), kind, text))
            return None
        self._spend(evaluation.cost, path, kind)
        return evaluation.value is True

    def _spend(self, cost: int, path: str, kind: str) -> None:
        if cost > self._left:
            self._stop(path, kind, OUT_OF_BUDGET)
        self._left -= cost

    def _stop(self, path: str, kind: str, why: str) -> None:
        self.errors.append(invalid(_shown(path), kind, why))
        raise _Spent

    def _refuse(
        self, rule: Rule, variables: dict[str, Any], schema: Schema, obj: Any, path: str, *, same: bool
    ) -> None:
        place = f"{path}.{rule.path}" if rule.path and path else rule.path or path
        detail = self._message(rule, variables, place, schema)
        value = _OMIT if schema.get("type") in _OMITTED else obj
        error = _error(_shown(place), value, detail, str(rule.spec.get("reason") or ""))
        if same and not rule.uses_old:
            self.warnings.append(str(error))
        else:
            self.errors.append(error)

    def _message(self, rule: Rule, variables: dict[str, Any], place: str, schema: Schema) -> str:
        written = str(rule.spec.get("message") or "").strip() or f"failed rule: {rule.told}"
        if not isinstance(rule.message, Program):
            return written
        source = str(rule.spec.get("messageExpression"))
        try:
            evaluation = rule.message.evaluate(variables, cost_limit=CALL_LIMIT)
            cost, text = evaluation.cost, evaluation.value
        except CelError as error:
            if error.kind == "cost":
                words = "no further validation rules will be run due to call cost exceeds limit for messageExpression: "
                self._stop(place, str(schema.get("type") or ""), words + quote(source))
            cost, text = error.cost, None
        if cost > self._left:
            words = "messageExpression evaluation failed due to running out of cost budget, no further validation rules"
            self._stop(place, str(schema.get("type") or ""), f"{words} will be run")
        self._left -= cost
        return proper_message(text) or written


class _Omitted:
    """Stands for a value that is not shown."""


_OMIT: Final = _Omitted()


def _error(path: str, value: Any, detail: str, reason: str) -> FieldError:
    if reason == "FieldValueForbidden":
        return forbidden(path, detail)
    if reason == "FieldValueRequired":
        return required(path, detail)
    if reason == "FieldValueDuplicate":
        return duplicate(path, None if value is _OMIT else value)
    if value is _OMIT:
        return FieldError("FieldValueInvalid", path, detail, omitted=True)
    return invalid(path, value, detail)


def _shown(path: str) -> str:
    return path or "<nil>"


def _same_place(old: Any, index: int, item: Any) -> bool:
    return isinstance(old, list) and item in old[index : index + 1]
