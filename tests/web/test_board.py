"""The board over HTTP: the page, its events, and whom it refuses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import aiohttp
import pytest

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot
from drakkar.kube.clock import FakeClock
from drakkar.web.board import Board
from drakkar.web.serving import Loopback, address, event
from tests.diagnosis.world import claim, world

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class _Cluster:
    """Snapshots that a test changes."""

    def __init__(self) -> None:
        self.snapshot = world(captured_at=_NOON, kubernetes_version="1.37.2")
        self.problem = ""
        self.read_times = 0

    async def read(self) -> Snapshot:
        self.read_times += 1
        if self.problem:
            raise DrakkarError(self.problem)
        return self.snapshot


class _World:
    def __init__(self) -> None:
        self.cluster, self.clock = _Cluster(), FakeClock()
        self.board = Board(self.cluster.read, title="here", interval=2.0, clock=self.clock)
        self.url = ""
        self.http: aiohttp.ClientSession

    async def next_reading(self) -> None:
        """Let the feed's pause pass."""
        await self.clock.advance(2.0)


@contextlib.asynccontextmanager
async def _serving() -> AsyncIterator[_World]:
    here = _World()
    server = here.board.server()
    here.url = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as here.http:
            yield here
    finally:
        await server.stop()


def _test(check: Callable[[_World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), _serving() as here:
            await check(here)

    asyncio.run(run())


async def _event(response: aiohttp.ClientResponse) -> tuple[str, str]:
    """The name and the data of the next event."""
    name, data = "", []
    while line := (await response.content.readline()).decode().rstrip("\n"):
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        else:
            data.append(value)
    return name, "\n".join(data)


def test_the_page_shows_the_cluster_and_allows_nothing_else() -> None:
    async def check(here: _World) -> None:
        async with here.http.get(here.url) as response:
            text = await response.text()
            assert response.status == 200
            assert response.content_type == "text/html"
            policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert policy.count("'sha256-") == 2
        assert "<h3>n1</h3>" in text and "2</b>" in text
        for method, path, status in (("POST", "", 405), ("DELETE", "events", 405), ("GET", "favicon.ico", 404)):
            async with here.http.request(method, here.url + path) as response:
                assert response.status == status

    _test(check)


def test_events_tell_what_changed_and_when_it_was_read() -> None:
    async def check(here: _World) -> None:
        async with here.http.get(here.url + "events") as response:
            assert response.content_type == "text/event-stream"
            name, first = await _event(response)
            assert name == "board" and "ml/new" not in first
            assert await _event(response) == ("taken", "Kubernetes 1.37.2 · as of 2026-01-01 12:00:00 UTC")
            await here.next_reading()
            assert (await _event(response))[0] == "taken"  # nothing changed: the board is not sent again
            here.cluster.snapshot = world(claim("new"), captured_at=_NOON)
            await here.next_reading()
            name, second = await _event(response)
            assert name == "board" and "ml/new" in second

    _test(check)


def test_a_cluster_that_does_not_answer_is_a_sentence_and_the_last_board_stays() -> None:
    async def check(here: _World) -> None:
        async with here.http.get(here.url + "events") as response:
            await _event(response)
            await _event(response)
            here.cluster.problem = "the server does not answer"
            await here.next_reading()
            assert await _event(response) == ("problem", "the server does not answer")
            async with here.http.get(here.url) as page:
                assert "<h3>n1</h3>" in await page.text()
            here.cluster.problem = ""
            await here.next_reading()
            assert (await _event(response))[0] == "taken"

    _test(check)


def test_all_who_look_share_one_reading() -> None:
    async def check(here: _World) -> None:
        for _ in range(3):
            async with here.http.get(here.url) as response:
                assert response.status == 200
        assert here.cluster.read_times == 1

    _test(check)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.1:8266", "localhost.evil.example"])
def test_a_name_that_is_not_loopback_is_refused(host: str) -> None:
    async def check(here: _World) -> None:
        async with here.http.get(here.url, headers={"Host": host}) as response:
            assert response.status == 421
        assert here.cluster.read_times == 0

    _test(check)


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1", "[::1]:8266", "[::1]"])
def test_loopback_names_are_served(host: str) -> None:
    async def check(here: _World) -> None:
        async with here.http.get(here.url, headers={"Host": host}) as response:
            assert response.status == 200

    _test(check)


@pytest.mark.parametrize(
    ("text", "found"), [("80", ("127.0.0.1", 80)), ("localhost:0", ("localhost", 0)), ("[::1]:9", ("::1", 9))]
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "x", "0.0.0.0:80", "example.com:80", "127.0.0.1:99999", "[::]:1"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(DrakkarError):
        address(text)


def test_a_port_that_is_taken_is_a_sentence() -> None:
    async def check(here: _World) -> None:
        port = int(here.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(DrakkarError, match=f"cannot listen on 127.0.0.1:{port}"):
            await Loopback({}).start("127.0.0.1", port)

    _test(check)


def test_an_event_of_many_lines_stays_one_event() -> None:
    assert event("a\nb\r\nc\rd", "x") == "event: x\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
