"""Locks by device: who waits for whom, and that nobody who gives up leaves one behind."""

from __future__ import annotations

import asyncio
import random

import pytest

from drakkar.api.identities import DeviceKey
from drakkar.preparation.locks import DeviceLocks

A, B, C = (DeviceKey("d", "p", name) for name in "abc")


def _settled(locks: DeviceLocks) -> bool:
    return not locks._locks


def test_the_same_device_one_after_the_other_others_side_by_side() -> None:
    async def main() -> list[str]:
        locks, told = DeviceLocks(), list[str]()

        async def work(name: str, *devices: DeviceKey) -> None:
            async with locks.holding(devices):
                told.append(f"+{name}")
                await asyncio.sleep(0.01)
                told.append(f"-{name}")

        await asyncio.gather(work("1", A), work("2", A), work("3", B, B))
        assert _settled(locks)
        return told

    assert asyncio.run(main()) == ["+1", "+3", "-1", "-3", "+2", "-2"]


@pytest.mark.parametrize("seed", range(20))
def test_whoever_gives_up_leaves_nothing_and_nobody_waits_in_a_circle(seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        waits, entered = list[float](), list[int]()
        locks, inside = DeviceLocks(waits.append), set[DeviceKey]()

        async def work(devices: list[DeviceKey], fails: bool) -> None:
            async with locks.holding(devices):
                entered.append(len(devices))
                assert not inside & {*devices}
                inside.update(devices)
                try:
                    await asyncio.sleep(chance.random() / 500)
                    if fails:
                        raise ValueError
                finally:
                    inside.difference_update(devices)

        tasks = []
        for _ in range(60):
            devices = chance.sample([A, B, C], chance.randint(1, 3))
            tasks.append(asyncio.create_task(work(devices, chance.random() < 0.2)))
            await asyncio.sleep(0)
            if chance.random() < 0.4:
                chance.choice(tasks).cancel()
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert all(one is None or isinstance(one, ValueError | asyncio.CancelledError) for one in done)
        assert _settled(locks) and not inside
        assert len(waits) == len(entered) and min(waits) >= 0

    asyncio.run(main())


def test_locks_are_given_back_when_nobody_can_be_told_of_the_wait() -> None:
    def broken(_: float) -> None:
        raise ValueError

    async def main() -> None:
        locks = DeviceLocks(broken)
        with pytest.raises(ValueError):
            async with locks.holding([A]):
                raise AssertionError("entered")
        assert _settled(locks)

    asyncio.run(main())
