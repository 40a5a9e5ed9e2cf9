"""Work on equal parts is done once, and nobody can tell but by the time it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from drakkar.cluster.machinery import recall
from drakkar.cluster.machinery.kinds import kind_of
from tests.cluster.apiserver.world import PODS, World

NOW = "2026-01-01T00:00:00Z"


def _pod(name: str, **container: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "cuda:1", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _made(*pods: dict[str, Any]) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        world = World()
        await world.service_account()
        return [(await world.post(PODS, pod)).body for pod in pods]

    return asyncio.run(main())


def test_pods_of_one_template_share_their_spec_and_are_what_they_would_be_alone() -> None:
    first, second = _made(_pod("a"), _pod("b"))
    assert first["spec"] is second["spec"]
    recall.forget()
    (alone,) = _made(_pod("b"))

    def nameless(pod: dict[str, Any]) -> str:
        text = msgspec.json.encode({**pod, "metadata": {"fields": pod["metadata"]["managedFields"]}}).decode()
        return text.replace(pod["spec"]["volumes"][0]["name"], "token")

    assert nameless(alone) == nameless(second)


def test_owned_fields_come_in_the_objects_order_whether_its_parts_are_kept_or_too_long() -> None:
    pods = [_pod(name, command=["x" * size]) for name, size in (("short", 1), ("long", recall.LONGEST))]
    for pod in pods:
        pod["metadata"]["labels"] = {"a": "b"}
    owned = [list(pod["metadata"]["managedFields"][0]["fieldsV1"]) for pod in _made(*pods)]
    assert owned == [["f:metadata", "f:spec"]] * 2


def test_what_is_wrong_with_a_part_is_said_every_time() -> None:
    answers = _made(_pod("a", imagePullPolicy="x"), _pod("b", imagePullPolicy="x"), _pod("c"))
    assert [answer.get("code") for answer in answers] == [422, 422, None]
    assert "imagePullPolicy" in answers[1]["message"]


def test_unknown_fields_are_warned_about_every_time() -> None:
    pods = kind_of("", "v1", "Pod")
    assert pods is not None
    for name in "ab":
        assert pods.shape(_pod(name, typo=1)).warnings == ['unknown field "spec.containers[0].typo"']


def test_the_senders_value_is_not_what_is_stored() -> None:
    sent = _pod("a")
    (stored,) = _made(sent)
    sent["spec"]["containers"][0]["image"] = "other"
    assert stored["spec"]["containers"][0]["image"] == "cuda:1"


def test_a_claims_faults_are_its_own_though_its_spec_was_seen_before() -> None:
    claims = kind_of("resource.k8s.io", "v1", "ResourceClaim")
    assert claims is not None
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}

    def errors(name: str, *requests: dict[str, Any]) -> list[str]:
        metadata = {"name": name, "namespace": "default"}
        shaped = claims.shape({"metadata": metadata, "spec": {"devices": {"requests": list(requests)}}}).object
        made = claims.prepare_create(claims.default(shaped, now=NOW))
        return [error.field for error in claims.validate_create(made)]

    assert errors("a", request) == errors("b", request) == []
    assert errors("A b", request) == ["metadata.name"]
    twice = errors("a", request, request)
    assert twice and errors("b", request, request) == twice


def test_what_is_kept_is_bounded() -> None:
    recall.forget()
    for number in range(3 * recall.MOST):
        value = {"number": number}
        recall.part("test", value, lambda value=value: (dict(value), True))  # type: ignore[misc]
    assert 0 < recall.size() <= recall.MOST
    assert recall.part("test", {"long": "x" * recall.LONGEST}, lambda: ({}, True)) == {}
    assert recall.size() <= recall.MOST
