"""Logs, exec and attach as the API server asks for them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.kubelet.pod_logs import LogOptions, read_log
from drakkar.cluster.runtimes.container_log import ContainerLog
from drakkar.errors import DrakkarError
from tests.cluster.kubelet.world import World, run, until

LINES = (
    b"2026-01-01T00:00:00.000000001Z stdout F one\n"
    b"2026-01-01T00:00:01.500000000Z stderr P tw\n"
    b"2026-01-01T00:00:01.500000001Z stderr F o\n"
    b"2026-01-01T00:00:02.000000000Z stdout F \n"
    b"2026-01-01T00:00:03.000000000Z stdout F three\n"
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LogOptions(), "one\ntwo\n\nthree\n"),
        (LogOptions(tail_lines=0), ""),
        (LogOptions(tail_lines=1), "three\n"),
        (LogOptions(tail_lines=3), "two\n\nthree\n"),
        (LogOptions(tail_lines=9), "one\ntwo\n\nthree\n"),
        (LogOptions(since=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)), "\nthree\n"),
        (LogOptions(limit_bytes=5), "one\nt"),
        (LogOptions(tail_lines=1, timestamps=True), "2026-01-01T00:00:03.000000000Z three\n"),
    ],
)
def test_selection(options: LogOptions, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(LINES)

    async def read() -> bytes:
        return b"".join([chunk async for chunk in read_log(path, options)])

    assert asyncio.run(read()).decode() == expected


def test_long_lines_are_cut_and_joined_again(tmp_path: Path) -> None:
    import os

    async def body() -> bytes:
        reader, writer = os.pipe()
        log = ContainerLog(tmp_path / "0.log")
        log.follow(reader, 1)
        os.write(writer, b"x" * 40000 + b"\ny\n")
        os.close(writer)
        await until(lambda: b" y\n" in (tmp_path / "0.log").read_bytes())
        log.finish()
        return b"".join([chunk async for chunk in read_log(tmp_path / "0.log", LogOptions())])

    assert asyncio.run(body()) == b"x" * 40000 + b"\ny\n"
    assert all(len(line) < 17000 for line in (tmp_path / "0.log").read_bytes().splitlines())


def test_a_log_that_grows_too_big_is_set_aside(tmp_path: Path) -> None:
    import os

    async def body() -> None:
        reader, writer = os.pipe()
        log = ContainerLog(tmp_path / "0.log", rotate_at=100)
        log.follow(reader, 1)
        for number in range(20):
            os.write(writer, b"line %d\n" % number)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        os.close(writer)
        await until(lambda: b"line 19" in b"".join(path.read_bytes() for path in tmp_path.iterdir()))
        log.finish()

    asyncio.run(body())
    assert (tmp_path / "0.log.1").exists()
    assert (tmp_path / "0.log").stat().st_size <= 200


def test_following_ends_with_the_container() -> None:
    async def test(world: World) -> None:
        world.pod("one", 'while [ ! -e "$DRAKKAR_ROOT/go" ]; do sleep 0.02; done; echo last')
        await world.phase_is("one", "Running")
        seen: list[bytes] = []

        async def follow() -> None:
            async for chunk in world.kubelet.streams.logs("default", "one", "", follow=True):
                seen.append(chunk)

        task = asyncio.create_task(follow())
        root = next(Path(entry["bundle"]) for entry in world.kubelet.containers()) / "rootfs"
        (root / "go").touch()
        await asyncio.wait_for(task, 5)
        assert b"".join(seen) == b"last\n"

    run(test, driver=False)


@pytest.mark.parametrize(
    ("pod", "container", "options", "message"),
    [
        ("none", "", {}, 'pods "none" not found'),
        ("one", "x", {}, "container x is not valid for pod one"),
        ("one", "", {}, "a container name must be specified for pod one, choose one of: [c0 c1]"),
        ("one", "c0", {"previous": True}, 'previous terminated container "c0" in pod "one" not found'),
    ],
)
def test_refusals_have_the_kubelets_words(pod: str, container: str, options: dict[str, Any], message: str) -> None:
    async def test(world: World) -> None:
        world.pod("one", "sleep 60", "sleep 60")
        await world.phase_is("one", "Running")
        with pytest.raises(DrakkarError) as caught:
            await world.log(pod, container, **options)
        assert caught.value.message == message

    run(test, driver=False)


def test_a_container_that_waits_has_no_log_yet() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "true")
        await until(lambda: world.status("one").get("containerStatuses") is not None)
        with pytest.raises(DrakkarError) as caught:
            await world.log("one")
        assert caught.value.message == 'container "c0" in pod "one" is waiting to start: ContainerCreating'

    run(test, driver=False)


def test_exec_reaches_the_container() -> None:
    async def test(world: World) -> None:
        world.pod("one", "sleep 60")
        await world.phase_is("one", "Running")
        session = await world.kubelet.streams.exec("default", "one", "", ["sh", "-c", "echo hello; exit 3"])
        assert [data async for _, data in session.output()] == [b"hello\n"]
        assert await session.wait() == 3
        await session.close()

    run(test, driver=False)
