"""A plugin is reached exactly as kubelet reaches it: by its sockets."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest

from drakkar.kube.clock import FakeClock
from drakkar.preparation import stubs
from drakkar.preparation.plugin import PluginError, PluginServer
from drakkar.preparation.values import ClaimRef, ClaimUID, DeviceHealth, HealthBoard, PreparedDevice, PrepareResult


class Handler:
    def __init__(self) -> None:
        self.board = HealthBoard([DeviceHealth("node-1", "gpu-0")])
        self.broken = False

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareResult]:
        if self.broken:
            raise RuntimeError("no power")
        device = PreparedDevice(("gpu",), "node-1", "gpu-0", ("vendor/class=x",), "share")
        return {claim.uid: PrepareResult((device,)) for claim in claims if claim.name != "ignored"}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, str]:
        return {claim.uid: "held" if claim.name == "held" else "" for claim in claims}

    def health(self) -> AsyncIterator[list[DeviceHealth]]:
        return self.board.watch()


def plugin(folder: Path, handler: Handler | None = None, **options: object) -> PluginServer:
    return PluginServer(
        "gpu.example.com", handler or Handler(), plugins_dir=folder / "p", registry_dir=folder / "r", **options
    )


async def call(path: object, method: stubs.Method, request: object, timeout: float = 5) -> object:
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        rpc = channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return await rpc(request, timeout=timeout, wait_for_ready=True)


def request(version: str, *names: str, unprepare: bool = False) -> object:
    messages = stubs.dra(version).messages
    kind = messages.NodeUnprepareResourcesRequest if unprepare else messages.NodePrepareResourcesRequest
    return kind(claims=[messages.Claim(uid=f"uid-{name}", name=name, namespace="a") for name in names])


def test_registration_names_the_endpoint_and_every_service(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = plugin(tmp_path)
        await server.start()
        api = stubs.registration()
        info = await call(server.registration_socket, api.get_info, api.messages.InfoRequest())
        assert (info.type, info.name) == ("DRAPlugin", "gpu.example.com")
        assert info.endpoint == str(tmp_path / "p/gpu.example.com/dra.sock")
        assert list(info.supported_versions) == [
            "v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth",
        ]  # fmt: skip
        await call(server.registration_socket, api.notify, api.messages.RegistrationStatus(plugin_registered=True))
        await asyncio.wait_for(server.registered.wait(), 1)
        await server.stop()
        assert not list(tmp_path.rglob("*.sock"))

    asyncio.run(scenario())


@pytest.mark.parametrize("version", stubs.DRA_VERSIONS)
def test_every_claim_of_a_call_gets_an_answer(tmp_path: Path, version: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        server = plugin(tmp_path, handler)
        await server.start()
        api = stubs.dra(version)
        answer = await call(server.endpoint, api.prepare, request(version, "one", "ignored"))
        assert [device.device_name for device in answer.claims["uid-one"].devices] == ["gpu-0"]
        assert getattr(answer.claims["uid-one"].devices[0], "share_id", None) == (
            None if version == "v1beta1" else "share"
        )
        assert "no answer" in answer.claims["uid-ignored"].error
        handler.broken = True
        answer = await call(server.endpoint, api.prepare, request(version, "one"))
        assert answer.claims["uid-one"].error == "RuntimeError: no power"
        answer = await call(server.endpoint, api.unprepare, request(version, "one", "held", unprepare=True))
        assert {uid: entry.error for uid, entry in answer.claims.items()} == {"uid-one": "", "uid-held": "held"}
        await server.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", stubs.HEALTH_VERSIONS)
def test_health_is_streamed_whole_now_and_at_every_change(tmp_path: Path, version: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        server = plugin(tmp_path, handler)
        await server.start()
        api = stubs.health(version)
        async with grpc.aio.insecure_channel(f"unix:{server.endpoint}") as channel:
            stream = channel.unary_stream(
                api.watch.path,
                request_serializer=api.watch.request.SerializeToString,
                response_deserializer=api.watch.response.FromString,
            )(api.messages.NodeWatchResourcesRequest())
            first = await stream.read()
            assert [(each.device.device_name, each.health) for each in first.devices] == [("gpu-0", 1)]
            handler.board.publish([DeviceHealth("node-1", "gpu-0", "UNHEALTHY", message="x" * 2000)])
            second = await stream.read()
            assert (second.devices[0].health, len(second.devices[0].message)) == (2, 1024)
            stream.cancel()
        await server.stop()

    asyncio.run(scenario())


def test_a_second_live_plugin_is_refused_and_a_dead_one_s_socket_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = plugin(tmp_path)
        await first.start()
        with pytest.raises(PluginError, match="another plugin of driver gpu.example.com is serving"):
            await plugin(tmp_path).start()
        beside = plugin(tmp_path, instance="0b1c")
        await beside.start()
        assert beside.endpoint.name == "dra-0b1c.sock"
        await beside.stop()
        await first.stop()
        first.endpoint.touch()
        third = plugin(tmp_path)
        await third.start()
        await third.stop()

    asyncio.run(scenario())


def test_a_wiped_registry_is_noticed(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        server = plugin(tmp_path, clock=clock)
        await server.start()
        server.registration_socket.unlink()
        await clock.advance(1.1)
        for _ in range(200):
            if server.registration_socket.exists():
                break
            await asyncio.sleep(0.01)
        api = stubs.registration()
        info = await call(server.registration_socket, api.get_info, api.messages.InfoRequest())
        assert info.name == "gpu.example.com"
        await server.stop()

    asyncio.run(scenario())


def test_garbage_on_the_socket_disturbs_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = plugin(tmp_path)
        await server.start()
        for garbage in (
            b"\x00" * 100,
            b"GET / HTTP/1.1\r\n\r\n",
            os.urandom(4096),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
        ):
            reader, writer = await asyncio.open_unix_connection(str(server.endpoint))
            writer.write(garbage)
            writer.close()
            await asyncio.gather(reader.read(), return_exceptions=True)
        api = stubs.dra("v1")
        raw = stubs.Method(
            api.prepare.path,
            type("Raw", (), {"SerializeToString": staticmethod(lambda data: data)}),
            api.prepare.response,
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await call(server.endpoint, raw, b"\xff\xff\xff")
        answer = await call(server.endpoint, api.prepare, request("v1", "one"))
        assert answer.claims["uid-one"].devices
        await server.stop()

    asyncio.run(scenario())


def test_a_directory_too_long_for_a_socket_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="too long for a unix socket"):
        plugin(tmp_path / ("x" * 120))
