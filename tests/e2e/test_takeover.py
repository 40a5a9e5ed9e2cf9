"""A node changes hands while its pods run: from NVIDIA's driver to ours by `--adopt`, and back by `--hand-back`.

NVIDIA's driver itself is not run. What it leaves is put there for a pod that really runs: its checkpoint in version 1
or 2, and the claim's CDI file under its name; ours is taken away with the journal that made it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from drakkar.drivers.gpu import predecessor as nvidia
from tests.checkpoints import DRIVER, checkpoint, entry
from tests.e2e.conftest import World, helm
from tests.e2e.node import DRAKKAR, Driver, DriverFailed
from tests.e2e.test_lifecycle import TEMPLATE, pod


@pytest.fixture
def driver(world: World) -> Iterator[Driver]:
    """The driver; afterwards nothing of NVIDIA's is on the node, and ours runs again."""
    found = world.drivers("plain")
    yield found
    world.delete("pods", "--all")
    found.end_all()
    for name in ("checkpoint.json", "checkpoint.adopted"):
        (found.state / name).unlink(missing_ok=True)
    helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true")
    found.start()


def as_nvidias(world: World, driver: Driver, *, versions: str) -> dict[str, str]:
    """Ends our driver and leaves the node as NVIDIA's would for the claims that are held: UIDs by pod."""
    claims = world.get("resourceclaims")["items"]
    driver.end()
    held = {}
    for one in claims:
        metadata, status = one["metadata"], one["status"]
        (result,) = status["allocation"]["devices"]["results"]
        held[metadata["uid"]] = entry(
            metadata["uid"],
            result["device"],
            name=metadata["name"],
            namespace=world.namespace,
            pool=world.cluster.node,
            info="<made by another driver>",
        )
        path = world.cluster.layout.cdi / f"k8s.{DRIVER}-claim_{metadata['uid']}.json"
        path.rename(path.with_suffix(".yaml"))
    (driver.state / "claims.journal").unlink()
    document = checkpoint(driver.machine.boot_id, held, versions=versions)
    (driver.state / "checkpoint.json").write_bytes(nvidia.encoded(document))
    return {one["status"]["reservedFor"][0]["name"]: one["metadata"]["uid"] for one in claims}


def container(world: World, name: str) -> tuple[str, int]:
    """Which container of the pod runs, and how often it was restarted."""
    status = world.get("pod", name)["status"]["containerStatuses"][0]
    assert "running" in status["state"], status
    return status["containerID"], status["restartCount"]


@pytest.mark.parametrize("versions", ["12", "1"])
def test_a_running_pod_keeps_its_gpu_and_gives_it_back_at_its_end(world: World, driver: Driver, versions: str) -> None:
    world.apply(TEMPLATE, pod("theirs"))
    world.ready("theirs")
    seen, before = world.seen("theirs").gpus, container(world, "theirs")
    uid = as_nvidias(world, driver, versions=versions)["theirs"]
    if versions == "1":  # without names: which claims those are, only the list of all tells
        with pytest.raises(DriverFailed, match="may not list them"):
            driver.start("--adopt")
        assert container(world, "theirs") == before
        helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true", "--set", "driver.adopt=true")
    driver.start("--adopt")
    assert driver.cdi_files() == [f"k8s.{DRIVER}-claim_{uid}.json"]
    state = json.loads(driver.get("/debug/state")[1])
    assert [(one["uid"], one["state"]) for one in state["claims"]] == [(uid, "prepared")]
    others = [f"ours{number}" for number in range(7)]
    world.apply(*map(pod, [*others, "waits"]))
    columns = r"jsonpath={.items[?(@.status.phase=='Running')].metadata.name}"
    running = set(world.until("pods", "-o", columns, matches=r"^(\S+ ){7}\S+$").split())
    taken = {name: world.seen(name).gpus for name in running - {"theirs"}}
    assert len(set().union(*taken.values())) == 7
    assert seen.isdisjoint(set().union(*taken.values()))
    assert container(world, "theirs") == before
    world.delete("pod", "theirs")
    world.ready(*({*others, "waits"} - running))
    (last,) = {*others, "waits"} - running
    assert world.seen(last).gpus == seen
    assert f"k8s.{DRIVER}-claim_{uid}.json" not in driver.cdi_files()


def test_a_rollback_leaves_the_node_to_nvidias_driver_with_its_running_pods(world: World, driver: Driver) -> None:
    world.apply(TEMPLATE, pod("stays"), pod("goes"))
    world.ready("stays", "goes")
    before = container(world, "stays")
    uids = as_nvidias(world, driver, versions="12")
    entries = json.loads((driver.state / "checkpoint.json").read_bytes())["v2"]["preparedClaims"]
    driver.start("--adopt")
    refused = hand_back(world, driver)
    assert refused.returncode != 0
    assert "another plugin of driver gpu.nvidia.com is serving" in refused.stderr
    world.delete("pod", "goes")
    world.until("resourceclaims", "-o", "name", matches=r"^\S+stays\S+$", seconds=10)
    driver.end()
    done = hand_back(world, driver)
    assert (done.returncode, "handed back 1 claims" in done.stdout) == (0, True), done.stderr
    document = json.loads((driver.state / "checkpoint.json").read_bytes())
    assert nvidia.verified(document)
    stays = uids["stays"]
    assert document["v2"]["preparedClaims"] == {stays: entries[stays]}
    assert list(document["v1"]["preparedClaims"]) == [stays]
    assert driver.cdi_files() == [f"k8s.{DRIVER}-claim_{stays}.yaml"]
    assert container(world, "stays") == before
    driver.start("--adopt")  # and over again, as after a second attempt
    assert driver.cdi_files() == [f"k8s.{DRIVER}-claim_{stays}.json"]
    assert container(world, "stays") == before


def test_a_second_live_plugin_is_refused_and_disturbs_nothing(world: World, driver: Driver) -> None:
    world.apply(TEMPLATE, pod("held"))
    world.ready("held")
    files, before = driver.cdi_files(), container(world, "held")
    second = subprocess.run(command(world, driver, "--adopt"), capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode != 0
    assert "another plugin of driver gpu.nvidia.com is serving on" in second.stderr
    assert "Traceback" not in second.stderr
    assert driver.cdi_files() == files
    assert driver.get("/readyz")[0] == 200
    world.apply(pod("next"))
    world.ready("next")
    assert world.seen("next").gpus.isdisjoint(world.seen("held").gpus)
    assert container(world, "held") == before


def command(world: World, driver: Driver, *options: str) -> list[Any]:
    """`drakkar driver gpu` for the same node and machine."""
    at = world.cluster.layout
    return [
        *(DRAKKAR, "driver", "gpu", f"--node-name={world.cluster.node}"),
        *(f"--machine={driver.setup.model}", f"--machine-dir={driver.folder}"),
        *(f"--plugins-dir={at.plugins}", f"--registry-dir={at.registry}", f"--cdi-dir={at.cdi}"),
        *(f"--kubeconfig={driver.kubeconfig}", *options),
    ]


def hand_back(world: World, driver: Driver) -> subprocess.CompletedProcess[str]:
    """`drakkar driver gpu --hand-back`."""
    return subprocess.run(
        command(world, driver, "--hand-back"), capture_output=True, text=True, timeout=60, check=False
    )
