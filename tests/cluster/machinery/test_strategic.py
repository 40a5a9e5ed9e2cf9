"""Strategic merge patch: lists merge by key, and the directives."""

from typing import Any

import pytest

from drakkar.cluster.machinery.patching import PatchError, strategic_merge_patch
from drakkar.cluster.machinery.schemas import struct_of

POD = struct_of("v1", "Pod")
assert POD is not None


def spec(before: Any, change: Any) -> Any:
    assert POD is not None
    live = {"spec": before}
    kept = repr(live)
    after = strategic_merge_patch(live, {"spec": change}, POD)
    assert repr(live) == kept
    return after["spec"]


A, B, C = {"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ([A, B], [{"name": "b", "image": "2"}], [A, {"name": "b", "image": "2"}]),
        ([A], [B], [B, A]),
        ([A, B], [{"$patch": "delete", "name": "a"}], [B]),
        ([A, B], [{"$patch": "replace"}, C], [C]),
        ([A], [{"name": "a", "image": None}], [{"name": "a"}]),
        ([A, B], [{"$patch": "delete", "name": "none"}], [A, B]),
    ],
)
def test_containers_merge_by_name(before: list[Any], change: list[Any], after: list[Any]) -> None:
    assert spec({"containers": before}, {"containers": change}) == {"containers": after}


def test_the_order_can_be_set() -> None:
    change = {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [C]}
    assert spec({"containers": [A]}, change)["containers"] == [C, A]
    alone = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    assert spec({"containers": [A, B]}, alone)["containers"] == [B, A]


def test_lists_of_scalars_replace_and_sets_of_scalars_merge() -> None:
    container = {**A, "command": ["x"]}
    merged = spec({"containers": [container]}, {"containers": [{"name": "a", "command": ["y"]}]})
    assert merged["containers"][0]["command"] == ["y"]
    assert POD is not None
    meta = strategic_merge_patch({"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": ["b"]}}, POD)
    assert meta["metadata"]["finalizers"] == ["b", "a"]
    gone = strategic_merge_patch(meta, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, POD)
    assert gone["metadata"]["finalizers"] == ["b"]


def test_retain_keys_clears_the_other_keys_of_a_union() -> None:
    volume = {"name": "v", "emptyDir": {}}
    change = {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}
    assert spec({"volumes": [volume]}, {"volumes": [change]}) == {
        "volumes": [{"name": "v", "hostPath": {"path": "/x"}}]
    }


def test_maps_can_be_replaced_and_deleted() -> None:
    security = {"securityContext": {"runAsUser": 1, "runAsGroup": 2}}
    assert spec(security, {"securityContext": {"$patch": "replace", "runAsUser": 3}}) == {
        "securityContext": {"runAsUser": 3}
    }
    assert spec(security, {"securityContext": {"$patch": "delete"}}) == {"securityContext": {}}
    assert spec(security, {"securityContext": None}) == {}


def test_ports_merge_by_container_port() -> None:
    before = {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x"}]}]}
    change = {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}, {"containerPort": 81}]}]}
    assert spec(before, change)["containers"][0]["ports"] == [{"containerPort": 80, "name": "y"}, {"containerPort": 81}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"containers": [{"image": "x"}]}, "does not contain declared merge key: name"),
        ({"containers": [{"$patch": "shuffle", "name": "a"}]}, "shuffle"),
    ],
)
def test_malformed_patches_are_refused(change: Any, words: str) -> None:
    with pytest.raises(PatchError, match=words):
        spec({"containers": [A]}, change)


def test_keys_that_are_no_scalars_do_not_break() -> None:
    change = {"containers": [{"name": ["a"], "image": "x"}]}
    assert spec({"containers": [A]}, change)["containers"] == [{"name": ["a"], "image": "x"}, A]
