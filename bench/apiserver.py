"""The API server alone: latency of reads, cost of writes (HTTPS, durable, in process), big lists, watchers, memory.

The server runs in a process of its own; the client speaks HTTP/1.1 over TLS with as little code as possible, so that
what is measured is mostly the server. Where kube-apiserver and etcd are built (`python -m tools.realkube`), the same
client asks them the same in the same run, and the last table has both: ours with its durable log, theirs with etcd.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from bench._tables import Figure, show
from drakkar import daemon
from drakkar.cluster import pki
from drakkar.cluster.apiserver.identities import ADMIN, Tokens
from drakkar.cluster.apiserver.inprocess import InProcessTransport
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.apiserver.serving import serve
from drakkar.cluster.store import Log, Store
from drakkar.kube import kubeconfig
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.resources import CONFIG_MAPS
from tools.realkube import build as realkube
from tools.realkube.cluster import RealCluster

TOKEN = "bench"
CONFIGS = "/api/v1/namespaces/default/configmaps"
READS, READ_RATE = 500, 1000
WRITES, WRITERS = 1000, 32
WATCHERS = 1000
PODS = 10_000


def main(runs: int) -> bool:
    """Print the table; whether the bounds hold. A few runs are enough: each has hundreds of requests."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    return uvloop.run(_measure(max(1, min(runs, 3))))


async def _measure(runs: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        keys = pki.prepare(Path(folder) / "pki").wait()
        context = ssl.create_default_context(cafile=str(keys.authority))
        plain, durable, inside, gets, durable_gets = [], [], [], [], []
        lists: list[float] = []
        spread: list[float] = []
        sizes: list[float] = []
        for _ in range(runs):
            with _Server(folder, context) as server:
                sizes.append(await server.memory())
                await server.write(50)
                gets.append(await server.get_p99())
                plain.append(await server.write(WRITES))
            with _Server(folder, context, "--data") as server:
                await server.write(50)
                durable.append(await server.write(WRITES))
                durable_gets.append(await server.get_p99())
            with _Server(folder, context, "--pods") as server:
                lists.append(await server.list_pods())
                spread.append(await server.fan_out())
            inside.append(await _inside())
    ratio = [after / before for before, after in zip(plain, durable, strict=True)]
    holds = show(
        [
            Figure("GET of one object, p99 at 1,000 requests/s", gets, "ms", 2.0),
            Figure("write over HTTPS", plain, "ms", 1000 / 1200),
            Figure("write over HTTPS with the durable log / without", ratio, "×", 4 / 3),
            Figure("write in process, processor time", inside, "ms", 0.2),
            Figure("list of 10,000 pods, first byte", lists, "ms", 50.0),
            Figure("one write reaches 1,000 watchers", spread, "ms", 100.0),
            Figure("memory of an idle server", sizes, "MB", 60.0),
        ]
    )
    return await _compared(runs, durable, durable_gets) and holds


async def _compared(runs: int, writes: list[float], gets: list[float]) -> bool:
    """Both servers side by side; true if the other is not here."""
    binaries = realkube.built()
    if binaries is None:
        print("\nnot compared with kube-apiserver and etcd: `python -m tools.realkube` builds them")
        return True
    their_writes, their_gets = [], []
    with RealCluster(binaries, only=("etcd", "kube-apiserver")) as cluster:
        connection = kubeconfig.load(cluster.kubeconfig)
        context = HttpsTransport(connection).tls()
        assert isinstance(context, ssl.SSLContext)
        peer = _Peer(context, int(connection.server.rpartition(":")[2]))
        await peer.write(200)
        for _ in range(runs):
            their_writes.append(await peer.write(WRITES))
            their_gets.append(await peer.get_p99())
    print("\nkube-apiserver with an etcd that does not sync, and ours with its log, which does:\n")
    share = statistics.median(writes) / statistics.median(their_writes)
    return show(
        [
            Figure("write, kube-apiserver and etcd", their_writes, "ms"),
            Figure("write, ours", writes, "ms"),
            Figure("ours / theirs", [share], "×", 1.0),
            Figure("GET p99 at 1,000 requests/s, kube-apiserver", their_gets, "ms"),
            Figure("GET p99 at 1,000 requests/s, ours", gets, "ms"),
        ]
    )


class _Peer:
    """A client of an API server on this machine."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self._context, self._port = context, port
        self._count = 0

    async def get_p99(self) -> float:
        """Milliseconds, with requests spaced evenly over four connections."""
        links = [await self._connect() for _ in range(4)]
        taken: list[float] = []
        start = time.perf_counter()

        async def reader(number: int) -> None:
            for turn in range(number, READS, len(links)):
                await asyncio.sleep(start + turn / READ_RATE - time.perf_counter())
                begun = time.perf_counter()
                await links[number].ask("GET", f"{CONFIGS}/c1")
                taken.append((time.perf_counter() - begun) * 1000)

        await asyncio.gather(*(reader(number) for number in range(len(links))))
        return sorted(taken)[int(len(taken) * 0.99)]

    async def write(self, count: int) -> float:
        """Milliseconds per create, many clients at once."""
        links = [await self._connect() for _ in range(WRITERS)]
        names = iter(range(self._count, self._count + count))
        self._count += count

        async def writer(link: _Link) -> None:
            for number in names:
                body = msgspec.json.encode({"metadata": {"name": f"c{number}"}, "data": {"key": "value"}})
                answer = await link.ask("POST", CONFIGS, body)
                assert answer.startswith(b"HTTP/1.1 201"), answer

        begun = time.perf_counter()
        await asyncio.gather(*(writer(link) for link in links))
        return (time.perf_counter() - begun) * 1000 / count

    async def list_pods(self) -> float:
        link = await self._connect()
        await link.ask("GET", "/api/v1/pods?limit=1")
        begun = time.perf_counter()
        return (await link.first_byte("/api/v1/pods") - begun) * 1000

    async def fan_out(self) -> float:
        """Milliseconds from a create to the last of many watchers seeing it."""
        loop = asyncio.get_running_loop()
        audience = _Audience(loop, WATCHERS)
        for _ in range(0, WATCHERS, 50):  # as many handshakes at once as the server likes
            await asyncio.gather(
                *(
                    loop.create_connection(lambda: _Spectator(audience), "127.0.0.1", self._port, ssl=self._context)
                    for _ in range(50)
                )
            )
        await audience.seated
        writer = await self._connect()
        begun = time.perf_counter()
        await writer.ask("POST", CONFIGS, b'{"metadata":{"name":"fan"}}')
        await audience.seen
        return (time.perf_counter() - begun) * 1000

    async def _connect(self) -> _Link:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context, limit=1 << 26)
        return _Link(reader, writer)


class _Server(_Peer):
    """A server process of ours and a client for it."""

    def __init__(self, folder: str, context: ssl.SSLContext, *options: str) -> None:
        words = [sys.executable, "-m", "bench.apiserver", folder, *options]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        super().__init__(context, int(self._process.stdout.readline()))

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    async def memory(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


class _Audience:
    """Many watchers: `seated` when the last has its headers, `seen` when the last has seen an event."""

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int) -> None:
        self.seated: asyncio.Future[None] = loop.create_future()
        self.seen: asyncio.Future[None] = loop.create_future()
        self._waiting, self._blind = size, size

    def sits(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self.seated.set_result(None)

    def sees(self) -> None:
        self._blind -= 1
        if not self._blind:
            self.seen.set_result(None)


class _Spectator(asyncio.Protocol):
    """One watcher, with as little code as can be: a thousand of them share a core with the server."""

    def __init__(self, audience: _Audience) -> None:
        self._audience = audience
        self._sits = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        path = f"{CONFIGS}?watch=1&fieldSelector=metadata.name%3Dfan"
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        transport.write(head.encode())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self._sits:
            self._sits = True
            self._audience.sits()
        elif b'"ADDED"' in data:
            self._audience.sees()


class _Link:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    def _send(self, method: str, path: str, body: bytes = b"") -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        self._send(method, path, body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await self.reader.readexactly(length)
        return head

    async def first_byte(self, path: str) -> float:
        self._send("GET", path)
        await self.reader.read(1)
        moment = time.perf_counter()
        await self.reader.readuntil(b"\r\n0\r\n\r\n")  # what comes next is not measured beside the rest of this
        return moment


async def _inside() -> float:
    """Milliseconds of processor time per create."""
    server = ApiServer(Store())
    client = Client(InProcessTransport(server))

    async def write(first: int, count: int) -> float:
        begun = time.process_time()
        for number in range(first, first + count):
            await client.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}, "data": {"a": "b"}}, "default")
        return (time.process_time() - begun) * 1000 / count

    await write(0, 50)
    return await write(50, WRITES)


def _pod(number: int) -> dict[str, Any]:
    container = {"name": "main", "image": "cuda-sample:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"p{number}", "namespace": "default", "labels": {"app": "bench"}, "uid": str(number)},
        "spec": {"containers": [container], "nodeName": f"n{number % 100}", "schedulerName": "default-scheduler"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def _serve(folder: Path, options: list[str]) -> None:
    keys = pki.prepare(folder / "pki").wait()
    tokens = Tokens()
    tokens.add(TOKEN, ADMIN)
    store = Store(Log(Path(tempfile.mkdtemp(dir=folder)))) if "--data" in options else Store()
    server = ApiServer(store, tokens=tokens)
    if "--pods" in options:
        for number in range(PODS):
            store.create("pods", f"default/p{number}", _pod(number))
    listener = await serve(server, certificate=keys.certificate, key=keys.key)
    daemon.settle()
    print(listener.url.rpartition(":")[2], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    uvloop.run(_serve(Path(sys.argv[1]), sys.argv[2:]))
