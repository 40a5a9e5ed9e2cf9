"""The seam between a client and an API server: one request, one answer, or a stream.

Two transports implement it: `drakkar.kube.https.HttpsTransport` for any cluster, and the embedded cluster's in-process
one, which hands the same values to the same authentication, admission and validation without serialising them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class ApiRequest:
    """`body` is None, bytes as they go on the wire, or a plain JSON value that the transport may pass on as it is."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(slots=True)
class ApiResponse:
    """`body` is the parsed JSON value, or text or bytes for other media types. Treat it as immutable."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Transport(Protocol):
    """How requests reach an API server."""

    async def send(self, request: ApiRequest) -> ApiResponse:
        """One exchange. Never raises for HTTP statuses; `drakkar.errors.DrakkarError` when no answer came."""
        ...

    def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        """Events ``{"type", "object"}`` until the server ends the watch. Raises `ApiError` if it is refused."""
        ...

    def stream(self, request: ApiRequest) -> AsyncIterator[bytes]:
        """A body as it arrives (followed logs). Raises `ApiError` if it is refused."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
