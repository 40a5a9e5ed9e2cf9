"""A fake clock moves only when told to, and knows who sleeps."""

import asyncio

from drakkar.kube.clock import FakeClock, parse_rfc3339, rfc3339, rfc3339_micro


def test_sleepers_wake_in_order_and_at_their_moment() -> None:
    async def scenario() -> None:
        clock, heard = FakeClock(), []

        async def sleep(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            heard.append((name, clock.monotonic()))

        tasks = [asyncio.ensure_future(sleep(name, seconds)) for name, seconds in (("late", 5), ("early", 2))]
        await clock.advance(1)
        assert heard == []
        await clock.advance(9)
        assert heard == [("early", 2), ("late", 5)]
        assert clock.monotonic() == 10
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_who_was_cancelled_sleeps_no_more() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        task = asyncio.ensure_future(clock.sleep(5))
        await clock.advance(1)
        assert len(clock._sleepers) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert clock._sleepers == []

    asyncio.run(scenario())


def test_times_as_kubernetes_writes_them() -> None:
    moment = FakeClock().now()
    assert rfc3339(moment) == "2026-01-01T00:00:00Z"
    assert parse_rfc3339(rfc3339_micro(moment)) == moment
