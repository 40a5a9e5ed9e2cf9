"""The old way on the real kubelet: `nvidia.com/gpu` from `drakkar device-plugin`, and never beside the DRA driver."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import PATIENCE, World
from tests.e2e.node import DRAKKAR, Driver

#: The kubelet's folder for the old way; a constant in its source, whatever its root directory is.
_SOCKETS = Path("/var/lib/kubelet/device-plugins")


@pytest.fixture
def driver(world: World) -> Iterator[Driver]:
    """The DRA driver of the node; it runs again afterwards."""
    found = world.drivers("plain")
    yield found
    world.delete("pods", "--all")
    found.end_all()
    found.start()


def command(world: World, driver: Driver, *options: str) -> list[Any]:
    """`drakkar device-plugin` for the driver's machine."""
    at = world.cluster.layout
    return [
        *(DRAKKAR, "device-plugin", f"--node-name={world.cluster.node}", f"--kubeconfig={world.cluster.kubeconfig}"),
        *(f"--machine={driver.setup.model}", f"--machine-dir={driver.folder}"),
        *(f"--plugins-dir={_SOCKETS}", f"--cdi-dir={at.cdi}", *options),
    ]


@contextmanager
def offering(world: World, driver: Driver, *options: str) -> Iterator[None]:
    """The plugin runs; the driver does not, and publishes nothing."""
    driver.end()
    world.kubectl("delete", "resourceslices", "--all")
    with (driver.folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(command(world, driver, *options), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0, driver.log[-3000:]


def allocatable(world: World, resource: str, count: str) -> None:
    """Waits until the node offers so many."""
    columns = f"jsonpath={{.status.allocatable.{resource.replace('.', chr(92) + '.')}}}"
    world.until("node", world.cluster.node, "-o", columns, matches=f"^{count}$", seconds=30 * PATIENCE)


def pod(name: str, resource: str) -> dict[str, Any]:
    """A pod with one of a resource."""
    container = {"name": "main", "resources": {"limits": {resource: 1}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def test_it_refuses_to_start_beside_the_driver_of_the_same_gpus(world: World, driver: Driver) -> None:
    done = subprocess.run(command(world, driver), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "gpu.nvidia.com" in done.stderr and "Traceback" not in done.stderr
    assert not list(_SOCKETS.glob("*nvidia*"))


@pytest.mark.parametrize("answer", ["cdi", "nodes"])
def test_pods_get_gpus_of_their_own_by_the_old_name(world: World, driver: Driver, answer: str) -> None:
    with offering(world, driver, f"--answer={answer}"):
        allocatable(world, "nvidia.com/gpu", "8")
        world.apply(pod("one", "nvidia.com/gpu"), pod("two", "nvidia.com/gpu"))
        world.ready("one", "two")
        seen = [world.seen(name).gpus for name in ("one", "two")]
        assert [len(one) for one in seen] == [1, 1]
        assert seen[0].isdisjoint(seen[1])
        assert seen[0] | seen[1] <= {gpu.uuid for gpu in driver.machine.devices()}
        driver.machine.lose_gpu(7)
        allocatable(world, "nvidia.com/gpu", "7")
        driver.machine.recover_gpu(7)
        allocatable(world, "nvidia.com/gpu", "8")
        world.delete("pods", "--all")
    allocatable(world, "nvidia.com/gpu", "0")


def test_replicas_share_a_gpu(world: World, driver: Driver) -> None:
    with offering(world, driver, "--replicas=2", "--rename-shared"):
        allocatable(world, "nvidia.com/gpu.shared", "16")
        world.apply(*(pod(f"pod{number}", "nvidia.com/gpu.shared") for number in range(9)))
        world.ready(*(f"pod{number}" for number in range(9)), seconds=40)
        seen = [world.seen(f"pod{number}").gpus for number in range(9)]
        assert all(len(one) == 1 for one in seen)
        assert len({uuid for one in seen for uuid in one}) == 8  # spread before anything is shared
        world.delete("pods", "--all")
