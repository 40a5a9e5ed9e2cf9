"""All controllers together: they start, do their work side by side, and stop."""

from __future__ import annotations

import asyncio

import pytest

from drakkar.cluster.controllers import run_controllers
from drakkar.errors import DrakkarError
from drakkar.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from tests.cluster.controllers.world import World


def test_a_whole_group() -> None:
    async def main() -> None:
        world = World()
        world.api.put(NAMESPACES, {"metadata": {"name": "default"}})
        group = run_controllers(world.client, clock=world.clock, root_ca="PEM")
        await group.start()
        labels = {"app": "d"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        world.api.put(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
        await world.settle(300)
        assert len(world.api.all(PODS)) == 2
        assert world.api.get(SERVICE_ACCOUNTS, "default") is not None
        assert world.api.get(CONFIG_MAPS, "kube-root-ca.crt")["data"] == {"ca.crt": "PEM"}
        await world.client.delete(DEPLOYMENTS, "d", "default", propagation_policy="Background")
        await world.settle(400)
        assert world.api.all(PODS) == []
        await group.stop()

    asyncio.run(main())


def test_controllers_can_be_left_out_by_name() -> None:
    async def main() -> None:
        world = World()
        with pytest.raises(DrakkarError) as caught:
            run_controllers(world.client, without=["node-lifecicle"])
        assert "node-lifecycle" in caught.value.expected
        group = run_controllers(world.client, clock=world.clock, without=["service-accounts"])
        await group.start()
        world.api.put(NAMESPACES, {"metadata": {"name": "default"}})
        await world.settle()
        assert world.api.all(SERVICE_ACCOUNTS) == []
        await group.stop()

    asyncio.run(main())
