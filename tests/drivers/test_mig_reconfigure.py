"""Static MIG on a node of a cluster: claims are respected, failures taken back, success proved by the slices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from click.testing import CliRunner

from drakkar.cli.mig import command
from drakkar.drivers.gpu.reconfigure import CONFIG_LABEL, REASON_ANNOTATION, STATE_LABEL, Reconfiguration
from drakkar.errors import DrakkarError
from drakkar.kube import kubeconfig
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.resources import DEVICE_TAINT_RULES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from drakkar.testing.clusters import EmbeddedCluster
from drakkar.vendors.nvidia import layouts
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine

T = TypeVar("T")
NODE, MODEL = "a100-40gb-0", "a100-40gb"
FILE = {
    "version": "v1",
    "mig-configs": {
        "off": [{"devices": "all", "mig-enabled": False}],
        "small": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}],
        "mixed": [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.20gb": 1, "2g.10gb": 1}}],
        "too-much": [{"devices": "all", "mig-enabled": True, "mig-devices": {"7g.40gb": 2}}],
    },
}
RULES = layouts.parse(FILE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        assert running.add_node(MODEL) == NODE
        yield running


@pytest.fixture
def machine(cluster: EmbeddedCluster) -> Iterator[SimulatedMachine]:
    """The node's machine as another process sees it, whole again after the test, in its slices, too."""
    own = build_machine(MODEL, NODE, cluster.kubeconfig.parent / "nodes" / NODE / "machine")
    yield own
    for index in range(len(own.devices())):
        own.poll()
        own.set_mig_mode(index, False)
    outcome = with_client(cluster, lambda client: Reconfiguration(own, client, NODE).apply(RULES["off"]))
    assert outcome.state == "success"


def with_client(cluster: EmbeddedCluster, work: Callable[[Client], Awaitable[T]]) -> T:
    async def main() -> T:
        client = Client(HttpsTransport(kubeconfig.load(cluster.kubeconfig)))
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(main())


def label(cluster: EmbeddedCluster, value: str | None) -> None:
    labels = {CONFIG_LABEL: value} | ({} if value else {STATE_LABEL: None})
    change = {"metadata": {"labels": labels, "annotations": {REASON_ANNOTATION: None}}}
    with_client(cluster, lambda client: client.patch(NODES, NODE, change))


def state(cluster: EmbeddedCluster) -> tuple[str, str]:
    node = with_client(cluster, lambda client: client.get(NODES, NODE))
    metadata = node["metadata"]
    return metadata["labels"].get(STATE_LABEL, ""), (metadata.get("annotations") or {}).get(REASON_ANNOTATION, "")


async def published(client: Client) -> list[str]:
    slices = (await client.list(RESOURCE_SLICES)).items
    return sorted(device["name"] for one in slices for device in one["spec"].get("devices", ()))


def test_success_is_when_the_slices_show_it(cluster: EmbeddedCluster, machine: SimulatedMachine) -> None:
    label(cluster, "mixed")

    async def main(client: Client) -> None:
        doing = Reconfiguration(machine, client, NODE)
        outcome = await doing.apply(RULES["mixed"])
        assert (outcome.state, outcome.reason) == ("success", "")
        assert len(await published(client)) == 2 * len(machine.devices())
        assert not (await client.list(DEVICE_TAINT_RULES)).items
        assert (await doing.apply(RULES["mixed"])).done == ()
        assert (await doing.apply(RULES["off"])).state == "success"
        assert await published(client) == [f"gpu-{gpu.minor}" for gpu in machine.devices()]

    with_client(cluster, main)
    assert state(cluster) == ("success", "")


def test_a_node_without_the_label_keeps_none(cluster: EmbeddedCluster, machine: SimulatedMachine) -> None:
    label(cluster, None)
    with_client(cluster, lambda client: Reconfiguration(machine, client, NODE).apply(RULES["too-much"]))
    assert state(cluster) == ("", "")


def test_what_is_held_is_named_and_not_touched(cluster: EmbeddedCluster, machine: SimulatedMachine) -> None:
    label(cluster, "small")

    async def main(client: Client) -> None:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        claim = await client.create(
            RESOURCE_CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "busy", "namespace": "default"}, "spec": {"devices": {"requests": [request]}},
            },
        )  # fmt: skip
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-0"}
        allocation = {"allocation": {"devices": {"results": [result]}}}
        claim = await client.update(RESOURCE_CLAIMS, {**claim, "status": allocation}, subresource="status")
        outcome = await Reconfiguration(machine, client, NODE).apply(RULES["small"])
        assert outcome.state == "failed" and outcome.holders == ("claim default/busy (gpu-0)",)
        machine.poll()
        assert not any(gpu.mig_enabled for gpu in machine.devices())
        assert not (await client.list(DEVICE_TAINT_RULES)).items
        await client.delete(RESOURCE_CLAIMS, "busy", "default")

    with_client(cluster, main)
    assert state(cluster) == ("failed", "what would go is in use by claim default/busy (gpu-0)")


def test_a_failure_half_way_is_taken_back(
    cluster: EmbeddedCluster, machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    label(cluster, "mixed")
    with_client(cluster, lambda client: Reconfiguration(machine, client, NODE).apply(RULES["mixed"]))
    before = [gpu.mig_instances for gpu in machine.devices()]
    real, calls = machine.create_mig, []

    def fails_once(index: int, profile: str, start: int | None = None) -> Any:
        calls.append(profile)
        if len(calls) == 4:
            raise DrakkarError("In use by another client", reason="InUse")
        return real(index, profile, start)

    monkeypatch.setattr(machine, "create_mig", fails_once)
    outcome = with_client(cluster, lambda client: Reconfiguration(machine, client, NODE).apply(RULES["small"]))
    assert outcome.state == "failed" and not outcome.done
    assert "create 1g.5gb at" in outcome.reason and "In use by another client" in outcome.reason
    assert outcome.reason.endswith("everything is as it was before")
    machine.poll()
    assert [{(one.profile.name, one.start) for one in gpu.mig_instances} for gpu in machine.devices()] == [
        {(one.profile.name, one.start) for one in instances} for instances in before
    ]
    assert state(cluster) == ("failed", outcome.reason)


def test_slices_that_do_not_follow_are_no_success(
    cluster: EmbeddedCluster, machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drakkar.drivers.gpu.reconfigure._SLICES_SECONDS", 0.3)
    cluster.fault("driver-killed", NODE)
    try:
        outcome = with_client(cluster, lambda client: Reconfiguration(machine, client, NODE).apply(RULES["mixed"]))
        assert outcome.state == "failed" and len(outcome.done) > 0
        assert "did not follow: no gpu-0-mig-2g10gb" in outcome.reason and "still gpu-0" in outcome.reason
    finally:
        cluster.fault("driver-started", NODE)


def test_the_label_is_followed_and_its_absence_means_nothing(
    cluster: EmbeddedCluster, machine: SimulatedMachine
) -> None:
    label(cluster, None)

    async def main(client: Client) -> None:
        said: list[str] = []
        following = asyncio.create_task(Reconfiguration(machine, client, NODE, progress=said.append).follow(RULES))

        async def until(text: str) -> None:
            for _ in range(600):
                if any(line.startswith(text) for line in said):
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(said)

        try:
            await asyncio.sleep(0.3)
            assert said == []
            await client.patch(NODES, NODE, {"metadata": {"labels": {CONFIG_LABEL: "mixed"}}})
            await until("success")
            assert len(await published(client)) == 2 * len(machine.devices())
            said.clear()
            await client.patch(NODES, NODE, {"metadata": {"labels": {CONFIG_LABEL: None}}})
            await client.patch(NODES, NODE, {"metadata": {"labels": {CONFIG_LABEL: "mised"}}})
            await until("failed: there is no layout 'mised'; known are mixed, off, small, too-much")
            assert len(await published(client)) == 2 * len(machine.devices())
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    with_client(cluster, main)


def test_the_commands(cluster: EmbeddedCluster, machine: SimulatedMachine, tmp_path: Path) -> None:
    file = tmp_path / "layouts.yaml"
    file.write_text(yaml.safe_dump(FILE))
    here = ["--machine", MODEL, "--machine-dir", str(cluster.kubeconfig.parent / "nodes" / NODE / "machine")]
    here += ["--node-name", NODE]
    run = CliRunner().invoke

    planned = run(command, ["plan", "-f", str(file), "--config", "mixed", *here])
    assert planned.exit_code == 0 and "enable MIG mode; create 3g.20gb at" in planned.output
    assert run(command, ["assert", "-f", str(file), "--config", "mixed", *here]).exit_code == 1
    words = ["apply", "-f", str(file), "--config", "mixed", "--kubeconfig", str(cluster.kubeconfig), *here]
    applied = run(command, words)
    assert applied.exit_code == 0 and applied.stdout.startswith("success: ")
    assert run(command, words).stdout == "success: nothing had to change\n"
    asserted = run(command, ["assert", "-f", str(file), "--config", "mixed", "-o", "json", *here])
    assert asserted.exit_code == 0 and json.loads(asserted.output) == {"equal": True, "different": []}
    exported = run(command, ["export", "--config", "mixed", *here])
    assert yaml.safe_load(exported.output)["mig-configs"]["mixed"][0]["mig-devices"] == {"2g.10gb": 1, "3g.20gb": 1}
    failed = run(command, ["apply", "-f", str(file), "--config", "too-much", "--offline", "-o", "json", *here])
    assert failed.exit_code == 1 and "do not fit" in json.loads(failed.stdout)["reason"]
    with pytest.raises(DrakkarError, match="there is no layout 'x'"):
        run(command, ["plan", "-f", str(file), "--config", "x", *here], catch_exceptions=False)
    file.write_text("a: [")
    with pytest.raises(DrakkarError, match="is no YAML"):
        run(command, ["plan", "-f", str(file), "--config", "x", *here], catch_exceptions=False)
    with pytest.raises(DrakkarError, match="cannot read"):
        run(command, ["plan", "-f", str(tmp_path), "--config", "x", *here], catch_exceptions=False)
