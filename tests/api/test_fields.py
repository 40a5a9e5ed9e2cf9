"""Errors become causes and one message, in Kubernetes' words."""

import pytest

from drakkar.api import fields


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (fields.invalid("spec.a", "x\n", "must be y"), 'spec.a: Invalid value: "x\\n": must be y'),
        (fields.invalid("spec.a", None, "must be y"), "spec.a: Invalid value: null: must be y"),
        (fields.invalid("spec.a", {"b": 1}, "no"), 'spec.a: Invalid value: {"b":1}: no'),
        (fields.invalid("spec.a", True, "no"), "spec.a: Invalid value: true: no"),
        (fields.required("spec.a"), "spec.a: Required value"),
        (fields.required("spec.a", "say it"), "spec.a: Required value: say it"),
        (fields.forbidden("spec.a", "not here"), "spec.a: Forbidden: not here"),
        (fields.not_supported("a", "x", ["y", "z"]), 'a: Unsupported value: "x": supported values: "y", "z"'),
        (fields.duplicate("a[1]", "x"), 'a[1]: Duplicate value: "x"'),
        (fields.not_found("a", "x"), 'a: Not found: "x"'),
        (fields.too_long("a", 1), "a: Too long: may not be more than 1 byte"),
        (fields.too_long("a", 63), "a: Too long: may not be more than 63 bytes"),
        (fields.too_many("a", 9, 8), "a: Too many: 9: must have at most 8 items"),
        (fields.internal("a", "broken"), "a: Internal error: broken"),
    ],
    ids=lambda value: value.type if isinstance(value, fields.FieldError) else "",
)
def test_messages(error: fields.FieldError, text: str) -> None:
    assert str(error) == text


def test_one_error_stands_alone_and_several_in_brackets() -> None:
    one = fields.invalid_status("resource.k8s.io", "ResourceClaim", "c", [fields.required("spec")])
    assert one["message"] == 'ResourceClaim.resource.k8s.io "c" is invalid: spec: Required value'
    two = fields.invalid_status("", "Pod", "p", [fields.required("a"), fields.required("b"), fields.required("a")])
    assert two["message"] == 'Pod "p" is invalid: [a: Required value, b: Required value]'
    assert [cause["field"] for cause in two["details"]["causes"]] == ["a", "b"]
    assert "group" not in two["details"]


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("a", '"a"'), ('"', '"\\""'), ("\\", '"\\\\"'), ("\x00", '"\\x00"'), ("é", '"é"'), ("\u200b", '"\\u200b"')],
)
def test_quoting_is_that_of_go(text: str, quoted: str) -> None:
    assert fields.quote(text) == quoted
