"""Simulated time: order is exact, idle loops are left, what is real is waited for."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from drakkar.kube import simulated as module
from drakkar.kube.clock import ShiftedClock, SystemClock
from drakkar.kube.simulated import (
    EPOCH,
    MAX_SPEED,
    SimulatedClock,
    SimulatedLoop,
    hold,
    look_every,
    run,
    simulated,
    stopwatch,
)


class _Machine:
    """The machine's own time, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> _Machine:
    found = _Machine()
    monkeypatch.setattr(module, "time", found)
    return found


def moments(clock: SimulatedClock, *delays: float) -> list[tuple[int, float]]:
    """(number, second) in the order in which sleepers of these delays woke."""

    async def main() -> list[tuple[int, float]]:
        woken: list[tuple[int, float]] = []

        async def sleep(number: int, delay: float) -> None:
            await clock.sleep(delay)
            woken.append((number, clock.monotonic()))

        await asyncio.gather(*(sleep(number, delay) for number, delay in enumerate(delays)))
        return woken

    found: list[tuple[int, float]] = run(clock, main())
    return found


def test_a_day_of_sleep_takes_no_time_and_ends_exactly_then() -> None:
    clock = SimulatedClock()
    begun = asyncio.run(_real_seconds())
    assert moments(clock, 86_400.0) == [(0, 86_400.0)]
    assert clock.now() == EPOCH + timedelta(days=1)
    assert asyncio.run(_real_seconds()) - begun < 10


async def _real_seconds() -> float:
    return asyncio.get_running_loop().time()


def test_timers_fire_in_the_order_of_their_instants_and_equal_ones_in_the_order_they_were_set() -> None:
    assert moments(SimulatedClock(), 3.0, 1.0, 2.0, 1.0, 0.000001) == [
        (4, 0.000001),
        (1, 1.0),
        (3, 1.0),
        (2, 2.0),
        (0, 3.0),
    ]


def test_what_a_timer_sets_off_happens_before_the_next_instant() -> None:
    clock = SimulatedClock()

    async def main() -> list[str]:
        told = []

        async def chain(name: str, delay: float) -> None:
            await clock.sleep(delay)
            for step in range(50):
                await asyncio.sleep(0)
                told.append(f"{name}{step}")

        await asyncio.gather(chain("late", 1.000001), chain("soon", 1.0))
        return told

    told = run(clock, main())
    assert told == [f"soon{step}" for step in range(50)] + [f"late{step}" for step in range(50)]


def test_a_timer_never_fires_early_whatever_the_fractions() -> None:
    clock = SimulatedClock()

    async def main() -> None:
        for delay in (0.1, 0.2, 1 / 3, 1e-9, 0.7, 2.3):
            due = clock.monotonic() + delay
            await clock.sleep(due - clock.monotonic())
            assert due - 1e-9 <= clock.monotonic() <= due + 2e-6  # a nanosecond is a float's rounding

    run(clock, main())


def test_cancelled_sleepers_hold_nobody_up_and_are_forgotten() -> None:
    clock = SimulatedClock()

    async def main() -> None:
        for _ in range(3000):
            task = asyncio.ensure_future(clock.sleep(5.0))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert clock.monotonic() == 0.0
        assert len(clock._sleepers) < 1100
        await clock.sleep(6.0)

    run(clock, main())
    assert clock.monotonic() == 6.0


def test_it_stands_still_until_it_is_advanced_and_returns_when_everything_due_has_happened() -> None:
    clock = SimulatedClock(speed=0)

    async def main() -> list[float]:
        ticks = []

        async def tick() -> None:
            while True:
                await clock.sleep(600)
                await asyncio.sleep(0)
                ticks.append(clock.monotonic())

        ticking = asyncio.create_task(tick())
        for _ in range(20):
            await asyncio.sleep(0)
        assert clock.monotonic() == 0.0
        assert not ticks
        await clock.advance(1800)
        assert clock.monotonic() == 1800.0
        await asyncio.gather(clock.advance(100), clock.advance(50))
        assert clock.monotonic() == 1900.0
        ticking.cancel()
        return ticks

    assert run(clock, main()) == [600.0, 1200.0, 1800.0]


def test_at_a_pace_it_goes_as_far_as_real_time_permits(machine: _Machine) -> None:
    clock = SimulatedClock(speed=MAX_SPEED)
    loop = SimulatedLoop(clock)
    clock.go(100)
    sleeping = loop.create_task(clock.sleep(50))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert clock.turn() == pytest.approx(0.5)  # real seconds until the sleeper is due
    machine.now += 0.25
    clock.waited()  # a request came in: time has passed for it, too
    assert clock.monotonic() == 25.0
    assert clock.turn() == pytest.approx(0.25)
    machine.now += 0.25
    assert clock.turn() == 0.0
    assert clock.monotonic() == 50.0
    loop.run_until_complete(sleeping)
    loop.close()


def test_a_machine_that_does_not_keep_up_is_said_to_be_behind_and_catches_up_in_order(machine: _Machine) -> None:
    clock = SimulatedClock()
    loop = SimulatedLoop(clock)
    clock.go(10)
    tasks = [loop.create_task(clock.sleep(delay)) for delay in (10, 20, 200)]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert clock.behind == 0.0
    machine.now += 12.0  # busy for twelve seconds: 120 simulated ones
    assert clock.behind == pytest.approx(12.0)
    assert clock.turn() == 0.0
    assert clock.monotonic() == 10.0
    assert clock.behind == pytest.approx(11.0)
    assert clock.turn() == 0.0
    assert clock.monotonic() == 20.0
    assert clock.behind == 0.0
    assert clock.turn() == pytest.approx(8.0)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def test_time_stands_still_while_something_real_is_waited_for_but_not_for_ever(machine: _Machine) -> None:
    clock = SimulatedClock()
    loop = SimulatedLoop(clock)
    sleeping = loop.create_task(clock.sleep(3600))
    loop.call_soon(loop.stop)
    loop.run_forever()
    with clock.hold():
        assert clock.turn() == pytest.approx(30.0)
        assert clock.monotonic() == 0.0
        machine.now += 31.0
        assert clock.turn() == 0.0
        assert clock.monotonic() == 3600.0
    loop.run_until_complete(sleeping)
    loop.close()


def test_a_reply_over_a_socket_of_this_process_comes_before_the_next_timer() -> None:
    clock = SimulatedClock()

    async def main() -> float:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(20):
                writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ticking = asyncio.ensure_future(clock.sleep(1.0))
        await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        for _ in range(20):
            writer.write(b"ping\n")
            assert await reader.readline() == b"ping\n"
        passed = clock.monotonic()
        writer.close()
        server.close()
        await ticking
        return passed

    assert run(clock, main()) == 0.0


def test_work_for_threads_is_done_at_once_and_its_errors_arrive() -> None:
    clock = SimulatedClock()

    async def main() -> None:
        assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    run(clock, main())


def test_another_threads_loop_sleeps_on_it_too() -> None:
    clock = SimulatedClock()
    slept: list[float] = []

    def elsewhere() -> None:
        asyncio.run(clock.sleep(86_400))
        slept.append(clock.monotonic())

    async def main() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        thread = threading.Thread(target=lambda: (elsewhere(), loop.call_soon_threadsafe(ended.set)))
        thread.start()
        await ended.wait()
        thread.join()

    run(clock, main())
    assert slept == [86_400.0]


def test_what_is_asked_of_other_clocks() -> None:
    clock = SimulatedClock(datetime(2030, 5, 1, tzinfo=UTC))
    shifted = ShiftedClock(ShiftedClock(clock))
    shifted.jump(3600)
    assert simulated(shifted) is clock
    assert simulated(SystemClock()) is None
    assert shifted.now() == datetime(2030, 5, 1, 1, tzinfo=UTC)
    assert look_every(shifted, 1.0) == 10.0
    assert look_every(SystemClock(), 1.0) == 1.0
    with hold(SystemClock()):
        pass
    with hold(shifted):
        assert clock.turn() == pytest.approx(30.0, abs=1.0)
    assert stopwatch(SystemClock())() == pytest.approx(SystemClock().monotonic(), abs=5)
    assert stopwatch(shifted)() == pytest.approx(SystemClock().monotonic(), abs=5)
