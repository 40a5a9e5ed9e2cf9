"""Any history of claims, kills, refusals and processes in the way: nothing is had twice, all is put back."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from gpu_node import CLAIMS
from vfio_node import Node

from drakkar.preparation.claims import HeldClaim

PROCESSES = range(100, 110)
DEVICES = [f"gpu-vfio-{index}" for index in range(4)] + [f"gpu-{index}" for index in range(4)]


class History:
    """A node with four GPUs, one with an audio function, two perhaps in one IOMMU group, and what happens to it."""

    def __init__(self, node: Node, seed: int) -> None:
        self.node, self.chance = node, random.Random(seed)
        self.claims: dict[str, str] = {}
        self.addresses = [gpu.bus_id for gpu in node.machine.gpus()]
        audio = self.addresses[0].replace(".0", ".1")
        node.bus.add_function(self.addresses[0], audio, kind="0x040300", driver="snd_hda_intel")
        if seed % 2:
            node.bus.join(self.addresses[2], self.addresses[1])

    async def prepare(self) -> None:
        name = self.chance.choice("abcdef")
        if name not in self.claims:
            devices = self.chance.sample(DEVICES, self.chance.choice([1, 1, 1, 2]))
            self.claims[name] = self.node.claim(name, *devices)
        await self.node.asked("prepare", name, self.claims[name])

    async def unprepare(self) -> None:
        if self.claims:
            name = self.chance.choice(list(self.claims))
            if not await self.node.asked("unprepare", name, self.claims[name]):
                self.node.api.remove(f"{CLAIMS}/{name}")
                del self.claims[name]

    async def killed(self) -> None:
        await self.node.end()
        await self.node.begin()

    async def refused(self) -> None:
        self.node.bus.refuse(self.chance.choice(self.addresses), self.chance.choice(["nvidia", "vfio-pci", "", ""]))

    async def opened(self) -> None:
        number = self.chance.randrange(4)
        path = self.chance.choice([f"/dev/nvidia{number}", f"/dev/vfio/{10 + number}"])
        self.node.bus.hold(path, self.chance.choice(PROCESSES), "somebody")

    async def closed(self) -> None:
        for number in PROCESSES:
            self.node.bus.let_go(number)

    async def at_the_same_time(self) -> None:
        some = self.chance.sample(list(self.claims), min(2, len(self.claims)))
        await asyncio.gather(*(self.node.asked("prepare", name, self.claims[name]) for name in some))

    def nothing_is_had_twice(self) -> None:
        held: dict[str, HeldClaim] = {}
        for claim in self.node.driver.claims.values():
            for key in claim.devices:
                assert key.device not in held
                held[key.device] = claim
        for device, claim in held.items():
            own = {key.device for key in claim.devices}
            assert not self.node.driver.kind.overlapping(device) & (set(held) - own)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_in_the_end_everything_is_as_before(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        node = Node(tmp_path, "l40s")
        await node.begin()
        history = History(node, seed)
        happenings = [history.prepare] * 4 + [history.unprepare] * 2
        happenings += [history.killed, history.refused, history.opened, history.closed, history.at_the_same_time]
        for _ in range(40):
            await history.chance.choice(happenings)()
            history.nothing_is_had_twice()
        await history.closed()
        for address in history.addresses:
            node.bus.refuse(address, "")
        for name, uid in history.claims.items():
            assert await node.asked("unprepare", name, uid) == ""
        assert not node.driver.claims
        node.as_before()
        await node.end()

    asyncio.run(main())
