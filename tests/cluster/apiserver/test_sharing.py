"""What a write does not change is not copied, what it brings is; and nobody who only writes keeps others waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drakkar.cluster.apiserver import server as servers
from drakkar.cluster.apiserver.inprocess import InProcessTransport
from drakkar.kube.client import Client
from drakkar.kube.resources import CONFIG_MAPS, RESOURCE_CLAIMS
from tests.cluster.apiserver.world import CONFIGS, World, config

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def _claim(parameters: dict[str, Any]) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
    return {"metadata": {"name": "a"}, "spec": {"devices": {"requests": [request], "config": [{"opaque": opaque}]}}}


def test_a_status_that_is_written_leaves_the_very_spec_and_its_owners_entries() -> None:
    async def main() -> None:
        world = World()
        client = Client(InProcessTransport(world.server), user_agent="scheduler")
        made = await client.create(RESOURCE_CLAIMS, _claim({"kind": "X"}), "default")
        results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}]
        status = {"allocation": {"devices": {"results": results}}}
        after = await client.update(RESOURCE_CLAIMS, {**made, "status": status}, subresource="status")
        assert after["spec"] is made["spec"]
        first = made["metadata"]["managedFields"][0]
        assert any(entry is first for entry in after["metadata"]["managedFields"])
        assert after["status"]["allocation"]["devices"]["results"] is not results

    asyncio.run(main())


def test_what_a_client_sent_stays_its_own_even_where_no_type_says_what_it_is() -> None:
    async def main() -> None:
        world = World()
        parameters = {"kind": "GpuConfig", "list": [1]}
        made = await world.made(CLAIMS, _claim(parameters))
        parameters["list"].append(2)  # type: ignore[attr-defined]
        stored = made["spec"]["devices"]["config"][0]["opaque"]["parameters"]
        assert stored == {"kind": "GpuConfig", "list": [1]}

    asyncio.run(main())


def test_a_body_with_tuples_is_read_as_json_writes_it() -> None:
    async def main() -> None:
        made = await World().made(CONFIGS, {"metadata": {"name": "a", "finalizers": ("x.dev/y",)}})
        assert made["metadata"]["finalizers"] == ["x.dev/y"]

    asyncio.run(main())


def test_a_part_that_was_changed_back_is_no_write() -> None:
    async def main() -> None:
        world = World()
        made = await world.made(CONFIGS, config("a", key="value"))
        again = await world.put(f"{CONFIGS}/a", {**made, "data": {"key": "value"}})
        assert again.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    asyncio.run(main())


def test_a_client_that_only_writes_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1_000_000))

    async def main() -> None:
        world = World()
        clock = type(world.server.clock)
        monkeypatch.setattr(clock, "monotonic", lambda _: next(moments) * servers.BREATH_SECONDS)
        client = Client(InProcessTransport(world.server))
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        for number in range(20):
            await client.create(CONFIG_MAPS, config(f"c{number}"), "default")
        task.cancel()
        assert turns >= 5

    asyncio.run(main())
