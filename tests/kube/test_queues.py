"""Work queues keep client-go's promises."""

import asyncio

from drakkar.kube.clock import FakeClock
from drakkar.kube.queues import WorkQueue, run_workers


def test_a_key_waits_once_and_is_held_by_one_worker() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=FakeClock())
        queue.add("a")
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        assert len(queue) == 0
        queue.done("a")
        assert len(queue) == 1

    asyncio.run(scenario())


def test_delays_and_back_off() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        queue: WorkQueue[str] = WorkQueue(clock=clock, base=1, limit=3)
        queue.add_after("later", 10)
        queue.add_after("sooner", 5)
        await clock.advance(6)
        assert await queue.get() == "sooner"
        await clock.advance(5)
        assert await queue.get() == "later"
        for delay in (1, 2, 3, 3):
            queue.retry("x")
            await clock.advance(delay - 0.1)
            assert len(queue) == 0
            await clock.advance(0.2)
            assert await queue.get() == "x"
            queue.done("x")
        queue.forget("x")
        queue.retry("x")
        await clock.advance(1.1)
        assert len(queue) == 1
        queue.close()

    asyncio.run(scenario())


def test_workers_retry_failures_and_look_again_when_asked() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        queue: WorkQueue[str] = WorkQueue(clock=clock, base=1)
        calls: list[float] = []

        async def reconcile(key: str) -> float | None:
            calls.append(clock.monotonic())
            if len(calls) == 1:
                raise RuntimeError("once")
            return 5.0 if len(calls) == 2 else None

        task = asyncio.create_task(run_workers(queue, reconcile, workers=2, name="test"))
        queue.add("a")
        await clock.advance(20)
        assert calls == [0, 1, 6]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_a_cancelled_worker_passes_its_turn_on() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=FakeClock())
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert await asyncio.wait_for(second, 1) == "a"

    asyncio.run(scenario())


def test_a_key_that_wants_to_be_looked_at_at_once_lets_time_pass_first() -> None:
    async def main() -> None:
        clock = FakeClock()
        queue: WorkQueue[str] = WorkQueue(clock=clock)
        looks: list[float] = []

        async def reconcile(key: str) -> float:
            looks.append(clock.monotonic())
            return 0.0

        working = asyncio.create_task(run_workers(queue, reconcile))
        queue.add("a")
        await clock.advance(0.0)
        assert looks == [0.0]
        await clock.advance(0.0015)
        assert looks == [0.0, 0.001]
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(main())
