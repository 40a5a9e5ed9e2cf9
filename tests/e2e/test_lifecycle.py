"""What must never be lost, leaked or stalled while pods come and go, on a real kubelet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from typing import Any

import pytest

from drakkar.api.identities import DeviceKey
from drakkar.preparation.claims import ClaimLedger
from drakkar.preparation.values import ClaimRef, ClaimUID
from drakkar.testing.kubectl import KubectlFailed
from tests.e2e.conftest import PATIENCE, World, helm
from tests.e2e.node import host_numbers
from tests.e2e.scenarios import DriverSetup

TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
}
SMALL_MIG: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-mig"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "mig",
                        "exactly": {
                            "deviceClassName": "mig.nvidia.com",
                            "selectors": [
                                {"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"}}
                            ],
                        },
                    }
                ]
            }
        }
    },
}


def pod(name: str, template: str = "one-gpu", *, claim: str = "", **spec: Any) -> dict[str, Any]:
    """A pod with one claim, of a template or by name."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"resourceClaims": [{"name": "gpu", **source}], **spec},
    }


def claim(name: str) -> dict[str, Any]:
    """A claim for one GPU that outlives its pods."""
    spec = TEMPLATE["spec"]["spec"]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def test_the_node_in_the_container_has_the_numbers_of_the_allocated_gpu(world: World) -> None:
    driver = world.drivers("plain")
    world.apply(TEMPLATE, pod("pod"))
    world.ready("pod")
    result = world.get("resourceclaims")["items"][0]["status"]["allocation"]["devices"]["results"][0]
    gpu = driver.machine.devices()[int(result["device"].removeprefix("gpu-"))]
    seen = world.seen("pod")
    assert seen.gpus == {gpu.uuid}
    assert seen.nodes == host_numbers(driver.machine, [gpu.nodes[0].path])


def test_slices_have_every_device_of_the_host_with_exactly_the_known_attributes(world: World) -> None:
    driver = world.drivers("plain")
    slices = world.get("resourceslices", "--field-selector", "spec.driver=gpu.nvidia.com")["items"]
    devices = [device for one in slices for device in one["spec"]["devices"]]
    assert sorted(device["attributes"]["uuid"]["string"] for device in devices) == sorted(
        gpu.uuid for gpu in driver.machine.devices()
    )
    own = {
        *("type", "uuid", "productName", "brand", "architecture", "cudaComputeCapability", "driverVersion"),
        *("cudaDriverVersion", "addressingMode"),
    }
    standard = {f"resource.kubernetes.io/{name}" for name in ("pciBusID", "pcieRoot", "numaNode")}
    for device in devices:
        named = {name for name in device["attributes"] if not name.startswith("drakkar.dev/")}
        assert named == own | standard
    assert {one["metadata"]["ownerReferences"][0]["name"] for one in slices} == {world.cluster.node}


def test_a_slice_that_somebody_deletes_comes_back(world: World) -> None:
    world.drivers("plain")
    before = world.get("resourceslices")["items"]
    world.kubectl("delete", "resourceslices", "--all", "--wait=false")
    columns = "jsonpath={.items[*].metadata.uid} {.items[*].spec.devices[0].name}"
    found = world.until("resourceslices", "-o", columns, matches=r"\S+ gpu-0", seconds=5)
    assert before[0]["metadata"]["uid"] not in found


def test_a_gpu_is_released_with_its_pod_and_can_be_had_again(world: World) -> None:
    world.drivers("plain")
    world.apply(claim("kept"), pod("first", claim="kept"))
    world.ready("first")
    seen = world.seen("first")
    world.delete("pod", "first")
    world.until("resourceclaim", "kept", "-o", "jsonpath={.status}", matches=r"^(\{\})?$", seconds=10)
    world.apply(pod("second", claim="kept"))
    world.ready("second")
    assert world.seen("second").gpus == seen.gpus  # the first that is free, as before


def test_ten_quick_cycles_leave_nothing_behind(world: World) -> None:
    driver = world.drivers("plain")
    world.apply(TEMPLATE)
    for _ in range(10):
        world.apply(pod("pod"))
        world.ready("pod")
        world.delete("pod", "pod")
    world.until("resourceclaims", "-o", "name", matches=r"^$", seconds=10)
    end = time.monotonic() + 5
    while driver.cdi_files() and time.monotonic() < end:
        time.sleep(0.05)
    assert driver.cdi_files() == []


def test_twelve_pods_on_one_claim_again_and_again(world: World) -> None:
    world.drivers("plain")
    world.apply(claim("shared"))
    for _ in range(2):
        names = [f"pod{number}" for number in range(12)]
        world.apply(*(pod(name, claim="shared") for name in names))
        world.ready(*names, seconds=40)
        assert len({world.seen(name).gpus for name in names}) == 1
        users = world.get("resourceclaim", "shared")["status"]["reservedFor"]
        assert {user["name"] for user in users} == set(names)
        world.delete("pods", "--all")


def test_eight_pods_killed_and_made_again_are_ready_in_three_seconds(world: World) -> None:
    """NVIDIA's driver answers "already allocated to different claim" here, and the kubelet comes back after 90 s."""
    world.drivers("plain")
    names = [f"pod{number}" for number in range(8)]
    world.apply(TEMPLATE, *map(pod, names))
    world.ready(*names)
    times: list[float] = []
    for _ in range(3):
        world.delete("pods", "--all", force=True)
        begun = time.monotonic()
        world.apply(*map(pod, names))
        world.ready(*names, seconds=30)
        times.append(time.monotonic() - begun)
        assert len({world.seen(name).gpus for name in names}) == 8
    print("ready again after", [f"{one:.2f} s" for one in times])
    assert max(times) < 3.0 * PATIENCE, f"{times}\n{world.story()}"


def test_pods_keep_their_gpus_when_the_driver_is_killed(world: World) -> None:
    driver = world.drivers("plain")
    world.apply(TEMPLATE, pod("before"))
    world.ready("before")
    files = driver.cdi_files()
    driver.end(signal.SIGKILL)
    driver.start()
    assert driver.cdi_files() == files
    world.apply(pod("after"))
    world.ready("after")
    assert set(files) < set(driver.cdi_files())
    assert world.seen("after").gpus.isdisjoint(world.seen("before").gpus)
    world.delete("pod", "before")
    world.until("resourceclaims", "-o", "name", matches=r"^\S+after\S+$", seconds=10)


def test_a_restarted_kubelet_finds_the_driver_and_the_claims_again(world: World) -> None:
    world.drivers("plain")
    world.apply(TEMPLATE, pod("before"))
    world.ready("before")
    world.cluster.restart("kubelet", signal.SIGKILL)
    world.apply(pod("after"))
    world.ready("before", "after", seconds=60)
    assert world.seen("after").gpus.isdisjoint(world.seen("before").gpus)


@pytest.mark.parametrize(("setup", "template"), [("plain", TEMPLATE), ("dynamic-mig", SMALL_MIG)])
def test_an_upgrade_serves_all_the_time_and_keeps_held_claims(
    world: World, setup: str, template: dict[str, Any]
) -> None:
    """A rolling update there and back: the new instance registers beside the old one, then the old one goes."""
    driver = world.drivers(setup)
    driver.end()
    driver.start(instance="old")
    name = template["metadata"]["name"]
    world.apply(template, pod("held", name))
    world.ready("held")
    hardware = [world.seen("held").hardware]
    for old, new in (("old", "new"), ("new", "back")):
        driver.start(instance=new)
        world.apply(pod(f"beside-{new}", name))
        world.ready(f"beside-{new}")
        driver.end(instance=old)
        world.apply(pod(f"after-{new}", name))
        world.ready(f"after-{new}")
        hardware += [world.seen(f"beside-{new}").hardware, world.seen(f"after-{new}").hardware]
    assert len({uuid for one in hardware for uuid in one}) == 5
    world.delete("pod", "held")
    world.apply(pod("last", name))
    world.ready("last")
    assert world.seen("last").hardware == hardware[0]
    world.delete("pods", "--all")
    driver.end(instance="back")
    driver.start()


def test_a_damaged_journal_is_set_aside_and_told(world: World) -> None:
    """Corrupt state: no crash loop; the pod that runs goes on, a new one starts, an event on the node says it."""
    driver = world.drivers("plain")
    world.apply(TEMPLATE, pod("held"))
    world.ready("held")
    driver.end(signal.SIGKILL)
    journal = driver.state / "claims.journal"
    content = bytearray(journal.read_bytes())
    content[len(content) // 3] ^= 0xFF
    journal.write_bytes(bytes(content))
    driver.start()
    aside = [path for path in driver.state.iterdir() if path.name.startswith("claims.journal.") and path != journal]
    assert aside, list(driver.state.iterdir())
    selector = "involvedObject.kind=Node,reason=JournalDamaged"
    told = world.kubectl.until("get", "events", "-A", "--field-selector", selector, matches="set aside", seconds=10)
    assert "claims.journal" in told
    world.apply(pod("next"))
    world.ready("held", "next")
    assert world.seen("next").gpus.isdisjoint(world.seen("held").gpus)


def test_an_unfinished_prepare_is_taken_back_at_the_next_start(world: World) -> None:
    """A claim that only its intent knows of: the driver was killed in the middle, and the claim is gone since."""
    driver = world.drivers("dynamic-mig")
    world.apply(SMALL_MIG, pod("held", "one-mig"))
    world.ready("held")
    driver.end(signal.SIGKILL)
    machine = driver.machine
    ledger = ClaimLedger(driver.state / "claims.journal", boot_id=machine.boot_id)
    (held,) = ledger.claims.values()
    stale, device = "00000000-0000-4000-8000-000000000000", "gpu-3-mig-1g10gb-19-0"
    detail = json.loads(json.dumps(held.detail).replace(held.devices[0].device, device))
    key = DeviceKey("gpu.nvidia.com", world.cluster.node, device)
    asyncio.run(ledger.begin(ClaimRef(ClaimUID(stale), "stale", world.namespace), [key], detail=detail))
    ledger.close()
    machine.create_mig(3, "1g.10gb", 0)
    (world.cluster.layout.cdi / f"k8s.gpu.nvidia.com-claim_{stale}.json").write_text("{}")
    driver.start()
    assert not driver.machine.devices()[3].mig_instances
    assert driver.cdi_files() == [f"k8s.gpu.nvidia.com-claim_{held.claim.uid}.json"]
    assert "taking back an unfinished prepare" in driver.log
    assert len(world.seen("held").migs) == 1


def test_metrics_count_what_the_kubelet_asked(world: World) -> None:
    driver = world.drivers("plain")
    prepared = driver.metric("nvidia_dra_requests_total", operation="prepare")
    unprepared = driver.metric("nvidia_dra_requests_total", operation="unprepare")
    world.apply(TEMPLATE, pod("pod"))
    world.ready("pod")
    assert driver.metric("nvidia_dra_requests_total", operation="prepare") == prepared + 1
    assert driver.metric("nvidia_dra_prepared_devices", device_type="gpu", node=world.cluster.node) == 1
    assert driver.metric("nvidia_dra_request_duration_seconds_count", operation="prepare") >= 1
    world.delete("pod", "pod")
    end = time.monotonic() + 10
    while driver.metric("nvidia_dra_requests_total", operation="unprepare") == unprepared:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert driver.metric("nvidia_dra_prepared_devices", device_type="gpu") == 0
    assert driver.get("/readyz")[0] == 200


def test_a_signal_tells_where_the_driver_is_and_disturbs_nothing(world: World) -> None:
    driver = world.drivers("plain")
    os.kill(driver.pid(), signal.SIGUSR2)
    end = time.monotonic() + 10
    while "Stack for <Task" not in driver.log:
        assert time.monotonic() < end, driver.log[-3000:]
        time.sleep(0.05)
    assert "Current thread" in driver.log
    world.apply(TEMPLATE, pod("pod"))
    world.ready("pod")


def test_a_container_reads_what_its_device_is(world: World) -> None:
    """KEP-5304: the file of a template's claim, as the slice has it; another container has none."""
    world.drivers(DriverSetup(options=("--device-metadata",)))
    show = "cat /var/run/kubernetes.io/dra-device-attributes/*/*/*/* 2>&1 | sed 's/^/NODE /'; echo SEEN; sleep 3600"
    with_it = {"name": "main", "command": ["sh", "-c", show]}
    without = {"name": "other", "command": ["sh", "-c", show], "resources": {"claims": []}}
    world.apply(TEMPLATE, pod("pod", containers=[with_it, without]))
    world.ready("pod")
    (claim,) = world.get("resourceclaims")["items"]
    newest, older = sorted(map(json.loads, world.seen("pod").nodes), key=lambda one: one["apiVersion"], reverse=True)
    assert [one["apiVersion"].rpartition("/")[2] for one in (newest, older)] == ["v1beta1", "v1alpha1"]
    assert newest["podClaimName"] == "gpu"
    assert (newest["metadata"]["uid"], newest["metadata"]["name"]) == (
        claim["metadata"]["uid"],
        claim["metadata"]["name"],
    )
    (request,) = newest["requests"]
    result = claim["status"]["allocation"]["devices"]["results"][0]
    assert (request["name"], request["devices"][0]["name"]) == ("gpu", result["device"])
    slices = world.get("resourceslices")["items"]
    published = {device["name"]: device for one in slices for device in one["spec"]["devices"]}
    assert request["devices"][0]["attributes"] == published[result["device"]]["attributes"]
    assert any("No such file" in line for line in world.seen("pod/other").nodes)


def test_a_wrong_configuration_is_told_in_the_pods_events(world: World) -> None:
    """What a cluster without the chart's policy lets through reaches the user by the kubelet, with the field's path."""
    world.drivers("plain")
    world.kubectl("delete", "validatingadmissionpolicybinding", "drakkar-resourceclaims")
    try:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Tiny"}}
        parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
        config = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
        wrong = claim("wrong") | {"spec": {"devices": {"requests": [request], "config": config}}}
        end = time.monotonic() + 10
        while True:
            try:
                world.apply(wrong)
                break
            except KubectlFailed:
                assert time.monotonic() < end
        world.apply(pod("pod", claim="wrong"))
        selector = "involvedObject.name=pod,reason=FailedPrepareDynamicResources"
        told = world.until(
            "events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}", matches="interval"
        )
        assert "sharing.timeSlicingConfig.interval: 'Tiny' is unknown" in told
    finally:
        helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true")


def test_time_slices_are_set_and_set_back(world: World) -> None:
    driver = world.drivers("plain")
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
    config = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
    world.apply(
        claim("long") | {"spec": {"devices": {"requests": [request], "config": config}}}, pod("pod", claim="long")
    )
    world.ready("pod")
    assert sorted(gpu.time_slice for gpu in driver.machine.devices())[-1] == 3
    world.delete("pod", "pod")
    end = time.monotonic() + 10
    while any(gpu.time_slice for gpu in driver.machine.devices()):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_dynamic_mig_is_off_before_and_after(world: World) -> None:
    driver = world.drivers("dynamic-mig")
    assert not any(gpu.mig_enabled for gpu in driver.machine.devices())
    world.apply(SMALL_MIG, pod("pod", "one-mig"))
    world.ready("pod")
    (enabled,) = [gpu for gpu in driver.machine.devices() if gpu.mig_enabled]
    assert world.seen("pod").migs == {enabled.mig_instances[0].uuid}
    world.delete("pod", "pod")
    end = time.monotonic() + 10
    while any(gpu.mig_enabled or gpu.mig_instances for gpu in driver.machine.devices()):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_lost_gpu_is_tainted_and_not_given_to_the_next_pod(world: World) -> None:
    driver = world.drivers("plain")
    world.apply(TEMPLATE, pod("first"))
    world.ready("first")
    (uuid,) = world.seen("first").gpus
    world.delete("pod", "first")
    gpu = next(one for one in driver.machine.devices() if one.uuid == uuid)
    driver.machine.lose_gpu(gpu.index)
    try:
        columns = "jsonpath={.items[*].spec.devices[*].taints[*].key}"
        world.until("resourceslices", "-o", columns, matches="gpu.nvidia.com/gpu-lost", seconds=4)
        world.apply(pod("second"))
        world.ready("second")
        assert uuid not in world.seen("second").gpus
    finally:
        driver.machine.recover_gpu(gpu.index)
    world.until("resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].taints}", matches=r"^\s*$", seconds=4)


def test_mig_instances_made_by_an_administrator_are_published_by_themselves(world: World) -> None:
    driver = world.drivers("static-mig")
    instance = driver.machine.create_mig(2, "1g.10gb")
    columns = "jsonpath={.items[*].spec.devices[*].attributes.uuid.string}"
    world.until("resourceslices", "-o", columns, matches=instance.uuid, seconds=4)
    driver.machine.set_mig_mode(2, False)
    gpu = driver.machine.devices()[2]
    world.until("resourceslices", "-o", columns, matches=gpu.uuid, seconds=4)
