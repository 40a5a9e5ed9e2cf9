"""What an administrator does on a node while its pods run: dividing GPUs, looking at devices in use, losing one."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from drakkar.testing.kubectl import KubectlFailed
from tests.e2e.conftest import PATIENCE, World, helm
from tests.e2e.node import DRAKKAR, Driver
from tests.e2e.test_lifecycle import TEMPLATE, pod

LAYOUTS = {
    "version": "v1",
    "mig-configs": {
        "sevenths": [{"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}],
        "whole": [{"devices": "all", "mig-enabled": False}],
    },
}
LABELS = r"jsonpath={.metadata.labels.nvidia\.com/mig\.config} {.metadata.labels.nvidia\.com/mig\.config\.state}"


def mig(world: World, driver: Driver, verb: str, config: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`drakkar mig VERB --config CONFIG` on the driver's machine, as the cluster's administrator."""
    file = folder / "layouts.yaml"
    file.write_text(yaml.safe_dump(LAYOUTS))
    words = [f"--node-name={world.cluster.node}", f"--machine={driver.setup.model}", f"--machine-dir={driver.folder}"]
    command = [DRAKKAR, "mig", verb, "--file", file, "--config", config, *words]
    return subprocess.run(
        command, env=world.cluster.environment, capture_output=True, text=True, timeout=90, check=False
    )


def test_gpus_are_divided_by_a_layout_once_nobody_holds_them(world: World, tmp_path: Path) -> None:
    """Refused with the name of who holds what would go; then done, and success means that the slices show it."""
    driver = world.drivers("static-mig")
    node = world.cluster.node
    try:
        request = {"name": "half", "exactly": {"deviceClassName": "mig.nvidia.com"}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        world.apply(TEMPLATE | {"metadata": {"name": "half"}, "spec": spec}, pod("holder", "half"))
        world.ready("holder")
        seen = world.seen("holder").migs
        world.kubectl("label", "node", node, "nvidia.com/mig.config=sevenths")
        refused = mig(world, driver, "apply", "sevenths", tmp_path)
        assert refused.returncode == 1
        (claim,) = world.get("resourceclaims")["items"]
        assert f"{world.namespace}/{claim['metadata']['name']}" in refused.stdout, refused
        assert "failed" in world.get("node", node)["metadata"]["labels"]["nvidia.com/mig.config.state"]
        assert seen <= {one.uuid for gpu in driver.machine.devices() for one in gpu.mig_instances}
        world.delete("pod", "holder")
        world.until("resourceclaims", "-o", "name", matches=r"^$")
        done = mig(world, driver, "apply", "sevenths", tmp_path)
        assert (done.returncode, done.stdout.startswith("success")) == (0, True), done
        world.until("node", node, "-o", LABELS, matches="^sevenths success$")
        slices = world.get("resourceslices", "--field-selector", "spec.driver=gpu.nvidia.com")["items"]
        profiles = [
            device["attributes"]["profile"]["string"]
            for one in slices
            for device in one["spec"]["devices"]
            if "profile" in device["attributes"]
        ]
        assert profiles == ["1g.10gb"] * 14
        assert mig(world, driver, "assert", "sevenths", tmp_path).returncode == 0
        assert mig(world, driver, "assert", "whole", tmp_path).returncode != 0
    finally:
        for label in ("nvidia.com/mig.config-", "nvidia.com/mig.config.state-"):
            world.kubectl("label", "node", node, label)
        world.delete("pods", "--all")
        world.drivers.end()  # its machine is another one now


def test_admin_access_sees_every_gpu_and_disturbs_nobody(world: World) -> None:
    """A monitoring pod with admin access on all devices, those in use and those that come into use (KEP-5018)."""
    world.drivers("plain")
    world.kubectl("label", "namespace", world.namespace, "resource.kubernetes.io/admin-access=true")
    exactly: dict[str, Any] = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All", "adminAccess": True}
    spec = {"spec": {"devices": {"requests": [{"name": "all", "exactly": exactly}]}}}
    helm(
        world.cluster, "upgrade", "--set", "tenancy.enabled=true", "--set", "tenancy.tenancies.default.adminAccess=true"
    )
    try:
        world.apply(TEMPLATE, pod("user"))
        world.ready("user")
        end = time.monotonic() + 20 * PATIENCE
        while True:  # the API server takes a changed policy in a moment later
            try:
                world.apply(TEMPLATE | {"metadata": {"name": "every-gpu"}, "spec": spec})
                break
            except KubectlFailed:
                assert time.monotonic() < end
                time.sleep(0.2)
        world.apply(pod("monitor", "every-gpu"))
        world.ready("monitor")
        assert len(world.seen("monitor").gpus) == 8
        assert world.seen("user").gpus < world.seen("monitor").gpus
        world.apply(pod("later"))
        world.ready("later")
        assert world.seen("later").gpus.isdisjoint(world.seen("user").gpus)
        world.delete("pod", "monitor")
        world.ready("user", "later")
    finally:
        helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true")


def test_the_status_of_a_pod_says_that_its_gpu_is_lost(world: World) -> None:
    """KEP-4680: the health stream, through the kubelet, to whoever looks at the pod; and an event about the node."""
    driver = world.drivers("plain")
    world.apply(TEMPLATE, pod("pod"))
    world.ready("pod")
    (uuid,) = world.seen("pod").gpus
    gpu = next(one for one in driver.machine.devices() if one.uuid == uuid)
    health = "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}"
    world.until("pod", "pod", "-o", health, matches="^Healthy$")
    driver.machine.lose_gpu(gpu.index)
    try:
        world.until("pod", "pod", "-o", health, matches="^Unhealthy$")
        selector = "involvedObject.kind=Node,reason=DeviceUnhealthy"
        columns = ("-o", "jsonpath={.items[*].message}")
        command = ("get", "events", "-A", "--field-selector", selector, *columns)
        assert f"gpu-{gpu.minor}: " in world.kubectl.until(*command, matches="fallen off the bus", seconds=20)
    finally:
        driver.machine.recover_gpu(gpu.index)
    world.until("pod", "pod", "-o", health, matches="^Healthy$")
    state = json.loads(driver.get("/debug/state")[1])
    assert {one["health"] for one in state["health"]} == {"HEALTHY"}
