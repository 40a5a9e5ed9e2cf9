"""Runs one command in a container and waits for its end, as `kubectl exec` does: over a websocket (KEP-4006).

The subprotocol ``v5.channel.k8s.io`` (v4 for older servers) puts a channel number before each message: 1 is the
command's output, 2 its errors, and on 3 the server says at last how it ended, as a Status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import UnreachableError
from drakkar.kube.https import HttpsTransport
from drakkar.kube.resources import PODS

__all__ = ["Executed", "execute"]

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_OUTPUT, _ERRORS, _STATUS = 1, 2, 3
_LIMIT: Final = 4 << 20


class Executed(NamedTuple):
    """How a command ended: what it printed, and its exit status; -1 where the server does not say one."""

    stdout: str
    stderr: str
    status: int
    message: str


async def execute(
    transport: HttpsTransport,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    seconds: float = 20.0,
) -> Executed:
    """Runs a command in a container of a pod.

    Raises:
        DrakkarError: the server refuses, or the command does not end in time.
        UnreachableError: no connection.
    """
    import aiohttp

    query = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", word) for word in command)]
    path = PODS.path(namespace, pod, "exec")
    subject = f"Pod/{namespace}/{pod}"
    parts: dict[int, bytearray] = {_OUTPUT: bytearray(), _ERRORS: bytearray(), _STATUS: bytearray()}
    try:
        async with asyncio.timeout(seconds):
            async with transport.session().ws_connect(
                path.removeprefix("/"), params=query, protocols=_PROTOCOLS, headers=transport.authorization()
            ) as socket:
                async for message in socket:
                    data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
                    if data and data[0] in parts and len(parts[data[0]]) < _LIMIT:
                        parts[data[0]] += data[1:]
    except aiohttp.WSServerHandshakeError as error:
        words = "does not allow it" if error.status == 403 else f"answered {error.status} {error.message}"
        raise DrakkarError(
            f"cannot run {command[0]} in container {container}: the server {words}",
            reason="ExecRefused",
            subject=subject,
            next_step=f"kubectl auth can-i create pods/exec -n {namespace}",
        ) from None
    except TimeoutError:
        raise DrakkarError(
            f"{command[0]} in container {container} did not end in {seconds:g} s", reason="ExecTimeout", subject=subject
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise UnreachableError(f"cannot reach the server: {error}", reason="Unreachable", subject=subject) from None
    status, told = _ending(bytes(parts[_STATUS]))
    return Executed(_text(parts[_OUTPUT]), _text(parts[_ERRORS]), status, told)


def _ending(data: bytes) -> tuple[int, str]:
    """Exit status and message of a v1.Status: Success, NonZeroExitCode with the code among its causes, or a failure."""
    try:
        answer = msgspec.json.decode(data) if data else {}
    except msgspec.DecodeError:
        return -1, data.decode("utf-8", "replace")
    if not isinstance(answer, dict):
        return -1, str(answer)
    if answer.get("status") == "Success":
        return 0, ""
    details: dict[str, Any] = answer.get("details") or {}
    codes = [cause.get("message") for cause in details.get("causes") or () if cause.get("reason") == "ExitCode"]
    code = int(codes[0]) if codes and str(codes[0]).isdigit() else -1
    return code, str(answer.get("message") or "")


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
