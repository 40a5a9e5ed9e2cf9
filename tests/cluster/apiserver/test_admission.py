"""Admission: what pods get, what namespaces allow, what quotas and limits refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drakkar.cluster.apiserver.identities import User
from tests.cluster.apiserver.world import CONFIGS, PODS, World, config, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def run(coroutine: Any) -> None:
    asyncio.run(coroutine)


async def quota(world: World, **hard: str) -> None:
    names = {name.replace("__", "/").replace("_", "."): amount for name, amount in hard.items()}
    await world.made(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": names}})
    status = {"hard": names, "used": dict.fromkeys(names, "0")}
    answer = await world.merge(f"{QUOTAS}/q/status", {"status": status})
    assert answer.status == 200, answer.body


async def used(world: World) -> dict[str, str]:
    found: dict[str, str] = (await world.get(f"{QUOTAS}/q")).body["status"]["used"]
    return found


def test_a_pod_gets_account_token_tolerations_and_priority() -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        body = pod("p")
        del body["spec"]["automountServiceAccountToken"]
        spec = (await world.made(PODS, body))["spec"]
        assert spec["serviceAccountName"] == "default" and spec["priority"] == 0
        mount = spec["containers"][0]["volumeMounts"][0]
        assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
        assert [volume["name"] for volume in spec["volumes"]] == [mount["name"]]
        assert [one["key"] for one in spec["tolerations"]] == [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        ]

    run(main())


def test_a_pod_without_its_service_account_is_refused() -> None:
    async def main() -> None:
        answer = await World().post(PODS, pod("p"))
        assert answer.status == 403
        assert answer.body["message"] == (
            'pods "p" is forbidden: error looking up service account default/default:'
            ' serviceaccount "default" not found'
        )

    run(main())


def test_a_priority_class_becomes_a_number() -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        spec = (await world.made(PODS, pod("p", priorityClassName="system-node-critical")))["spec"]
        assert spec["priority"] == 2000001000
        unknown = await world.post(PODS, pod("q", priorityClassName="none"))
        assert unknown.body["message"].endswith("no PriorityClass with name none was found")

    run(main())


def test_a_new_node_is_tainted_until_it_is_ready() -> None:
    async def main() -> None:
        node = await World().made("/api/v1/nodes", {"metadata": {"name": "n"}})
        assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]

    run(main())


def test_a_quota_is_charged_when_the_object_is_stored_and_only_then() -> None:
    async def main() -> None:
        world = World()
        await quota(world, configmaps="2")
        await world.made(CONFIGS, config("a"))
        assert (await world.post(CONFIGS, config("a"))).status == 409
        assert (await world.post(f"{CONFIGS}?dryRun=All", config("b"))).status == 201
        assert await used(world) == {"configmaps": "1"}
        await world.made(CONFIGS, config("b"))
        refused = await world.post(CONFIGS, config("c"))
        assert refused.status == 403 and "exceeded quota: q, requested: configmaps=1" in refused.body["message"]

    run(main())


def test_devices_count_by_class() -> None:
    async def main() -> None:
        world = World()
        name = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
        await world.made(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {name: "33"}}})
        await world.merge(f"{QUOTAS}/q/status", {"status": {"hard": {name: "33"}, "used": {name: "0"}}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}
        await world.made(CLAIMS, {"metadata": {"name": "all"}, "spec": {"devices": {"requests": [request]}}})
        assert await used(world) == {name: "32"}

    run(main())


def test_a_quota_whose_use_is_unknown_refuses() -> None:
    async def main() -> None:
        world = World()
        await world.made(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "5"}}})
        answer = await world.post(CONFIGS, config("a"))
        assert "status unknown for quota: q, resources: configmaps" in answer.body["message"]

    run(main())


@pytest.mark.parametrize("label", [None, "false", "true"])
def test_admin_access_needs_the_label_of_the_namespace(label: str | None) -> None:
    async def main() -> None:
        world = World()
        if label is not None:
            labels = {"resource.kubernetes.io/admin-access": label}
            await world.merge("/api/v1/namespaces/default", {"metadata": {"labels": labels}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}}
        answer = await world.post(CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})
        assert answer.status == (201 if label == "true" else 422)

    run(main())


def test_roles_decide_and_a_change_counts_at_once() -> None:
    async def main() -> None:
        world = World()
        jane = User("jane", ("system:authenticated",))
        assert (await world.get(CONFIGS, user=jane)).status == 403
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
        await world.made(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
        subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]
        await world.made(
            f"{rbac}/rolebindings", {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
        )
        assert (await world.get(CONFIGS, user=jane)).status == 200
        assert (await world.get(f"{CONFIGS}/a", user=jane)).status == 403
        await world.delete(f"{rbac}/rolebindings/b")
        assert (await world.get(CONFIGS, user=jane)).status == 403

    run(main())
