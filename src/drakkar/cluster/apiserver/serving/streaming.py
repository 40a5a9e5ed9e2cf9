"""exec and attach: the remotecommand protocol over a websocket (KEP-4006), with the node's kubelet at the other end.

Each binary message starts with a channel number. Version 5 adds the close message (255 and the channel), with which a
client ends its standard input; older clients (version 4) cannot. The last message on the error channel is a Status with
the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.paths import request_info, truth
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.apiserver.serving.websockets import WebSocket
from drakkar.cluster.apiserver.subresources.sessions import admit, locate, locate_pod
from drakkar.cluster.streams import ERROR, RESIZE, STDIN, ExecSession
from drakkar.errors import DrakkarError
from drakkar.kube.transport import ApiRequest

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_CLOSE: Final = 255


async def serve_stream(
    server: ApiServer,
    request: ApiRequest,
    repeated: Mapping[str, list[str]],
    accept: Callable[[str], WebSocket],
) -> Answer | None:
    """Run the session; an answer if it is refused before the protocol is switched."""
    try:
        call = _call(server, request, repeated)
        await admit(call)
        if call.info.subresource == "portforward":
            await _forward(call, accept)
            return None
        session, protocol = await _start(call)
    except statuses.StatusError as refusal:
        return Answer(refusal.code, refusal.status, headers=refusal.headers)
    socket = accept(protocol)
    if isinstance(session, DrakkarError):
        # As the stream translator of Kubernetes does: a handshake that fails would only make the client try SPDY, and
        # show the refusal of that instead of the reason.
        reason = statuses.internal_error(session.message).status
        await socket.send(bytes((ERROR,)) + msgspec.json.encode(reason))
        socket.close()
        return None
    try:
        await _pump(socket, session, protocol)
    finally:
        await session.close()
        socket.close()
    return None


async def _forward(call: Call, accept: Callable[[str], WebSocket]) -> None:
    """Carry connections to ports of the pod; raises `StatusError` before the protocol is switched."""
    from drakkar.cluster.apiserver.serving.forwarding import PROTOCOL, forward

    node = locate_pod(call)
    socket = accept(_protocol(call, (PROTOCOL,)))
    try:
        await forward(socket, node, call.info.namespace, call.name)
    finally:
        socket.close()


def _protocol(call: Call, spoken: Sequence[str]) -> str:
    """The first of ours that the client offers; raises `StatusError`."""
    offered = [one.strip() for one in call.headers.get("sec-websocket-protocol", "").split(",")]
    protocol = next((one for one in spoken if one in offered), "")
    if not protocol:
        raise statuses.bad_request(f"unable to upgrade: none of {offered} is supported, only {list(spoken)}")
    return protocol


def _call(server: ApiServer, request: ApiRequest, repeated: Mapping[str, list[str]]) -> Call:
    """The request, identified and authorized; raises `StatusError`."""
    query = request.query
    info = request_info(request.method, request.path, query)
    user = server.identify(request.headers)
    server.authorize(user, info, query)
    row = server.target(info, request.method)
    return Call(
        server,
        request.method,
        request.path,
        query,
        repeated,
        request.headers,
        None,
        user,
        server.clock.now(),
        info,
        row,
        row.subresource(info.subresource),
    )


async def _start(call: Call) -> tuple[ExecSession | DrakkarError, str]:
    """The session (or why the node cannot begin it) and the protocol; raises `StatusError` for a wrong request."""
    node, container = locate(call)
    protocol = _protocol(call, PROTOCOLS)
    query, info, repeated = call.query, call.info, call.repeated
    wanted = {name: truth(query.get(name, "")) for name in ("stdin", "stdout", "stderr", "tty")}
    try:
        if info.subresource == "attach":
            session = await node.attach(call.info.namespace, call.name, container, **wanted)
        else:
            command = list(repeated.get("command", ()))
            session = await node.exec(call.info.namespace, call.name, container, command, **wanted)
    except DrakkarError as error:
        return error, protocol
    return session, protocol


async def _pump(socket: WebSocket, session: ExecSession, protocol: str) -> None:
    """Both directions at once; ends with the process or with the client."""

    async def outwards() -> None:
        async for channel, data in session.output():
            await socket.send(bytes((channel,)) + data)
        code = await session.wait()
        await socket.send(bytes((ERROR,)) + msgspec.json.encode(exit_status(code)))

    writer = asyncio.ensure_future(outwards())
    reader = asyncio.ensure_future(_inwards(socket, session, protocol))
    await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
    for task in (writer, reader):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, DrakkarError):
            await task


async def _inwards(socket: WebSocket, session: ExecSession, protocol: str) -> None:
    while (message := await socket.receive()) is not None:
        if not message:
            continue
        channel, data = message[0], message[1:]
        if channel == STDIN:
            if data:
                await session.write_stdin(data)
        elif channel == RESIZE:
            with contextlib.suppress(msgspec.DecodeError, AttributeError, TypeError, ValueError):
                size = msgspec.json.decode(data)
                await session.resize(int(size.get("Width", 0)), int(size.get("Height", 0)))
        elif channel == _CLOSE and protocol == PROTOCOLS[0] and data == bytes((STDIN,)):
            await session.close_stdin()


def exit_status(code: int) -> dict[str, Any]:
    """How a command ended, as the Status on the error channel."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
