"""A machine with one GPU, which goes from containers to virtual machines and back, on a real kubelet."""

from __future__ import annotations

import signal
from typing import Any

from tests.e2e.conftest import World
from tests.e2e.scenarios import DriverSetup

ONE_GPU = DriverSetup(model="t4", options=("--passthrough",))
ADDRESS = "0000:00:1e.0"


def template(name: str, device_class: str) -> dict[str, Any]:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


TEMPLATES = (template("container", "gpu.nvidia.com"), template("vm", "vfio.gpu.nvidia.com"))


def pod(name: str, kind: str) -> dict[str, Any]:
    claims = [{"name": "gpu", "resourceClaimTemplateName": kind}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"resourceClaims": claims}}


def published(world: World) -> list[str]:
    slices = world.get("resourceslices", "--field-selector", "spec.driver=gpu.nvidia.com")["items"]
    return sorted(device["name"] for one in slices for device in one["spec"].get("devices", ()))


def test_the_gpu_is_had_in_one_way_at_a_time_and_comes_back(world: World) -> None:
    driver = world.drivers(ONE_GPU)
    assert published(world) == ["gpu-0", "gpu-vfio-0"]
    world.apply(*TEMPLATES, pod("machine", "vm"))
    world.ready("machine")
    assert published(world) == ["gpu-vfio-0"]
    assert {node.split()[0] for node in world.seen("machine").nodes} == {"/dev/vfio/vfio", "/dev/vfio/10"}
    world.apply(pod("container", "container"))
    reason = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
    world.until("pod", "container", "-o", reason, matches="cannot allocate all claims")
    world.delete("pod", "machine")
    world.ready("container")
    assert len(world.seen("container").gpus) == 1
    assert published(world) == ["gpu-0"]
    machine = driver.machine
    assert (machine.bus.driver(ADDRESS), machine.bus.overridden(ADDRESS)) == ("nvidia", "")


def test_two_pods_at_once_are_not_given_the_same_gpu(world: World) -> None:
    world.drivers(ONE_GPU)
    world.apply(*TEMPLATES, pod("machine", "vm"), pod("container", "container"))
    columns = r'jsonpath={range .items[*]}{.status.phase}{"\n"}{end}'
    world.until("pods", "-o", columns, matches=r"^(Running\nPending|Pending\nRunning)\n$")
    phases = {one["metadata"]["name"]: one["status"]["phase"] for one in world.get("pods")["items"]}
    first, second = sorted(phases, key=lambda name: phases[name] == "Pending")
    reason = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
    world.until("pod", second, "-o", reason, matches="cannot allocate all claims")
    world.delete("pod", first)
    world.ready(second)


def test_a_killed_driver_knows_the_gpu_of_a_machine_that_runs_on(world: World) -> None:
    driver = world.drivers(ONE_GPU)
    world.apply(*TEMPLATES, pod("machine", "vm"))
    world.ready("machine")
    driver.end(signal.SIGKILL)
    driver.start()
    assert driver.machine.bus.driver(ADDRESS) == "vfio-pci"
    world.delete("pod", "machine")
    world.apply(pod("container", "container"))
    world.ready("container")


def test_a_process_that_has_the_gpu_open_is_named_in_the_pods_events(world: World) -> None:
    driver = world.drivers(ONE_GPU)
    driver.machine.bus.hold("/dev/nvidia0", 4711, "dcgm-exporter")
    try:
        world.apply(*TEMPLATES, pod("machine", "vm"))
        selector = "involvedObject.name=machine,reason=FailedPrepareDynamicResources"
        told = rf"GPU {ADDRESS} \(/dev/nvidia0\) is in use by dcgm-exporter \(process 4711\)"
        world.until("events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}", matches=told)
    finally:
        driver.machine.bus.let_go(4711)
    assert driver.machine.bus.driver(ADDRESS) == "nvidia"
    world.delete("pod", "machine")
