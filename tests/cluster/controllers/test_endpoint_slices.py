"""Services know the pods behind them."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers.endpoint_slices import EndpointSlices
from drakkar.kube.resources import PODS, SERVICES
from tests.cluster.controllers.world import World, run
from tests.cluster.fake_api import ENDPOINT_SLICES


def service(world: World, **spec: Any) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]
    body = {"selector": {"app": "web"}, "ports": ports, "clusterIP": "10.0.0.1", **spec}
    world.api.put(SERVICES, {"metadata": {"name": "s"}, "spec": body})


def web(world: World, name: str, ready: bool = True, address: str = "10.1.0.1", port: int = 8080) -> None:
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"phase": "Running", "podIP": address, "conditions": conditions} if address else {"phase": "Pending"}
    containers = [{"name": "c", "ports": [{"name": "web", "containerPort": port, "protocol": "TCP"}]}]
    world.pod(name, nodeName="n", containers=containers, status=status, metadata={"labels": {"app": "web"}})


def addresses(world: World) -> dict[str, bool]:
    return {
        one["addresses"][0]: one["conditions"]["ready"]
        for piece in world.api.all(ENDPOINT_SLICES)
        for one in piece["endpoints"]
    }


def test_a_service_without_pods_has_an_empty_slice() -> None:
    async def test(world: World) -> None:
        service(world, clusterIP="None")
        await world.settle()
        (piece,) = world.api.all(ENDPOINT_SLICES)
        assert piece["metadata"]["labels"] == {
            "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            "service.kubernetes.io/headless": "",
        }
        assert (piece["endpoints"], piece["ports"], piece["addressType"]) == ([], [], "IPv4")

    run(test, EndpointSlices)


def test_pods_come_and_go() -> None:
    async def test(world: World) -> None:
        service(world)
        web(world, "a", address="10.1.0.1")
        web(world, "b", ready=False, address="10.1.0.2")
        web(world, "c", address="")
        await world.settle(120)
        assert addresses(world) == {"10.1.0.1": True, "10.1.0.2": False}
        (piece,) = world.api.all(ENDPOINT_SLICES)
        assert piece["ports"] == [{"name": "http", "protocol": "TCP", "port": 8080}]
        await world.client.delete(PODS, "a", "default", grace_period_seconds=0)
        await world.settle(120)
        assert addresses(world) == {"10.1.0.2": False}

    run(test, EndpointSlices)


def test_pods_that_name_a_port_differently_have_slices_of_their_own() -> None:
    async def test(world: World) -> None:
        service(world)
        web(world, "a", address="10.1.0.1", port=8080)
        web(world, "b", address="10.1.0.2", port=9090)
        await world.settle(120)
        assert sorted(piece["ports"][0]["port"] for piece in world.api.all(ENDPOINT_SLICES)) == [8080, 9090]

    run(test, EndpointSlices)


def test_many_pods_need_several_slices() -> None:
    async def test(world: World) -> None:
        service(world)
        for index in range(150):
            web(world, f"p{index:03}", address=f"10.1.1.{index}")
        await world.settle(200)
        assert sorted(len(piece["endpoints"]) for piece in world.api.all(ENDPOINT_SLICES)) == [50, 100]

    run(test, EndpointSlices)
