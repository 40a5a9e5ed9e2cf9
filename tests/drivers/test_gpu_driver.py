"""The GPU driver on a simulated machine: prepare, unprepare, faults, restarts, and what is refused in which words."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_node import CLAIMS, PODS, GpuNode, nodes_of, on, running
from test_gpu_mps import until

from drakkar.injection.cache import CdiCache
from drakkar.kube.clock import FakeClock
from drakkar.kube.transport import ApiResponse
from drakkar.preparation.journal import JournalError
from drakkar.vendors.nvidia.published import PublishOptions


def test_a_claim_gets_its_gpu_as_a_cdi_device_that_resolves(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        uid = node.claim("c", "gpu-3")
        (device,) = (await node.prepare("c", uid)).devices
        assert (device.pool_name, device.device_name) == ("n1", "gpu-3")
        assert list(device.request_names) == ["gpu"]
        assert list(device.cdi_device_ids) == [f"k8s.gpu.nvidia.com/claim={uid}-gpu-3"]
        cache = CdiCache([node.cdi])
        edited = cache.inject({"ociVersion": "1.0.0", "process": {"env": []}}, list(device.cdi_device_ids))
        nodes = {one["path"]: (one["major"], one["minor"]) for one in edited["linux"]["devices"]}
        assert nodes["/dev/nvidia3"] == (195, 3)
        assert nodes["/dev/nvidiactl"] == (195, 255)
        assert "/dev/nvidia0" not in nodes
        assert "NVIDIA_VISIBLE_DEVICES=void" in edited["process"]["env"]
        mounted = {one["destination"]: Path(one["source"]) for one in edited["mounts"]}
        assert mounted["/usr/bin/nvidia-smi"].exists()
        assert all(source.exists() for source in mounted.values())

    on(GpuNode(tmp_path), story)


def test_prepare_and_unprepare_are_idempotent_and_leave_nothing(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        uid = node.claim("c", "gpu-0")
        first = await node.prepare("c", uid)
        assert await node.prepare("c", uid) == first
        (node.cdi / node.files()[0]).unlink()
        assert await node.prepare("c", uid) == first
        assert nodes_of(node.spec(uid)) == ["/dev/nvidia0"]
        for _ in range(2):
            assert (await node.unprepare("c", uid)).error == ""
        assert node.files() == []
        assert not node.driver.claims

    on(GpuNode(tmp_path), story)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node: node.api.remove(f"{CLAIMS}/c"), "does not exist"),
        (lambda node: node.api.put(f"{CLAIMS}/c", {"metadata": {"uid": "another"}}), "it was replaced"),
        (lambda node: node.api.put(f"{CLAIMS}/c", {"status": {}}), "is not allocated"),
        (lambda node: node.claim("c", "gpu-9"), "requested device gpu-9 is not known on node n1"),
        (lambda node: node.claim("c", "gpu-0-mig-1g10gb-19-0"), "its MIG instance was destroyed"),
        (lambda node: node.machine.lose_gpu(0), "fell off the bus"),
    ],
)
def test_what_cannot_be_prepared_says_why_and_holds_nothing(
    tmp_path: Path, change: Callable[[GpuNode], object], message: str
) -> None:
    async def story(node: GpuNode) -> None:
        uid = node.claim("c", "gpu-0")
        change(node)
        assert message in (await node.prepare("c", uid)).error
        assert not node.driver.claims
        assert node.files() == []

    on(GpuNode(tmp_path), story)


def test_asked_again_it_looks_that_files_and_devices_are_still_there(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        node.machine.create_mig(1, "3g.40gb")
        name = next(device["name"] for device in await node.published() if "mig" in device["name"])
        whole, part = node.claim("whole", "gpu-0", pods=("p",)), node.claim("part", name, pods=("p",))
        first = {key: await node.prepare(key, uid) for key, uid in (("whole", whole), ("part", part))}
        device = node.machine.driver_root / "dev/nvidia0"
        control = node.machine.driver_root / "dev/nvidiactl"
        before = device.stat()
        for path in (device, control, node.cdi / f"k8s.gpu.nvidia.com-claim_{whole}.json"):
            path.unlink()
        again = await node.prepare("whole", whole)
        assert again == first["whole"]
        assert node.spec(whole) is not None
        if os.geteuid() == 0:
            assert (device.stat().st_rdev, device.stat().st_mode) == (before.st_rdev, before.st_mode)
            assert control.exists()
        instance = node.machine.devices()[1].mig_instances[0]
        node.machine.destroy_mig(1, instance.gpu_instance)
        assert "does not exist" in (await node.prepare("part", part)).error
        node.machine.create_mig(1, "3g.40gb")
        assert not (await node.prepare("part", part)).error

    on(GpuNode(tmp_path), story)


def test_turns_of_health_are_told_once_for_each_cause(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        def told() -> dict[str, str]:
            events = node.api.under("/api/v1/namespaces/default/events")
            return {obj["reason"]: obj["message"] for obj in events if obj["reason"].startswith("Device")}

        await node.published()
        assert told() == {}  # healthy from the start is no news
        node.machine.lose_gpu(2)
        for _ in range(50):
            if "DeviceUnhealthy" in told():
                break
            await asyncio.sleep(0.02)
        message = told()["DeviceUnhealthy"]
        assert message.endswith("has fallen off the bus")
        assert "gpu-2, gpu-2-mig-1g10gb" in message and " more: " in message
        node.machine.recover_gpu(2)
        for _ in range(50):
            if "DeviceHealthy" in told():
                break
            await asyncio.sleep(0.02)
        assert told()["DeviceHealthy"].endswith("healthy again")
        assert len(node.api.under("/api/v1/namespaces/default/events")) == 2

    on(GpuNode(tmp_path, options=PublishOptions(dynamic_mig=True)), story)


def test_a_gpu_that_comes_and_goes_is_believed_when_it_stays(tmp_path: Path) -> None:
    """Two recoveries count at once; after the third fall it has to be well for half a minute."""
    clock = FakeClock()

    async def story(node: GpuNode) -> None:
        async def taints() -> list[str]:
            device = next(one for one in await node.published() if one["name"] == "gpu-2")
            return [taint["key"] for taint in device.get("taints", ())]

        for _ in range(2):
            node.machine.lose_gpu(2)
            assert "gpu.nvidia.com/gpu-lost" in await taints()
            await clock.advance(5)
            node.machine.recover_gpu(2)
            assert await taints() == []
            await clock.advance(5)
        node.machine.lose_gpu(2)
        await clock.advance(5)
        node.machine.recover_gpu(2)
        assert await taints() == ["drakkar.dev/unsteady"]
        health = {one.device_name: one for one in node.driver.node.device_health}
        assert health["gpu-2"].health == "UNHEALTHY" and "it must stay well" in health["gpu-2"].message
        assert health["gpu-1"].health == "HEALTHY"
        for _ in range(29):
            await clock.advance(1)
        assert await taints() == ["drakkar.dev/unsteady"]
        for _ in range(3):
            await clock.advance(1)
        assert await taints() == []
        await clock.advance(600)
        node.machine.lose_gpu(2)
        await clock.advance(5)
        node.machine.recover_gpu(2)
        assert await taints() == []  # that was long ago

    on(GpuNode(tmp_path, clock=clock), story)


def test_results_of_other_drivers_and_pools_are_not_ours(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        uid = node.claim("c", "gpu-0")
        obj = node.api.objects[f"{CLAIMS}/c"]
        results = obj["status"]["allocation"]["devices"]["results"]
        results += [results[0] | {"driver": "nic.example.com"}, results[0] | {"pool": "n2"}]
        answer = await node.prepare("c", uid)
        assert [device.device_name for device in answer.devices] == ["gpu-0"]

    on(GpuNode(tmp_path), story)


def test_a_full_disk_is_an_error_of_the_claim_and_holds_nothing(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        uid = node.claim("c", "gpu-0")
        journal = node.driver._node._claims._journal

        def full(record: object) -> None:
            raise JournalError("cannot write the journal: No space left on device")

        journal.append = full  # type: ignore[method-assign]
        assert "No space left" in (await node.prepare("c", uid)).error
        assert (node.files(), dict(node.driver.claims)) == ([], {})
        del journal.append  # type: ignore[attr-defined]
        assert (await node.prepare("c", uid)).error == ""

    on(GpuNode(tmp_path), story)


@pytest.mark.parametrize("options", [PublishOptions(), PublishOptions(dynamic_mig=True)])
def test_an_intent_that_cannot_be_made_durable_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: PublishOptions
) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    async def story(node: GpuNode) -> None:
        uid = node.claim("c", "gpu-0")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            assert "Input/output error" in (await node.prepare("c", uid)).error
        assert (node.files(), dict(node.driver.claims)) == ([], {})
        assert (await node.prepare("c", uid)).error == ""

    on(GpuNode(tmp_path, options=options), story)


def test_a_mig_device_destroyed_under_a_claim_can_still_be_unprepared(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        instance = node.machine.create_mig(1, "3g.40gb")
        uid = node.claim("c", "gpu-1-mig-3g40gb-9-4")
        assert (await node.prepare("c", uid)).error == ""
        node.machine.destroy_mig(1, instance.gpu_instance)
        assert (await node.unprepare("c", uid)).error == ""
        assert node.files() == []

    on(GpuNode(tmp_path), story)


def test_health_is_unknown_while_the_driver_is_not_loaded(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        await node.published()
        stream = aiter(node.driver.health())
        assert {one.health for one in await anext(stream)} == {"HEALTHY"}
        node.machine.unload_driver()
        changed = await anext(stream)
        assert {(one.health, one.message) for one in changed} == {("UNKNOWN", "the NVIDIA kernel module is not loaded")}
        assert len(await node.published()) == 8, "slices stay over a reload"

    on(GpuNode(tmp_path), story)


def test_a_static_mig_device_gets_its_capability_nodes(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        instance = node.machine.create_mig(1, "3g.40gb")
        names = [device["name"] for device in await node.published()]
        assert "gpu-1" not in names
        assert "gpu-1-mig-3g40gb-9-4" in names
        uid = node.claim("c", "gpu-1-mig-3g40gb-9-4")
        assert (await node.prepare("c", uid)).error == ""
        assert nodes_of(node.spec(uid)) == [one.path for one in instance.nodes]
        assert nodes_of(node.spec(uid))[0] == "/dev/nvidia1"
        assert len(nodes_of(node.spec(uid))) == 3

    on(GpuNode(tmp_path), story)


def test_a_dynamic_mig_device_is_made_and_destroyed_with_its_claim(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        names = [device["name"] for device in await node.published()]
        assert len(names) == 8 * 26
        uid = node.claim("c", "gpu-0-mig-1g10gb-19-2")
        assert (await node.prepare("c", uid)).error == ""
        (instance,) = node.machine.gpus()[0].mig_instances
        assert (instance.profile.name, instance.start) == ("1g.10gb", 2)
        whole, overlapping = node.claim("whole", "gpu-0"), node.claim("overlap", "gpu-0-mig-2g20gb-14-2")
        beside = node.claim("beside", "gpu-0-mig-1g10gb-19-3")
        pod = node.api.put(f"{PODS}/p", {})
        node.api.objects[f"{CLAIMS}/c"]["status"]["reservedFor"] = [
            {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
        ]
        assert "already allocated" in (await node.prepare("whole", whole)).error
        assert "already allocated" in (await node.prepare("overlap", overlapping)).error
        assert (await node.prepare("beside", beside)).error == ""
        for name, known in (("c", uid), ("beside", beside)):
            assert (await node.unprepare(name, known)).error == ""
        assert node.machine.gpus()[0].mig_instances == ()
        assert not node.machine.gpus()[0].mig_enabled
        assert [device["name"] for device in await node.published()] == names

    on(GpuNode(tmp_path, options=PublishOptions(dynamic_mig=True)), story)


def test_slices_follow_the_hardware(tmp_path: Path) -> None:
    def taints(device: dict[str, Any]) -> list[tuple[str, str, str]]:
        return [(one["key"], one.get("value", ""), one["effect"]) for one in device.get("taints", ())]

    async def story(node: GpuNode) -> None:
        devices = {device["name"]: device for device in await node.published()}
        assert list(devices) == [f"gpu-{number}" for number in range(8)]
        node.machine.log_xid(2, 31)
        node.machine.log_xid(3, 48)
        node.machine.log_xid(3, 13)  # a program that crashes afterwards does not hide it
        node.machine.lose_gpu(4)
        devices = {device["name"]: device for device in await node.published()}
        assert taints(devices["gpu-0"]) == []
        assert taints(devices["gpu-2"]) == [("gpu.nvidia.com/xid", "31", "None")]
        assert taints(devices["gpu-3"]) == [("gpu.nvidia.com/xid", "48", "NoSchedule")]
        assert ("gpu.nvidia.com/gpu-lost", "", "NoSchedule") in taints(devices["gpu-4"])
        health = await anext(aiter(node.driver.health()))
        states = {one.device_name: one.health for one in health}
        assert (states["gpu-2"], states["gpu-3"], states["gpu-4"]) == ("HEALTHY", "UNHEALTHY", "UNHEALTHY")
        for index in (2, 3, 4):
            node.machine.recover_gpu(index)
        assert all(not taints(device) for device in await node.published())

    on(GpuNode(tmp_path), story)


def test_ignored_xids_taint_without_effect_and_leave_a_gpu_healthy(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        node.machine.log_xid(0, 48)
        node.machine.log_xid(1, 48)
        node.machine.log_xid(1, 63)
        devices = {device["name"]: device for device in await node.published()}
        told = {name: [(one["value"], one["effect"]) for one in devices[name]["taints"]] for name in ("gpu-0", "gpu-1")}
        assert told == {"gpu-0": [("48", "None")], "gpu-1": [("63", "NoSchedule")]}
        states = {one.device_name: one.health for one in await anext(aiter(node.driver.health()))}
        assert (states["gpu-0"], states["gpu-1"]) == ("HEALTHY", "UNHEALTHY")

    on(GpuNode(tmp_path, options=PublishOptions(ignored_xids=frozenset({48}))), story)


def test_a_change_by_another_process_is_seen_within_two_seconds(tmp_path: Path) -> None:
    clock = FakeClock()

    async def story(node: GpuNode) -> None:
        from drakkar.vendors.nvidia.simulated import build_machine

        await node.published()
        build_machine("dgx-h100", "n1", tmp_path / "machine").create_mig(0, "1g.10gb", 6)
        await clock.advance(2)
        names = [device["name"] for device in await node.published()]
        assert names[0] == "gpu-0-mig-1g10gb-19-6"

    on(GpuNode(tmp_path, clock=clock), story)


def test_a_late_driver_is_waited_for_and_no_empty_slice_published(tmp_path: Path) -> None:
    async def main() -> None:
        from drakkar.vendors.nvidia.simulated import build_machine

        build_machine("t4", "n1", tmp_path / "machine").unload_driver()
        node = GpuNode(tmp_path, "t4")
        async with running(node):
            assert await node.published() == []
            node.machine.load_driver()
            assert [device["name"] for device in await node.published()] == ["gpu-0"]

    asyncio.run(main())


def test_a_driver_reload_gives_prepared_claims_the_new_numbers(tmp_path: Path) -> None:
    def uvm(node: GpuNode, uid: str) -> int:
        spec = node.spec(uid)
        assert spec is not None
        return next(one["major"] for one in spec["containerEdits"]["deviceNodes"] if one["path"] == "/dev/nvidia-uvm")

    async def story(node: GpuNode) -> None:
        uid = node.claim("c", "gpu-0")
        await node.prepare("c", uid)
        before = uvm(node, uid)
        node.machine.unload_driver()
        node.machine.load_driver()
        assert uvm(node, uid) == node.machine.majors["nvidia-uvm"] != before

    on(GpuNode(tmp_path), story)


def test_a_restart_keeps_prepared_claims_and_cleans_up_after_itself(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        async with running(node):
            uid = node.claim("c", "gpu-0", pods=("p",))
            first = await node.prepare("c", uid)
        for path in node.cdi.iterdir():
            path.unlink()
        (node.cdi / "k8s.gpu.nvidia.com-claim_stranger.json").write_text("{}")
        (node.cdi / "other.json").write_text("{}")
        async with running(node):
            assert node.files() == [f"k8s.gpu.nvidia.com-claim_{uid}.json", "other.json"]
            assert await node.prepare("c", uid) == first
            other = node.claim("other", "gpu-0")
            assert "already allocated" in (await node.prepare("other", other)).error

    asyncio.run(main())


def test_another_boot_forgets_what_was_prepared(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        async with running(node):
            await node.prepare("c", node.claim("c", "gpu-0"))
        node.machine.reboot()
        async with running(node):
            assert not node.driver.claims
            assert node.files() == []

    asyncio.run(main())


def test_a_damaged_journal_is_set_aside_and_told_in_an_event(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        async with running(node):
            await node.prepare("c", node.claim("c", "gpu-0"))
        journal = tmp_path / "state" / "claims.journal"
        journal.write_bytes(b"rubbish\n" + journal.read_bytes())
        async with running(node):
            await asyncio.sleep(0.05)
            assert list(node.driver.claims)
            reasons = [obj["reason"] for obj in node.api.under("/api/v1/namespaces/default/events")]
            assert "JournalDamaged" in reasons

    asyncio.run(main())


def test_a_damaged_journal_holds_nothing_for_claims_that_are_gone(tmp_path: Path) -> None:
    """The record that was lost may be that of a release; the kubelet, which had its answer, asks no more."""

    async def main() -> None:
        clock = FakeClock()
        node = GpuNode(tmp_path, clock=clock)
        names = {"gone": "gpu-0", "made-again": "gpu-1", "lives": "gpu-2", "refused": "gpu-4"}
        async with running(node):
            uids = {name: node.claim(name, device) for name, device in names.items()}
            for name, uid in uids.items():
                assert not (await node.prepare(name, uid)).error
        journal = tmp_path / "state" / "claims.journal"
        journal.write_bytes(journal.read_bytes() + b'00000000 {"torn')
        node.api.remove(f"{CLAIMS}/gone")
        node.api.remove(f"{CLAIMS}/made-again")
        node.claim("made-again", "gpu-3")
        node.api.fail[f"GET {CLAIMS}/refused"] = ApiResponse(403, {}, {"kind": "Status", "code": 403})
        async with running(node):
            await clock.advance(9)
            assert set(node.driver.claims) == set(uids.values())
            await clock.advance(2)
            await until(lambda: set(node.driver.claims) == {uids["lives"], uids["refused"]})
            assert len(node.files()) == 2 and not node.api.fail
            await until(lambda: _reasons(node).count("ClaimReleased") == 2)
            assert not (await node.prepare("new", node.claim("new", "gpu-0"))).error
            assert not (await node.unprepare("gone", uids["gone"])).error

    asyncio.run(main())


def test_a_damaged_journal_is_doubted_until_it_was_looked_at(tmp_path: Path) -> None:
    """A driver that is restarted before it looked has not looked; one that has looked does so once."""

    async def main() -> None:
        clock = FakeClock()
        node = GpuNode(tmp_path, clock=clock)
        async with running(node):
            uids = {name: node.claim(name, device) for name, device in {"gone": "gpu-0", "lives": "gpu-1"}.items()}
            for name, uid in uids.items():
                assert not (await node.prepare(name, uid)).error
        journal = tmp_path / "state" / "claims.journal"
        journal.write_bytes(journal.read_bytes() + b"torn")
        node.api.remove(f"{CLAIMS}/gone")
        for _ in range(2):
            async with running(node):
                await clock.advance(9)
                assert set(node.driver.claims) == set(uids.values())
        async with running(node):
            await clock.advance(11)
            await until(lambda: set(node.driver.claims) == {uids["lives"]})
            assert not (await node.prepare("new", node.claim("new", "gpu-0"))).error
        node.api.remove(f"{CLAIMS}/lives")  # whose pod's containers the kubelet has yet to end
        async with running(node):
            await clock.advance(30)
            assert uids["lives"] in node.driver.claims

    asyncio.run(main())


def _reasons(node: GpuNode) -> list[str]:
    return [obj["reason"] for obj in node.api.under("/api/v1/namespaces/default/events")]


def test_many_claims_side_by_side(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        uids = [node.claim(f"c{number}", f"gpu-{number}") for number in range(8)]
        answers = await asyncio.gather(*(node.prepare(f"c{number}", uid) for number, uid in enumerate(uids)))
        assert [answer.devices[0].device_name for answer in answers] == [f"gpu-{number}" for number in range(8)]
        await asyncio.gather(*(node.unprepare(f"c{number}", uid) for number, uid in enumerate(uids)))
        assert node.files() == []

    on(GpuNode(tmp_path), story)


def test_two_instances_of_a_rolling_update_know_each_others_claims(tmp_path: Path) -> None:
    async def main() -> None:
        old = GpuNode(tmp_path, instance="old")
        async with running(old):
            first = old.claim("first", "gpu-0", pods=("p",))
            assert (await old.prepare("first", first)).error == ""
            new = GpuNode(tmp_path, instance="new", api=old.api)
            async with running(new):
                second = old.claim("second", "gpu-1", pods=("p",))
                assert (await old.prepare("second", second)).error == ""
                taken = new.claim("taken", "gpu-1")
                assert f"already allocated to different claim {second}" in (await new.prepare("taken", taken)).error
                assert (await new.unprepare("first", first)).error == ""
                third = old.claim("third", "gpu-0")
                assert (await old.prepare("third", third)).error == ""
                assert sorted(new.files()) == sorted(old.files())
                assert len(new.files()) == 2

    asyncio.run(main())


def test_slices_appear_when_the_kubelet_knows_the_driver_or_does_not_come(tmp_path: Path) -> None:
    """Pods are bound the moment a slice appears; a kubelet that does not know the driver fails them for 90 s."""

    async def main() -> None:
        node = GpuNode(tmp_path)
        node.build()
        starting = asyncio.create_task(node.driver.start(kubelet_within=20.0))
        await asyncio.wait({starting}, timeout=0.3)
        assert (tmp_path / "r" / "gpu.nvidia.com-reg.sock").exists()
        assert (await node.published(), starting.done()) == ([], False)
        node.driver.registered.set()
        await asyncio.wait_for(starting, 5)
        assert len(await node.published()) == 8
        await node.driver.stop()
        node.build()
        await node.driver.start(kubelet_within=0.01)
        assert len(await node.published()) == 8
        await node.driver.stop()

    asyncio.run(main())
