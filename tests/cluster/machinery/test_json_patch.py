"""JSON patch (RFC 6902) and merge patch (RFC 7386)."""

from typing import Any

import pytest

from drakkar.cluster.machinery.kinds import kind_of
from drakkar.cluster.machinery.patching import JSON_PATCH, MERGE_PATCH, PatchError, json_patch, merge_patch, patch

CONFIG = kind_of("", "v1", "ConfigMap")
assert CONFIG is not None


@pytest.mark.parametrize(
    ("before", "operations", "after"),
    [
        ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
        ({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], {}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}, {"op": "remove", "path": "/a"}], {}),
        ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}),
        ({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1}}], {"a": 1}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/-1", "value": 3}], {"a": [1, 3]}),
        ({}, [{"op": "replace", "path": "/a", "value": 1}], {"a": 1}),
    ],
)
def test_operations(before: Any, operations: list[Any], after: Any) -> None:
    kept = repr(before)
    assert json_patch(before, operations) == after
    assert repr(before) == kept


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/a/7", "value": 1},
        {"op": "test", "path": "", "value": {}},
        {"op": "add", "path": "", "value": {}},
        {"op": "add"},
        {"op": "add", "path": "/a/9", "value": 1},
        {"op": "add", "path": "/none/x", "value": 1},
        {"op": "test", "path": "/a", "value": [2]},
        {"op": "move", "from": "/none", "path": "/b"},
        {"op": "shuffle", "path": "/a"},
    ],
)
def test_what_does_not_apply_is_rejected_without_a_word(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch({"a": [1]}, [operation])
    assert caught.value.code == 422


def test_a_failing_test_operation() -> None:
    with pytest.raises(PatchError) as caught:
        json_patch({"a": [1]}, [{"op": "test", "path": "/a", "value": [2]}])
    assert caught.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server rejected our request due to an error in our request",
        "reason": "Invalid",
        "details": {},
        "code": 422,
    }


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {"c": None, "d": 2}}, {"a": {"b": 1, "d": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": "b"}, {"a": {"b": None}}, {"a": {}}),
        ({}, {"a": {"b": None}}, {"a": {}}),
    ],
)
def test_merge_patches(before: Any, change: Any, after: Any) -> None:
    assert merge_patch(before, change) == after


LIVE = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "1"}}


@pytest.mark.parametrize(
    ("body", "media", "code", "words"),
    [
        (b"{", MERGE_PATCH, 400, "invalid JSON patch"),
        (b"{}", JSON_PATCH, 400, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (b"[]", MERGE_PATCH, 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (b'[{"op":"replace","path":"","value":[]}]', JSON_PATCH, 422, "cannot unmarshal array"),
        (b'{"data":{"a":1}}', MERGE_PATCH, 422, "cannot unmarshal number into Go struct field ConfigMap.data of type"),
    ],
)
def test_bodies_that_cannot_be_used(body: bytes, media: str, code: int, words: str) -> None:
    assert CONFIG is not None
    with pytest.raises(PatchError) as caught:
        patch(CONFIG, LIVE, body, media)
    assert caught.value.code == code
    assert words in caught.value.message


def test_unknown_fields_of_patches_follow_field_validation() -> None:
    assert CONFIG is not None
    body = b'{"dta":{"b":"2"}}'
    assert patch(CONFIG, LIVE, body, MERGE_PATCH).warnings == ['unknown field "dta"']
    assert patch(CONFIG, LIVE, body, MERGE_PATCH, field_validation="Ignore").warnings == []
    with pytest.raises(PatchError, match='unknown field "dta"'):
        patch(CONFIG, LIVE, body, MERGE_PATCH, field_validation="Strict")
    operations = b'[{"op":"add","path":"/data/b","value":"2","vlaue":1}]'
    assert patch(CONFIG, LIVE, operations, JSON_PATCH).warnings == ['json patch unknown field "[0].vlaue"']
