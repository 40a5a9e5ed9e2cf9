"""Objects pressed into their Go types: what is dropped, filled in and rewritten."""

from typing import Any

import pytest

from drakkar.cluster.machinery.schemas import struct_of
from drakkar.cluster.machinery.shapes import Findings, ShapeError, shape


def shaped(obj: dict[str, Any], api: str = "v1", kind: str = "Pod") -> dict[str, Any]:
    struct = struct_of(api, kind)
    assert struct is not None
    return shape(obj, struct, Findings())


def test_nulls_and_zeros_that_go_leaves_out_are_left_out() -> None:
    pod = shaped({"metadata": {"name": "p", "labels": None}, "spec": {"nodeName": "", "hostNetwork": False}})
    assert pod["metadata"] == {"name": "p"}
    assert "nodeName" not in pod["spec"]
    assert "hostNetwork" not in pod["spec"]


def test_pointers_keep_their_zeros() -> None:
    pod = shaped({"spec": {"terminationGracePeriodSeconds": 0, "enableServiceLinks": False}})
    assert pod["spec"]["terminationGracePeriodSeconds"] == 0
    assert pod["spec"]["enableServiceLinks"] is False


def test_structs_without_omission_are_filled_in() -> None:
    deployment = shaped({"spec": {"selector": {}}}, "apps/v1", "Deployment")
    assert deployment["spec"]["strategy"] == {}
    assert deployment["spec"]["template"] == {"metadata": {}, "spec": {"containers": None}}


def test_quantities_times_and_base64_are_canonical() -> None:
    limits = {"cpu": "1000m", "memory": 1024, "x": "0.5Gi"}
    pod = shaped({"spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}})
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", "memory": "1024", "x": "512Mi"}
    pod = shaped({"metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"}})
    assert pod["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    secret = shaped({"data": {"a": "aGk="}}, "v1", "Secret")
    assert secret["data"] == {"a": "aGk="}


@pytest.mark.parametrize(
    ("obj", "kind", "words"),
    [
        ({"data": {"a": "!"}}, "Secret", "illegal base64 data at input byte 0"),
        ({"data": {"a": 1}}, "ConfigMap", "json: cannot unmarshal number into Go struct field ConfigMap.data of type"),
        ({"metadata": []}, "ConfigMap", "json: cannot unmarshal array into Go struct field ConfigMap.metadata of type"),
    ],
)
def test_mismatches(obj: dict[str, Any], kind: str, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        shaped(obj, "v1", kind)


def test_what_was_given_is_left_as_it_was_and_shared_where_possible() -> None:
    data = {"a": "1"}
    given = {"metadata": {"name": "c"}, "data": data, "nonsense": 1}
    before = repr(given)
    shaped(given, "v1", "ConfigMap")
    assert repr(given) == before
