"""Schemas with rules that nobody writes on purpose; good ones are in `tests/conformance/http/custom-rules.yaml`."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.cel.environment import Environment
from drakkar.cluster.machinery.custom.rules import Judgement, rules_of
from drakkar.cluster.machinery.custom.schema_rules import check_schema_rules
from drakkar.cluster.machinery.custom.written import check_written
from drakkar.cluster.machinery.strictness import DecodeError


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ([], "array into Go struct field CustomResourceValidation.s of type v1.JSONSchemaProps"),
        ({"properties": []}, "array into Go struct field JSONSchemaProps.s.properties of type map[string]"),
        ({"properties": {"a": 1}}, "number into Go struct field JSONSchemaProps.s.properties of type v1.JSON"),
        ({"type": ["string"]}, "array into Go struct field JSONSchemaProps.s.type of type string"),
        ({"maxLength": "1"}, "string into Go struct field JSONSchemaProps.s.maxLength of type int64"),
        ({"maxLength": True}, "bool into Go struct field JSONSchemaProps.s.maxLength of type int64"),
        ({"enum": {}}, "object into Go struct field JSONSchemaProps.s.enum of type []v1.JSON"),
        ({"required": [1]}, "number into Go struct field JSONSchemaProps.s.required of type string"),
        ({"allOf": {}}, "object into Go struct field JSONSchemaProps.s.allOf of type []v1.JSONSchemaProps"),
        ({"items": {"not": 3}}, "number into Go struct field JSONSchemaProps.s.items.not of type v1.JSONSchemaProps"),
        ({"x-kubernetes-validations": "no"}, "x-kubernetes-validations of type v1.ValidationRules"),
        ({"x-kubernetes-validations": [1]}, "x-kubernetes-validations of type v1.ValidationRule"),
        ({"x-kubernetes-validations": [{"rule": 5}]}, "x-kubernetes-validations.rule of type string"),
    ],
)
def test_what_is_no_schema_is_not_decoded(schema: Any, told: str) -> None:
    with pytest.raises(DecodeError, match="cannot unmarshal") as error:
        check_written(schema, "s")
    assert told in error.value.message


def test_what_is_one_is() -> None:
    inner = {"type": "string", "maxLength": 3, "enum": ["a", 1, None], "x-kubernetes-validations": [{"rule": "true"}]}
    whole = {"type": "object", "properties": {"a": inner}, "additionalProperties": True, "items": [inner], "not": None}
    check_written(whole, "s")


def test_a_thousand_places_share_their_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"type": "object", "x-kubernetes-validations": [{"rule": "self.x.size() < 3"}]}
    place["properties"] = {"x": {"type": "string", "maxLength": 5}}  # type: ignore[assignment]
    seen: list[Environment] = []
    begin = Environment.__init__

    def noted(self: Environment, *given: Any, **more: Any) -> None:
        begin(self, *given, **more)
        seen.append(self)

    monkeypatch.setattr(Environment, "__init__", noted)
    assert not check_schema_rules({"type": "object", "properties": {f"p{i}": place for i in range(50)}}, "s")
    assert len({id(one.functions) for one in seen}) == 1


def test_rules_that_cost_too_much_end_the_judgement() -> None:
    numbers = {"type": "array", "maxItems": 900, "items": {"type": "integer"}}
    rules = [{"rule": "self.l.all(x, self.l.all(y, x + y >= 0))"}, {"rule": "false"}]
    schema = {"type": "object", "properties": {"l": numbers}, "x-kubernetes-validations": rules}
    found = rules_of(schema)
    assert found is not None
    [error] = Judgement(found, {"l": list(range(900))}).errors
    assert "no further validation rules will be run due to call cost exceeds limit" in str(error)


def test_items_are_told_apart_by_their_keys_as_they_are_written() -> None:
    item = {
        "type": "object",
        "properties": {"k": {"x-kubernetes-int-or-string": True}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "shrinks"}],
    }
    listed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    found = rules_of({"type": "object", "properties": {"l": listed}})
    assert found is not None
    before = {"l": [{"k": 1, "v": 5}, {"k": "1", "v": 1}]}
    assert Judgement(found, {"l": [{"k": "1", "v": 2}, {"k": 1, "v": 5}]}, before).errors == []
    [error] = Judgement(found, {"l": [{"k": 1, "v": 3}, {"k": "1", "v": 2}]}, before).errors
    assert str(error).startswith("l[0]: Invalid value: shrinks")


def test_what_was_wrong_before_is_only_told() -> None:
    rules = [{"rule": "self.a != 'bad'", "message": "bad"}]
    schema = {"type": "object", "properties": {"s": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    schema["properties"]["s"]["x-kubernetes-validations"] = rules  # type: ignore[index]
    found = rules_of(schema)
    assert found is not None
    wrong = {"s": {"a": "bad"}}
    assert len(Judgement(found, wrong).errors) == 1
    assert len(Judgement(found, {"s": {"a": "bad"}, "x": 1}, {**wrong, "x": 2}).errors) == 0
    assert Judgement(found, {**wrong, "x": 1}, {**wrong, "x": 2}).warnings == ["s: Invalid value: bad"]
    assert len(Judgement(found, wrong, {"s": {"a": "good"}}).errors) == 1
