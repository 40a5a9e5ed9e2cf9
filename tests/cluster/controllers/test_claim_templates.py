"""Claims made from templates: names, ownership, status, recovery."""

from typing import Any

import pytest

from drakkar.cluster.controllers.claim_templates import ClaimTemplates, generate_name
from drakkar.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from drakkar.kube.transport import ApiResponse
from tests.cluster.controllers.world import World, run

USES_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}


def template(world: World, **metadata: Any) -> None:
    spec = {"spec": SPEC, "metadata": metadata} if metadata else {"spec": SPEC}
    world.api.put(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "one-gpu"}, "spec": spec})


def test_a_pod_gets_a_claim_of_its_own() -> None:
    async def test(world: World) -> None:
        template(world, labels={"team": "a"}, annotations={"note": "x"})
        pod = world.pod("train", resourceClaims=USES_TEMPLATE)
        await world.settle()
        (claim,) = world.api.all(RESOURCE_CLAIMS)
        metadata = claim["metadata"]
        assert metadata["generateName"] == "train-gpu-"
        assert metadata["annotations"] == {"note": "x", "resource.kubernetes.io/pod-claim-name": "gpu"}
        assert metadata["labels"] == {"team": "a"}
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "train",
                "uid": pod["metadata"]["uid"],
                "controller": True,
            }
        ]
        assert claim["spec"] == SPEC
        statuses = world.api.get(PODS, "train")["status"]["resourceClaimStatuses"]
        assert statuses == [{"name": "gpu", "resourceClaimName": metadata["name"]}]

    run(test, ClaimTemplates)


def test_a_claim_made_before_a_crash_is_found_again() -> None:
    async def test(world: World) -> None:
        template(world)
        pod = world.pod("train", schedulingGates=[{"name": "g"}])
        owner = {"kind": "Pod", "name": "train", "uid": pod["metadata"]["uid"], "controller": True}
        marks = {"annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}, "ownerReferences": [owner]}
        world.claim("train-gpu-left", metadata=marks)
        await world.settle()
        world.api.put(PODS, {**pod, "spec": {**pod["spec"], "resourceClaims": USES_TEMPLATE}})
        await world.settle()
        assert len(world.api.all(RESOURCE_CLAIMS)) == 1
        statuses = world.api.get(PODS, "train")["status"]["resourceClaimStatuses"]
        assert statuses[0]["resourceClaimName"] == "train-gpu-left"

    run(test, ClaimTemplates)


def test_a_claim_that_somebody_deleted_is_made_again() -> None:
    async def test(world: World) -> None:
        template(world)
        world.pod("train", resourceClaims=USES_TEMPLATE)
        await world.settle()
        (first,) = world.api.all(RESOURCE_CLAIMS)
        await world.client.delete(RESOURCE_CLAIMS, first["metadata"]["name"], "default")
        await world.settle()
        (second,) = world.api.all(RESOURCE_CLAIMS)
        statuses = world.api.get(PODS, "train")["status"]["resourceClaimStatuses"]
        assert statuses == [{"name": "gpu", "resourceClaimName": second["metadata"]["name"]}]

    run(test, ClaimTemplates)


def test_a_refused_claim_is_announced_and_tried_again() -> None:
    async def test(world: World) -> None:
        template(world)
        refusal = {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: q", "code": 403}
        path = RESOURCE_CLAIMS.path("default")
        world.api.fail[("POST", path)] = [ApiResponse(403, {}, refusal)]
        world.pod("train", resourceClaims=USES_TEMPLATE)
        await world.settle()
        message = "PodResourceClaim gpu: exceeded quota: q"
        assert world.events() == [("Pod/train", "FailedResourceClaimCreation", message)]
        await world.advance(1)
        assert len(world.api.all(RESOURCE_CLAIMS)) == 1

    run(test, ClaimTemplates)


def test_a_missing_template_is_named() -> None:
    async def test(world: World) -> None:
        world.pod("train", resourceClaims=USES_TEMPLATE)
        await world.settle()
        ((_, _, message),) = world.events("FailedResourceClaimCreation")
        assert message == (
            'PodResourceClaim gpu: resource claim template "one-gpu": '
            'resourceclaimtemplate.resource.k8s.io "one-gpu" not found'
        )

    run(test, ClaimTemplates)


def test_finished_and_deleted_pods_get_nothing() -> None:
    async def test(world: World) -> None:
        template(world)
        world.pod("done", resourceClaims=USES_TEMPLATE, status={"phase": "Succeeded"})
        world.pod("going", resourceClaims=USES_TEMPLATE, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        await world.settle()
        assert world.api.all(RESOURCE_CLAIMS) == []

    run(test, ClaimTemplates)


def test_a_pinned_pod_reserves_what_is_allocated_already() -> None:
    async def test(world: World) -> None:
        world.claim("shared", allocation={"devices": {"results": []}}, reservedFor=[{"resource": "pods", "uid": "u"}])
        world.claim("open")
        references = [{"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimName": "open"}]
        pod = world.pod("pinned", nodeName="n", resourceClaims=references)
        await world.settle()
        users = world.api.get(RESOURCE_CLAIMS, "shared")["status"]["reservedFor"]
        assert users[1] == {"resource": "pods", "name": "pinned", "uid": pod["metadata"]["uid"]}
        assert world.api.get(RESOURCE_CLAIMS, "open")["status"] == {}

    run(test, ClaimTemplates)


@pytest.mark.parametrize(
    ("pod", "entry", "expected"),
    [
        ("p", "gpu", "p-gpu-"),
        ("p" * 50, "gpu", "p" * 50 + "-gpu-"),
        ("p" * 60, "g" * 20, "p" * 41 + "-" + "g" * 13),
    ],
)
def test_long_names_lose_from_both_parts(pod: str, entry: str, expected: str) -> None:
    assert generate_name(pod, entry) == expected
    assert len(generate_name(pod, entry)) <= 58
