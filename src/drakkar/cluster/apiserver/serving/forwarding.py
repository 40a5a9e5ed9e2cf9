"""kubectl port-forward: SPDY streams in a websocket, two for each connection, to a port of a pod.

A connection comes as an error stream and a data stream with the same request id and port. The node connects to the
port; bytes go both ways until both sides have ended. What fails goes to the error stream as a sentence, and the other
connections of the session go on. Source: KEP-4006; pkg/kubelet/util/portforward.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from drakkar.cluster.apiserver.serving.spdy import SpdyError, SpdySession, SpdyStream
from drakkar.cluster.apiserver.serving.websockets import WebSocket
from drakkar.cluster.streams import NodeStreams
from drakkar.errors import DrakkarError

PROTOCOL = "SPDY/3.1+portforward.k8s.io"
_PAIR_SECONDS = 30.0
_CHUNK = 32 << 10


@dataclass(slots=True)
class _Pair:
    """The two streams of one connection, as far as they have come."""

    error: SpdyStream | None = None
    data: SpdyStream | None = None


async def forward(socket: WebSocket, node: NodeStreams, namespace: str, pod: str) -> None:
    """Serve the session until its client goes."""
    session = SpdySession(socket.receive, socket.send)
    pairs: dict[str, _Pair] = {}
    tasks: set[asyncio.Task[None]] = set()
    try:
        async for stream in session.accept():
            request = stream.headers.get("requestid", "")
            kind = stream.headers.get("streamtype", "")
            if kind not in ("error", "data") or not request:
                await stream.reset()
                continue
            if len(pairs) > 1024:
                await stream.reset()  # a client that never completes a pair
                continue
            pair = pairs.setdefault(request, _Pair())
            setattr(pair, kind, stream)
            if pair.error is not None and pair.data is not None:
                del pairs[request]
                work = _connection(session, node, namespace, pod, pair.error, pair.data)
                tasks.add(task := asyncio.create_task(work, name=f"forward to {namespace}/{pod}"))
                task.add_done_callback(tasks.discard)
    except SpdyError:
        socket.close(1002)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connection(
    session: SpdySession, node: NodeStreams, namespace: str, pod: str, error: SpdyStream, data: SpdyStream
) -> None:
    try:
        port = _port(data.headers.get("port", ""))
        reader, writer = await node.connect(namespace, pod, port)
    except DrakkarError as failure:
        await error.write(failure.message.encode())
        await error.end()
        await data.reset()
        session.forget(error)
        session.forget(data)
        return
    inwards = asyncio.create_task(_into(data, writer))
    try:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                await data.write(chunk)
        await data.end()
        await inwards
    finally:
        inwards.cancel()
        await asyncio.gather(inwards, return_exceptions=True)
        writer.close()
        await error.end()
        session.forget(error)
        session.forget(data)


async def _into(data: SpdyStream, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await data.read():
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
        raise DrakkarError(f"unable to parse {text!r} as a port", reason="BadRequest")
    return int(text)
