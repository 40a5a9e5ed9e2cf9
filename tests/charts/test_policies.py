"""The chart's admission policies in the embedded API server answer as they do in the real one (`tests/e2e`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drakkar.cluster.apiserver.identities import User
from tests.charts.test_rendering import EVERYTHING, of_kind, rendered
from tests.cluster.apiserver.world import World
from tests.e2e.test_chart import ACCEPTED, REFUSED, configured, gpu_config, slice_of
from tools import kubectl as programs

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLACES = {
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
}
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture(scope="module")
def policies() -> list[dict[str, Any]]:
    """Policies and bindings as Helm renders them."""
    objects = rendered(str(programs.fetch_helm(4)), *EVERYTHING)
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    return [one for kind in kinds for one in of_kind(objects, kind).values()]


async def put_in_force(world: World, policies: list[dict[str, Any]], name: str) -> World:
    """Make the policy `name` of the chart and its binding."""
    for one in policies:
        if one["metadata"]["name"] == f"gpu-drakkar-{name}":
            binding = one["kind"].endswith("Binding")
            plural = "validatingadmissionpolicybindings" if binding else "validatingadmissionpolicies"
            await world.made(f"{ADMISSION}/{plural}", one)
    return world


@pytest.mark.parametrize("kind", sorted(PLACES))
def test_configurations(policies: list[dict[str, Any]], kind: str) -> None:
    async def main() -> None:
        plural = PLACES[kind].rpartition("/")[2]
        world = await put_in_force(World(), policies, plural)
        for what, parameters in ACCEPTED.items():
            answer = await world.post(f"{PLACES[kind]}?dryRun=All", configured(kind, parameters))
            assert answer.status == 201, (what, answer.body)
        for what, (parameters, reason) in REFUSED.items():
            answer = await world.post(f"{PLACES[kind]}?dryRun=All", configured(kind, parameters))
            assert answer.status == 422, (what, answer.body)
            assert reason in answer.body["message"], (what, answer.body["message"])
        other = configured(kind, {"anything": True})
        spec = other["spec"].get("spec", other["spec"])
        (spec.get("devices") or spec)["config"][0]["opaque"]["driver"] = "lamps.example.com"
        assert (await world.post(PLACES[kind], other)).status == 201

    asyncio.run(main())


def test_what_was_there_before_the_policy_stays_writable(policies: list[dict[str, Any]]) -> None:
    async def main() -> None:
        world = World()
        place = PLACES["ResourceClaimTemplate"]
        await world.made(place, configured("ResourceClaimTemplate", gpu_config(kind="Old")))
        await put_in_force(world, policies, "resourceclaimtemplates")
        answer = await world.merge(f"{place}/c", {"metadata": {"labels": {"a": "b"}}})
        assert answer.status == 200, answer.body
        assert (await world.delete(f"{place}/c")).status == 200

    asyncio.run(main())


def test_a_driver_writes_slices_of_its_own_node_only(policies: list[dict[str, Any]]) -> None:
    async def main() -> None:
        world = await put_in_force(World(), policies, "slices")
        binding = {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "drivers"}],
            "metadata": {"name": "drivers"},
        }
        await world.made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        extra = {"authentication.kubernetes.io/node-name": ("n1",)}
        account = "system:serviceaccount:drakkar-system:gpu-drakkar"
        driver = User(account, ("drivers", "system:authenticated"), extra=extra)
        elsewhere = User(account, ("drivers", "system:authenticated"))
        assert (await world.post(SLICES, slice_of("mine", "n1"), user=driver)).status == 201
        for user, manifest, reason in (
            (driver, slice_of("theirs", "n2"), "may not write a slice of node n2"),
            (driver, slice_of("lamps", "n1", "lamps.example.com"), "publishes gpu.nvidia.com only"),
            (elsewhere, slice_of("x", "n1"), "the token names no node"),
        ):
            answer = await world.post(SLICES, manifest, user=user)
            assert answer.status in (403, 422) and reason in answer.body["message"], answer.body
        await world.made(SLICES, slice_of("theirs", "n2"))  # the administrator may
        answer = await world.delete(f"{SLICES}/theirs", user=driver)
        assert "may not write a slice of node n2" in answer.body["message"]

    asyncio.run(main())
