"""A node that passes GPUs through, with a driver that is called without sockets and a clock that the test moves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gpu_node import GpuNode

from drakkar.kube.clock import FakeClock
from drakkar.preparation.values import ClaimRef, ClaimUID
from drakkar.vendors.nvidia.passthrough import functions
from drakkar.vendors.nvidia.published import PublishOptions

A, B = "0000:1b:00.0", "0000:43:00.0"
AUDIO, NIC = "0000:1b:00.1", "0000:18:00.0"


class Node(GpuNode):
    """The node; `options` are those of `PublishOptions`, `beside` is another instance's node."""

    def __init__(
        self,
        folder: Path,
        model: str = "dgx-h100",
        *,
        instance: str = "",
        beside: GpuNode | None = None,
        **options: Any,
    ) -> None:
        chosen, api = PublishOptions(passthrough=True, **options), beside.api if beside else None
        super().__init__(folder, model, api=api, clock=FakeClock(), options=chosen, instance=instance)

    @property
    def bus(self) -> Any:
        return self.machine.bus

    async def begin(self) -> None:
        """A driver process comes up."""
        self.cdi.mkdir(exist_ok=True)
        self.build()
        await self.driver.node._recover()

    async def end(self) -> None:
        """It is killed."""
        self.driver.node._close_ledger()
        await self.driver.node._end_calls()

    async def asked(self, doing: str, name: str, uid: str) -> str:
        """The error of a call; time passes while it waits."""
        inner = self.driver.node
        ref = ClaimRef(ClaimUID(uid), name, "team-a")
        call = asyncio.ensure_future((inner.prepare if doing == "prepare" else inner.unprepare)([ref]))
        await self.until(call.done)
        answer = call.result()[ClaimUID(uid)]
        return answer if isinstance(answer, str) else answer.error

    async def until(self, reached: Callable[[], bool], step: float = 0.25) -> None:
        clock = self.clock
        assert isinstance(clock, FakeClock)
        end = asyncio.get_running_loop().time() + 25
        while not reached():
            assert asyncio.get_running_loop().time() < end, "it never came to that"
            if switching() or not clock._sleepers:
                await asyncio.sleep(0.001)  # threads and the disk come first, in their own time
            else:
                await clock.advance(step)

    async def taken(self, name: str, *devices: str, **more: Any) -> str:
        """A claim with these devices, prepared."""
        uid = self.claim(name, *devices, **more)
        assert await self.asked("prepare", name, uid) == ""
        return uid

    def bind_by_hand(self, address: str) -> None:
        """What an administrator does to have a GPU passed through."""
        self.machine.set_persistence(address, False)
        self.bus.load_module("vfio_pci")
        self.bus.override(address, "vfio-pci")
        self.bus.unbind(address)
        self.bus.bind(address, "vfio-pci")

    def names(self) -> list[str]:
        """The devices that the pool has now."""
        pool = self.driver.kind.pool()
        return [device.name for device in pool.devices] if pool else []

    def as_before(self) -> None:
        """Nothing is left of any claim."""
        assert self.files() == []
        assert [function.driver for function in functions(self.bus)] == ["nvidia"] * len(self.machine.gpus())
        for gpu in self.machine.state.gpus:
            assert (gpu.override, gpu.locked, gpu.persistence) == ("", False, True)
        for function in self.machine.state.functions:
            assert (function.driver, function.override) == (function.home, "")


def switching() -> bool:
    """Whether a thread of the driver is at work, so that its alarm must not go off."""
    return any(thread.name.startswith("0000:") for thread in threading.enumerate())


def story(folder: Path, tell: Callable[[Node], Awaitable[None]], model: str = "dgx-h100", **options: Any) -> None:
    async def main() -> None:
        async with started(Node(folder, model, **options)) as node:
            await asyncio.wait_for(tell(node), 30)

    asyncio.run(main())


@asynccontextmanager
async def started(node: Node) -> AsyncIterator[Node]:
    await node.begin()
    try:
        yield node
    finally:
        await node.end()
