"""Both sides beside the reference implementation (grpcio, from C), and beside each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from drakkar.errors import DrakkarError
from drakkar.preparation import stubs
from drakkar.rpc import Channel, Code, Handler, RpcError, Server

API = stubs.device_plugin()
MESSAGES = API.messages
ECHO, WATCH = API.allocate, API.watch


def text_request(text: str) -> Any:
    request = MESSAGES.AllocateRequest()
    request.container_requests.add(devices_ids=[text])
    return request


def text_of(response: Any) -> str:
    return str(response.container_responses[0].envs["text"])


async def echo(request: Any) -> Any:
    text = request.container_requests[0].devices_ids[0]
    if text == "missing":
        raise RpcError(Code.NOT_FOUND, "100 % \u2260 gone\nfor good")
    if text == "broken":
        raise KeyError("oops")
    if text == "slow":
        await asyncio.sleep(60)
    response = MESSAGES.AllocateResponse()
    response.container_responses.add(envs={"text": text})
    return response


async def count(_request: Any) -> AsyncIterator[Any]:
    for number in range(40):
        response = MESSAGES.ListAndWatchResponse()
        for device in range(500):
            response.devices.add(ID=f"{number}-{device}-{'x' * 50}", health="Healthy")
        yield response
    raise RpcError(Code.ABORTED, "enough")


HANDLERS = {
    ECHO.path: Handler(echo, ECHO.request),
    WATCH.path: Handler(count, WATCH.request, streams=True),
}


@contextlib.asynccontextmanager
async def ours(path: Path, handlers: dict[str, Handler] | None = None) -> AsyncIterator[Server]:
    server = Server(path, HANDLERS if handlers is None else handlers)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def theirs(path: Path) -> AsyncIterator[Any]:
    """The same service from grpcio."""

    async def unary(request: Any, context: Any) -> Any:
        try:
            return await echo(request)
        except RpcError as error:
            await context.abort(list(grpc.StatusCode)[int(error.code)], error.details)

    async def many(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for response in count(request):
                yield response
        except RpcError as error:
            await context.abort(list(grpc.StatusCode)[int(error.code)], error.details)

    server = grpc.aio.server()
    methods = {
        ECHO.name: grpc.unary_unary_rpc_method_handler(
            unary,
            request_deserializer=ECHO.request.FromString,
            response_serializer=ECHO.response.SerializeToString,
        ),
        WATCH.name: grpc.unary_stream_rpc_method_handler(
            many,
            request_deserializer=WATCH.request.FromString,
            response_serializer=WATCH.response.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(API.service, methods),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield server
    finally:
        await server.stop(None)


class TheirChannel:
    """grpcio's client with the face of ours, its errors as ours."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{path}")

    async def __aenter__(self) -> TheirChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def call(self, method: stubs.Method, request: Any, timeout: float | None = None) -> Any:
        rpc = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            return await rpc(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise RpcError(Code(error.code().value[0]), error.details() or "") from None

    async def stream(self, method: stubs.Method, request: Any) -> AsyncIterator[Any]:
        rpc = self._channel.unary_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            async for response in rpc(request):
                yield response
        except grpc.aio.AioRpcError as error:
            raise RpcError(Code(error.code().value[0]), error.details() or "") from None


PAIRS = [
    pytest.param(ours, Channel, id="ours-ours"),
    pytest.param(ours, TheirChannel, id="our-server"),
    pytest.param(theirs, Channel, id="our-client"),
]


def run(scenario: Callable[[], Any]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(limited())


@pytest.mark.parametrize(("server", "channel"), PAIRS)
class TestBothSides:
    """Everything here holds for our server and for our client with grpcio on the other side."""

    def test_texts_of_any_length_go_and_come(self, server: Any, channel: Any, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with server(tmp_path / "s"), channel(tmp_path / "s") as client:
                for length in (0, 1, 100, 16_379, 16_384, 65_535, 65_536, 1_500_000, 3_900_000):
                    answer = await client.call(ECHO, text_request("x" * length))
                    assert text_of(answer) == "x" * length

        run(scenario)

    def test_many_at_once(self, server: Any, channel: Any, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with server(tmp_path / "s"), channel(tmp_path / "s") as client:
                texts = [f"{number}" * (number * 300) or "0" for number in range(90)]
                answers = await asyncio.gather(*(client.call(ECHO, text_request(text)) for text in texts))
                assert [text_of(answer) for answer in answers] == texts

        run(scenario)

    def test_a_status_with_its_text(self, server: Any, channel: Any, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with server(tmp_path / "s"), channel(tmp_path / "s") as client:
                with pytest.raises(RpcError) as missing:
                    await client.call(ECHO, text_request("missing"))
                assert (missing.value.code, missing.value.details) == (Code.NOT_FOUND, "100 % \u2260 gone\nfor good")
                with pytest.raises(RpcError, match="oops") as broken:
                    await client.call(ECHO, text_request("broken"))
                assert broken.value.code is Code.UNKNOWN
                with pytest.raises(RpcError) as unknown:
                    await client.call(API.register, MESSAGES.RegisterRequest())
                assert unknown.value.code is Code.UNIMPLEMENTED
                assert text_of(await client.call(ECHO, text_request("still there"))) == "still there"

        run(scenario)

    def test_a_time_limit(self, server: Any, channel: Any, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with server(tmp_path / "s"), channel(tmp_path / "s") as client:
                with pytest.raises(RpcError) as late:
                    await client.call(ECHO, text_request("slow"), timeout=0.05)
                assert late.value.code is Code.DEADLINE_EXCEEDED
                assert text_of(await client.call(ECHO, text_request("b"), timeout=5)) == "b"

        run(scenario)

    def test_a_stream_larger_than_every_window_and_its_status(self, server: Any, channel: Any, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with server(tmp_path / "s"), channel(tmp_path / "s") as client:
                numbers = []
                with pytest.raises(RpcError, match="enough") as end:
                    async for response in client.stream(WATCH, MESSAGES.Empty()):
                        assert len(response.devices) == 500
                        numbers.append(int(response.devices[0].ID.split("-")[0]))
                        if len(numbers) % 10 == 0:
                            await asyncio.sleep(0.02)  # a reader that lets the window fill
                assert end.value.code is Code.ABORTED
                assert numbers == list(range(40))

        run(scenario)


def test_a_call_that_its_client_gives_up_is_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def wait(_request: Any) -> Any:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        handlers = {ECHO.path: Handler(wait, ECHO.request)}
        for made in (Channel, TheirChannel):
            begun.clear()
            cancelled.clear()
            async with ours(tmp_path / made.__name__, handlers), made(tmp_path / made.__name__) as client:
                call = asyncio.create_task(client.call(ECHO, text_request("a")))
                await begun.wait()
                call.cancel()
                await cancelled.wait()

    run(scenario)


def test_a_stream_that_its_client_leaves_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def forever(_request: Any) -> AsyncIterator[Any]:
            try:
                while True:
                    yield MESSAGES.ListAndWatchResponse()
                    await asyncio.sleep(0)
            finally:
                closed.set()

        handlers = {WATCH.path: Handler(forever, WATCH.request, streams=True)}
        async with ours(tmp_path / "s", handlers), Channel(tmp_path / "s") as client:
            async with contextlib.aclosing(client.stream(WATCH, MESSAGES.Empty())) as responses:
                async for _ in responses:
                    break
            await closed.wait()

    run(scenario)


def test_a_time_limit_ends_the_call_at_the_server_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def wait(_request: Any) -> Any:
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        async with ours(tmp_path / "s", {ECHO.path: Handler(wait, ECHO.request)}), Channel(tmp_path / "s") as client:
            with pytest.raises(RpcError, match="context deadline exceeded"):
                await client.call(ECHO, text_request("a"), timeout=0.05)
            await ended.wait()

    run(scenario)


def test_stopping_lets_calls_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait(request: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await echo(request)

        for made in (Channel, TheirChannel):
            begun.clear()
            go_on.clear()
            server = Server(tmp_path / made.__name__, {ECHO.path: Handler(wait, ECHO.request)})
            await server.start()
            async with made(tmp_path / made.__name__) as client:
                call = asyncio.create_task(client.call(ECHO, text_request("a")))
                await begun.wait()
                stopping = asyncio.create_task(server.stop(10))
                await asyncio.sleep(0.01)
                assert not stopping.done()
                with pytest.raises(RpcError) as late:  # nothing new is begun
                    await client.call(ECHO, text_request("late"), timeout=5)
                assert late.value.code is Code.UNAVAILABLE
                go_on.set()
                assert text_of(await call) == "a"
                await stopping
                assert not server.path.exists()
                with pytest.raises(RpcError) as gone:
                    await client.call(ECHO, text_request("b"))
                assert gone.value.code is Code.UNAVAILABLE

    run(scenario)


def test_a_call_that_crosses_the_goodbye_is_refused_not_begun(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun: list[str] = []
        working, go_on = asyncio.Event(), asyncio.Event()

        async def wait(request: Any) -> Any:
            begun.append(request.container_requests[0].devices_ids[0])
            working.set()
            await go_on.wait()
            return await echo(request)

        server = Server(tmp_path / "s", {ECHO.path: Handler(wait, ECHO.request)})
        await server.start()
        async with Channel(tmp_path / "s") as client:
            first = asyncio.create_task(client.call(ECHO, text_request("first")))
            await working.wait()
            (connection,) = server._connections
            connection.leave()  # and before that is read:
            second = asyncio.create_task(client.call(ECHO, text_request("second")))
            with pytest.raises(RpcError) as refused:
                await second
            assert refused.value.code is Code.UNAVAILABLE
            go_on.set()
            assert text_of(await first) == "first"
            assert begun == ["first"]
            assert text_of(await client.call(ECHO, text_request("third"))) == "third"  # on a new connection
        await server.stop()

    run(scenario)


def test_being_killed_fails_calls_and_leaves_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Server(tmp_path / "s", HANDLERS)
        await server.start()
        async with Channel(tmp_path / "s") as client:
            call = asyncio.create_task(client.call(ECHO, text_request("slow")))
            await client.call(ECHO, text_request("x"))
            await server.kill()
            with pytest.raises(RpcError) as lost:
                await call
            assert lost.value.code is Code.UNAVAILABLE
            assert (tmp_path / "s").exists()
            with pytest.raises(DrakkarError, match="cannot listen on .*: Address already in use"):
                await Server(tmp_path / "s", HANDLERS).start()
            (tmp_path / "s").unlink()
            async with ours(tmp_path / "s"):
                assert text_of(await client.call(ECHO, text_request("again"))) == "again"

    run(scenario)


def test_nobody_there_is_said_as_go_says_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Channel(tmp_path / "none") as client:
            with pytest.raises(RpcError) as absent:
                await client.call(ECHO, text_request("a"))
            assert str(absent.value) == (
                'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: '
                f'dial unix {tmp_path}/none: connect: no such file or directory"'
            )

    run(scenario)


def test_whether_a_server_is_there_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Channel(tmp_path / "s") as client:
            told = client.connections()
            assert not await anext(told)
            server = Server(tmp_path / "s", HANDLERS)
            await server.start()
            while not await anext(told):
                pass
            await server.stop()
            assert not await anext(told)
            await told.aclose()

    run(scenario)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def scenario() -> None:
        before = descriptors()
        for _ in range(20):
            async with ours(tmp_path / "s"), Channel(tmp_path / "s") as client:
                await client.call(ECHO, text_request("a"))
        await asyncio.sleep(0)
        assert descriptors() <= before + 1

    run(scenario)
