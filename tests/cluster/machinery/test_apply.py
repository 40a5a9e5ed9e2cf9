"""Server-side apply and the ownership of fields (KEP-555)."""

import json
from typing import Any

import pytest

from drakkar.cluster.machinery.apply import ApplyConflict, apply, same_but_for_times, update_managed_fields
from drakkar.cluster.machinery.kinds import Kind, kind_of
from drakkar.cluster.machinery.patching import PatchError

T1, T2, T3 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def found(group: str, kind: str) -> Kind:
    kind_ = kind_of(group, "v1", kind)
    assert kind_ is not None
    return kind_


CONFIG, DEPLOYMENT, POD, CLAIM = (
    found("", "ConfigMap"),
    found("apps", "Deployment"),
    found("", "Pod"),
    found("resource.k8s.io", "ResourceClaim"),
)


def config(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def applied(live: Any, patch: Any, manager: str, kind: Kind = CONFIG, *, now: str = T1, **options: Any) -> Any:
    return apply(live, patch, kind, manager=manager, now=now, **{"force": False, "subresource": "", **options})


def updated(live: Any, new: Any, manager: str, kind: Kind = CONFIG, *, now: str = T2, subresource: str = "") -> Any:
    return update_managed_fields(live, new, kind, manager=manager, subresource=subresource, now=now)


def owners(obj: Any) -> dict[tuple[str, str], Any]:
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def test_the_first_apply_creates_and_owns_what_it_says() -> None:
    made = applied(None, config(a="1"), "one")
    assert made["data"] == {"a": "1"}
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        }
    ]


def test_what_an_applier_no_longer_says_is_removed() -> None:
    made = applied(None, config(a="1", b="2"), "one")
    again = applied(made, config(b="2"), "one", now=T2)
    assert again["data"] == {"b": "2"}
    assert owners(again) == {("one", "Apply"): {"f:data": {"f:b": {}}}}


def test_what_others_own_too_stays() -> None:
    made = applied(applied(None, config(a="1", b="2"), "one"), config(b="2"), "two", now=T2)
    again = applied(made, config(a="1"), "one", now=T3)
    assert again["data"] == {"a": "1", "b": "2"}
    assert owners(again) == {("one", "Apply"): {"f:data": {"f:a": {}}}, ("two", "Apply"): {"f:data": {"f:b": {}}}}


def test_another_value_conflicts_and_force_takes_it() -> None:
    made = applied(None, config(a="1"), "one")
    with pytest.raises(ApplyConflict) as caught:
        applied(made, config(a="2"), "two", now=T2)
    status = caught.value.status()
    assert status["code"] == 409
    assert status["reason"] == "Conflict"
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    forced = applied(made, config(a="2"), "two", now=T2, force=True)
    assert forced["data"] == {"a": "2"}
    assert owners(forced) == {("two", "Apply"): {"f:data": {"f:a": {}}}}


def test_several_conflicts_are_listed_by_manager() -> None:
    made = applied(applied(None, config(a="1", b="1"), "one"), config(c="1"), "two")
    with pytest.raises(ApplyConflict) as caught:
        applied(made, config(a="2", b="2", c="2"), "three")
    assert caught.value.status()["message"] == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\nconflicts with "two":\n- .data.c'
    )


def test_equal_values_are_shared() -> None:
    both = applied(applied(None, config(a="1"), "one"), config(a="1"), "two")
    assert owners(both) == {("one", "Apply"): {"f:data": {"f:a": {}}}, ("two", "Apply"): {"f:data": {"f:a": {}}}}


def test_the_same_apply_again_changes_nothing() -> None:
    made = applied(None, config(a="1"), "one")
    assert same_but_for_times(applied(made, config(a="1"), "one", now=T2), made)


def test_updates_own_what_they_change_and_take_it_from_appliers() -> None:
    made = applied(None, config(a="1", b="2"), "one")
    new = updated(made, {**made, "data": {"a": "9", "b": "2"}}, "editor")
    assert owners(new) == {
        ("one", "Apply"): {"f:data": {"f:b": {}}},
        ("editor", "Update"): {"f:data": {"f:a": {}}},
    }


def test_created_objects_are_owned_by_who_created_them() -> None:
    made = updated(None, config(a="1"), "creator")
    assert owners(made) == {("creator", "Update"): {"f:data": {".": {}, "f:a": {}}}}


def test_removed_fields_are_owned_by_nobody() -> None:
    made = updated(None, config(a="1", b="2"), "creator")
    new = updated(made, {**made, "data": {"b": "2"}}, "remover", now=T3)
    assert owners(new) == {("creator", "Update"): {"f:data": {".": {}, "f:b": {}}}}


def pod(**status: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": status}


def test_lists_are_owned_by_their_keys_and_the_status_by_its_writers() -> None:
    made = updated(None, pod(), "creator", POD)
    (entry,) = made["metadata"]["managedFields"]
    container = entry["fieldsV1"]["f:spec"]["f:containers"]['k:{"name":"a"}']
    assert container["f:ports"]['k:{"containerPort":80,"protocol":"TCP"}'] == {
        ".": {},
        "f:containerPort": {},
        "f:protocol": {},
    }
    assert "f:status" not in entry["fieldsV1"]
    conditions = [{"type": "Ready", "status": "True"}]
    new = updated(made, {**made, "status": {"conditions": conditions}}, "kubelet", POD, subresource="status")
    mine = new["metadata"]["managedFields"][-1]
    assert (mine["manager"], mine["subresource"]) == ("kubelet", "status")
    assert mine["fieldsV1"]["f:status"]["f:conditions"] == {
        ".": {},
        'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}},
    }


def test_atomic_lists_are_owned_whole() -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "g"}}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": requests}},
    }
    assert owners(updated(None, claim, "m", CLAIM))["m", "Update"] == {"f:spec": {"f:devices": {"f:requests": {}}}}


def test_two_appliers_each_have_their_container() -> None:
    def with_container(name: str) -> dict[str, Any]:
        template = {"spec": {"containers": [{"name": name, "image": name}]}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"template": template},
        }

    both = applied(
        applied(None, with_container("a"), "one", DEPLOYMENT), with_container("b"), "two", DEPLOYMENT, now=T2
    )
    names = [each["name"] for each in both["spec"]["template"]["spec"]["containers"]]
    assert names == ["a", "b"]
    empty = {**with_container("b"), "spec": {"template": {"spec": {"containers": []}}}}
    alone = applied(both, empty, "two", DEPLOYMENT, now=T3)
    assert [each["name"] for each in alone["spec"]["template"]["spec"]["containers"]] == ["a"]


def test_kubectl_takes_over_from_client_side_apply() -> None:
    former = config(a="1", b="2")
    annotated = {**former, "metadata": {"name": "c", "annotations": {LAST_APPLIED: json.dumps(former)}}}
    made = updated(None, annotated, "kubectl-client-side-apply")
    new = applied(made, config(a="9"), "kubectl", now=T2)
    assert new["data"] == {"a": "9", "b": "2"}  # forced where the last applied configuration says it was kubectl's
    assert json.loads(new["metadata"]["annotations"][LAST_APPLIED])["data"] == {"a": "9"}


def test_at_most_ten_updaters_are_told_apart() -> None:
    obj = updated(None, config(a="0"), "m00", now="2026-01-01T00:00:00Z")
    for number in range(1, 14):
        changed = {**obj, "data": {**obj["data"], f"k{number}": "x"}}
        obj = updated(obj, changed, f"m{number:02}", now=f"2026-01-01T00:00:{number:02}Z")
    managers = [entry["manager"] for entry in obj["metadata"]["managedFields"]]
    assert len(managers) == 10
    assert managers[0] == "ancient-changes"
    assert managers[-1] == "m13"


def test_managed_fields_in_the_patch_are_refused() -> None:
    patch = config(a="1")
    patch["metadata"]["managedFields"] = [{"manager": "x", "operation": "Apply"}]
    with pytest.raises(PatchError, match=r"metadata\.managedFields must be nil"):
        applied(None, patch, "one")


def test_duplicate_keys_are_refused() -> None:
    patch = {**pod(), "spec": {"containers": [{"name": "a"}, {"name": "a"}]}}
    with pytest.raises(PatchError, match="duplicate entries for key"):
        applied(None, patch, "one", POD)


def test_nothing_given_is_changed() -> None:
    made = applied(None, config(a="1"), "one")
    patch, before = config(b="2"), json.dumps(made)
    kept = json.dumps(patch)
    applied(made, patch, "two")
    updated(made, {**made, "data": {}}, "three")
    assert (json.dumps(made), json.dumps(patch)) == (before, kept)
