"""A transport for clients in the same process: no network and no text, the same handler chain.

Requests pass authentication (the user is given instead of a token), authorisation, admission and validation exactly as
over HTTPS. What is read is the stored value itself; readers never change it. What is written is copied by the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from drakkar.cluster.apiserver.identities import ADMIN, User
from drakkar.cluster.apiserver.server import ApiServer
from drakkar.kube.apierrors import error_from
from drakkar.kube.simulated import simulated
from drakkar.kube.transport import ApiRequest, ApiResponse

_LONGEST: Final = str(10_000_000)


class InProcessTransport:
    """`drakkar.kube.transport.Transport` straight into an `ApiServer`, for `user` (default: the administrator)."""

    def __init__(self, server: ApiServer, user: User | None = None) -> None:
        self._server = server
        self._user = user or ADMIN
        # When a watch ends is a matter of real time and luck; in simulated time nothing in the process depends on it.
        self._lasting = simulated(server.clock) is not None

    async def send(self, request: ApiRequest) -> ApiResponse:
        """One exchange; failures are answers with a Status."""
        await self._server.breathe()
        return await self._server.handle(_lowered(request), self._user)

    async def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        """Events until the server ends the watch; raises `ApiError` if it is refused."""
        lowered = _lowered(request)
        if self._lasting:
            lowered.query = {"timeoutSeconds": _LONGEST, **lowered.query}
        answer = await self._server.respond(lowered, self._user)
        if answer.watch is None:
            raise error_from(answer.status, answer.value)
        async with aclosing(answer.watch) as events:  # a reader that leaves early ends the watch at once
            async for event in events:
                yield event

    async def stream(self, request: ApiRequest) -> AsyncIterator[bytes]:
        """A body in chunks; raises `ApiError` if it is refused."""
        answer = await self._server.respond(_lowered(request), self._user)
        if answer.status >= 400:
            raise error_from(answer.status, answer.value)
        if answer.stream is None:
            yield answer.raw or b""
            return
        async with aclosing(answer.stream) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        """Nothing to release."""


def _lowered(request: ApiRequest) -> ApiRequest:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return ApiRequest(request.method, request.path, request.query, headers, request.body)
