"""Device plugins against the embedded kubelet: a real socket on both sides, a simulated machine behind one of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.kubelet.device_plugins import DevicePlugins
from drakkar.drivers.gpu.device_plugin import KIND, GpuPlugins, PluginOptions, refuse_beside_driver, serving
from drakkar.errors import DrakkarError
from drakkar.kube.clock import FakeClock
from drakkar.kube.resources import PODS, RESOURCE_SLICES
from drakkar.preparation.device_plugin import DevicePluginServer, Handout
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine
from tests.cluster.kubelet.world import NODE, World, run, until

GPU = "nvidia.com/gpu"


class Shop:
    """A node and the plugins of a machine on it."""

    def __init__(self, world: World, model: str, **options: Any) -> None:
        self.world = world
        self.machine: SimulatedMachine = build_machine(model, NODE, world.folder / "machine")
        directory = world.folder / "k" / "device-plugins"
        self.plugins = GpuPlugins(self.machine, directory, world.cdi, options=PluginOptions(**options))

    def offered(self, resource: str = GPU) -> tuple[str | None, str | None]:
        status = self.world.node()["status"]
        return status["capacity"].get(resource), status["allocatable"].get(resource)

    async def offers(self, capacity: str, allocatable: str | None = None, resource: str = GPU) -> None:
        wanted = (capacity, capacity if allocatable is None else allocatable)
        await until(lambda: self.offered(resource) == wanted, lambda: str(self.offered(resource)))

    def pod(self, name: str, command: str = "sleep 60", *, count: int = 1, resource: str = GPU, **more: Any) -> None:
        container = {
            "name": "c0",
            "image": "busybox",
            "command": ["sh", "-c", command],
            "resources": {"limits": {resource: str(count)}},
        }
        self.world.pod(name, containers=[container, *more.pop("containers", [])], **more)

    def config(self, name: str, container: str = "c0") -> dict[str, Any]:
        """The container's OCI configuration."""
        for entry in self.world.kubelet.containers():
            pod = next(p for p in self.world.kubelet._running_pods() if p["metadata"]["uid"] == entry["podUID"])
            if (pod["metadata"]["name"], entry["name"]) == (name, container):
                return dict(json.loads((Path(entry["bundle"]) / "config.json").read_text()))
        raise AssertionError(f"no container {name}/{container}")

    def gpus(self, name: str, container: str = "c0") -> list[str]:
        """The GPU nodes that the container has."""
        nodes = [each["path"] for each in self.config(name, container)["linux"].get("devices") or ()]
        return sorted(path for path in nodes if path[len("/dev/nvidia") :].isdecimal())


def shop(test: Callable[[Shop], Awaitable[None]], model: str = "dgx-h100", **options: Any) -> None:
    async def body(world: World) -> None:
        one = Shop(world, model, **options)
        async with serving(one.plugins):
            await test(one)

    run(body, driver=False)


def test_pods_get_different_devices_and_give_them_back() -> None:
    async def body(one: Shop) -> None:
        await one.offers("8")
        for number in range(8):
            one.pod(f"p{number}")
        for number in range(8):
            await one.world.phase_is(f"p{number}", "Running")
        held = [one.gpus(f"p{number}") for number in range(8)]
        assert sorted(held) == [[f"/dev/nvidia{number}"] for number in range(8)]
        one.pod("ninth")
        await one.world.phase_is("ninth", "Failed")
        status = one.world.status("ninth")
        message = f"requested number of devices unavailable for {GPU}. Requested: 1, Available: 0, which is unexpected"
        assert status["reason"] == "UnexpectedAdmissionError"
        assert status["message"] == f"Pod was rejected: Allocate failed due to {message}"
        assert ("Warning", "UnexpectedAdmissionError", f"Allocate failed due to {message}") in await one.world.events()
        await one.world.client.delete(PODS, "p3", "default", grace_period_seconds=1)
        await one.world.gone("p3")
        one.pod("tenth")
        await one.world.phase_is("tenth", "Running")
        assert one.gpus("tenth") == held[3]

    shop(body)


def test_containers_of_one_pod_share_nothing_but_what_init_containers_had() -> None:
    async def body(one: Shop) -> None:
        await one.offers("8")

        def resources(count: int) -> dict[str, Any]:
            return {"resources": {"limits": {GPU: str(count)}}}

        init = {"name": "i", "image": "busybox", "command": ["sh", "-c", "true"]} | resources(2)
        more = {"name": "c1", "image": "busybox", "command": ["sh", "-c", "sleep 60"]} | resources(1)
        none = {"name": "c2", "image": "busybox", "command": ["sh", "-c", "sleep 60"]}
        one.pod("p", containers=[more, none], initContainers=[init])
        await one.world.phase_is("p", "Running")
        first, second = one.gpus("p", "c0"), one.gpus("p", "c1")
        assert len(first) == len(second) == 1 and first != second
        held = {entry.container: entry.devices for entry in one.world.kubelet.devices._held}
        assert {*held["c0"], *held["c1"]} == set(held["i"])
        assert one.gpus("p", "c2") == []

    shop(body)


def test_cdi_names_or_nodes_mounts_and_environment() -> None:
    async def with_cdi(one: Shop) -> None:
        await one.offers("8")
        one.pod("p")
        await one.world.phase_is("p", "Running")
        config = one.config("p")
        assert "NVIDIA_VISIBLE_DEVICES=void" in config["process"]["env"]
        assert any(mount["destination"].endswith("/nvidia-smi") for mount in config["mounts"])
        (spec,) = one.world.cdi.glob("*.json")
        assert json.loads(spec.read_text())["kind"] == KIND

    async def without(one: Shop) -> None:
        await one.offers("8")
        one.pod("p")
        await one.world.phase_is("p", "Running")
        config = one.config("p")
        assert len(one.gpus("p")) == 1
        assert "/dev/nvidiactl" in [each["path"] for each in config["linux"]["devices"]]
        assert any(mount["destination"].endswith("/nvidia-smi") for mount in config["mounts"])
        assert "NVIDIA_VISIBLE_DEVICES=void" in config["process"]["env"]
        assert not list(one.world.cdi.glob("*.json")) if one.world.cdi.exists() else True

    shop(with_cdi)
    shop(without, answer="nodes")


def test_replicas_are_spread_over_the_gpus() -> None:
    async def body(one: Shop) -> None:
        await one.offers("32", resource="nvidia.com/gpu.shared")
        for number in range(8):
            one.pod(f"p{number}", resource="nvidia.com/gpu.shared")
            await one.world.phase_is(f"p{number}", "Running")
        assert sorted(one.gpus(f"p{number}") for number in range(8)) == [[f"/dev/nvidia{n}"] for n in range(8)]

    shop(body, replicas=4, rename_shared=True)


def test_several_gpus_come_from_one_numa_node() -> None:
    async def body(one: Shop) -> None:
        await one.offers("8")
        nodes = {f"/dev/nvidia{gpu.minor}": gpu.numa_node for gpu in one.machine.devices()}
        assert len(set(nodes.values())) == 2
        one.pod("one")
        one.pod("four", count=4)
        await one.world.phase_is("one", "Running")
        await one.world.phase_is("four", "Running")
        assert len({nodes[path] for path in one.gpus("four")}) == 1

    shop(body)


def test_mig_strategies_and_layouts_that_change() -> None:
    async def mixed(one: Shop) -> None:
        await one.offers("8")
        one.machine.create_mig(0, "3g.20gb")
        one.machine.create_mig(0, "1g.5gb")
        one.machine.create_mig(0, "1g.5gb")
        await one.offers("2", resource="nvidia.com/mig-1g.5gb")
        await one.offers("1", resource="nvidia.com/mig-3g.20gb")
        one.pod("p", resource="nvidia.com/mig-3g.20gb")
        await one.world.phase_is("p", "Running")
        nodes = [each["path"] for each in one.config("p")["linux"]["devices"]]
        assert sum(path.startswith("/dev/nvidia-caps/") for path in nodes) == 2
        await one.offers("7")  # the divided one is no whole GPU any more

    async def single(one: Shop) -> None:
        one.machine.create_mig(0, "1g.5gb")
        one.machine.create_mig(0, "1g.5gb")
        await one.offers("9")

    shop(mixed, "a100-40gb", mig_strategy="mixed")
    shop(single, "a100-40gb", mig_strategy="single")


def test_sick_devices_and_lost_plugins() -> None:
    async def body(world: World) -> None:
        one = Shop(world, "dgx-h100")
        async with serving(one.plugins):
            await one.offers("8")
            one.machine.lose_gpu(2)
            await one.offers("8", "7")
            one.machine.recover_gpu(2)
            await one.offers("8")
        await one.offers("8", "0")

    run(body, driver=False)


def test_a_kubelet_that_starts_again_keeps_what_pods_hold() -> None:
    async def body(one: Shop) -> None:
        await one.offers("8")
        one.pod("p")
        await one.world.phase_is("p", "Running")
        (mine,) = one.gpus("p")
        await one.world.kubelet.stop()
        one.world.kubelet = one.world.new_kubelet()
        await one.world.kubelet.start()
        await one.offers("8")
        for number in range(7):
            one.pod(f"q{number}")
            await one.world.phase_is(f"q{number}", "Running")
        assert mine not in [path for number in range(7) for path in one.gpus(f"q{number}")]
        one.pod("too-many")
        await one.world.phase_is("too-many", "Failed")

    shop(body)


def test_a_damaged_checkpoint_is_no_reason_not_to_start(tmp_path: Path) -> None:
    async def body() -> None:
        for content in (
            b"",
            b"{}",
            b'{"Data": {"PodDeviceEntries": [1]}}',
            b"\xff",
            b'{"Data": {"PodDeviceEntries": 1}}',
        ):
            folder = tmp_path / "device-plugins"
            folder.mkdir(exist_ok=True)
            (folder / "kubelet_internal_checkpoint").write_bytes(content)
            plugins = DevicePlugins(tmp_path, tmp_path, clock=FakeClock(), changed=lambda: None)
            await plugins.start()
            assert plugins.offered() == ({}, {})
            await plugins.stop()

    asyncio.run(body())


class Refusing:
    """An offer with one device that cannot be handed out."""

    resource = "example.com/lamp"

    async def devices(self) -> Any:
        from drakkar.preparation.device_plugin import OfferedDevice

        yield [OfferedDevice("lamp-1")]
        await asyncio.Event().wait()

    def preferred(self, available: Sequence[str], must: Sequence[str], count: int) -> Sequence[str]:
        return list(available)[:count]

    def hand_out(self, ids: Sequence[str]) -> Handout:
        raise DrakkarError(f"{', '.join(ids)} is burnt out", reason="Broken")


def test_a_plugin_that_refuses_rejects_the_pod() -> None:
    async def body(world: World) -> None:
        server = DevicePluginServer(Refusing(), world.folder / "k" / "device-plugins")
        await server.start()
        try:
            await until(lambda: world.node()["status"]["allocatable"].get("example.com/lamp") == "1")
            container = {
                "name": "c0", "image": "busybox", "command": ["true"],
                "resources": {"limits": {"example.com/lamp": "1"}},
            }  # fmt: skip
            world.pod("p", containers=[container])
            await world.phase_is("p", "Failed")
            assert "rpc error: code = FailedPrecondition desc = lamp-1 is burnt out" in world.status("p")["message"]
        finally:
            await server.stop()

    run(body, driver=False)


@pytest.mark.parametrize(
    ("resource", "said"),
    [("cpu", "the ResourceName 'cpu' is invalid"), ("kubernetes.io/gpu", "is invalid")],
)
def test_resources_that_are_none_are_refused(resource: str, said: str) -> None:
    async def body(world: World) -> None:
        class Odd(Refusing):
            pass

        offer = Odd()
        offer.resource = resource
        server = DevicePluginServer(offer, world.folder / "k" / "device-plugins")
        with pytest.raises(DrakkarError, match=said):
            await server.start()
        await server.stop()

    run(body, driver=False)


def test_the_plugin_does_not_start_beside_a_dra_driver() -> None:
    async def body(world: World) -> None:
        await refuse_beside_driver(world.client, NODE)
        world.api.put(
            RESOURCE_SLICES,
            {
                "metadata": {"name": "s"},
                "spec": {"driver": "gpu.nvidia.com", "nodeName": NODE, "devices": [{"name": "gpu-0"}]},
            },
        )
        with pytest.raises(DrakkarError, match=r"publishes the GPUs of node node-1 \(gpu-0\)"):
            await refuse_beside_driver(world.client, NODE)

    run(body, driver=False)
