"""Sixty-four devices at once: nobody queues behind a stranger's device, however long that takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from small_api import FakeApi

from drakkar.drivers.kit import AllocatedClaim, DeviceKind, Edits, NodeDriver
from drakkar.inventory.devices import PublishedDevice
from drakkar.inventory.slices import Pool
from drakkar.kube.client import Client
from drakkar.preparation.values import ClaimRef, ClaimUID

COUNT = 64
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims"


class Slow(DeviceKind):
    """Devices that are set up, and taken back, only when all of them are in the middle of it."""

    driver = "slow.example.com"

    def __init__(self) -> None:
        self.together = asyncio.Barrier(COUNT)
        self.order: list[str] = []

    def pool(self) -> Pool:
        devices = tuple(PublishedDevice(f"slow-{number}") for number in range(COUNT))
        return Pool(self.driver, "n1", "n1", (devices,))

    def edits(self, claim: AllocatedClaim) -> Edits:
        return Edits({device.device: {"env": [f"SLOW={device.device}"]} for device in claim.devices})

    async def activate(self, claim: AllocatedClaim) -> None:
        await self.together.wait()

    async def deactivate(self, claim: AllocatedClaim) -> None:
        await self.together.wait()


def claim(api: FakeApi, number: int, device: str) -> ClaimRef:
    result = {"request": "r", "driver": Slow.driver, "pool": "n1", "device": device}
    status = {"allocation": {"devices": {"results": [result]}}}
    obj = api.put(f"{CLAIMS}/c{number}", {"kind": "ResourceClaim", "status": status})
    return ClaimRef(ClaimUID(obj["metadata"]["uid"]), f"c{number}", "team-a")


@pytest.mark.parametrize("calls", [1, COUNT])
def test_claims_on_different_devices_are_made_ready_at_the_same_time(tmp_path: Path, calls: int) -> None:
    """In one call of the kubelet or in one for each: would one wait for another, the last would never come."""

    async def main() -> None:
        api = FakeApi()
        api.put("/api/v1/nodes/n1", {"kind": "Node"})
        driver = NodeDriver(
            Slow(),
            node_name="n1",
            client=Client(api),
            plugins_dir=tmp_path / "p",
            registry_dir=tmp_path / "r",
            cdi_dir=tmp_path / "cdi",
            state_dir=tmp_path / "state",
        )
        await driver.start()
        try:
            refs = [claim(api, number, f"slow-{number}") for number in range(COUNT)]
            batches = [refs[start::calls] for start in range(calls)]
            async with asyncio.timeout(20):
                answers = await asyncio.gather(*map(driver.prepare, batches))
            results = {uid: one for answer in answers for uid, one in answer.items()}
            assert {one.devices[0].device_name for one in results.values()} == {f"slow-{n}" for n in range(COUNT)}
            assert len(list((tmp_path / "cdi").iterdir())) == COUNT
            async with asyncio.timeout(20):
                undone = await asyncio.gather(*map(driver.unprepare, batches))
            assert not any(error for answer in undone for error in answer.values())
            assert not driver.claims
        finally:
            await driver.stop()

    asyncio.run(main())
