"""A running cluster's own door: one JSON line in, one JSON line out, over a unix socket that only its user can open.

It is for what the Kubernetes API has no words for (faults of simulated hardware, ending the process); everything else
goes through the API like anybody's requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from drakkar.errors import DrakkarError

Answer = dict[str, Any]
Handler = Callable[[dict[str, Any]], Awaitable[Answer]]

_LIMIT = 1 << 20
_PATH_LIMIT = 107
_log = logging.getLogger(__name__)


class ControlServer:
    """Answers requests at `path` with `handler`; its `DrakkarError`s become ``{"error": …}``."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path, self._handler = path, handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if len(os.fsencode(self._path)) > _PATH_LIMIT:
            raise DrakkarError(
                f"{self._path} is too long for a unix socket",
                reason="PathTooLong",
                subject=str(self._path),
                expected=f"at most {_PATH_LIMIT} bytes",
                next_step="set DRAKKAR_RUNTIME_DIR to a directory with a short path",
            )
        previous = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self._path), limit=_LIMIT)
        finally:
            os.umask(previous)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            try:
                request = msgspec.json.decode(await reader.readline(), type=dict[str, Any])
                answer = await self._handler(request)
            except (msgspec.DecodeError, ValueError):
                answer = {"error": {"reason": "BadRequest", "message": "the request is not one line of JSON"}}
            except DrakkarError as error:
                answer = {"error": error.to_dict()}
            except Exception as error:
                _log.exception("a control request failed")
                answer = {"error": {"reason": "InternalError", "message": f"{type(error).__name__}: {error}"}}
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
            writer.close()


async def ask(path: Path, request: dict[str, Any], *, timeout: float = 30.0) -> Answer:
    """Send `request` to the cluster whose control socket is `path`; its errors are raised here."""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_unix_connection(str(path), limit=_LIMIT)
            writer.write(msgspec.json.encode(request) + b"\n")
            line = await reader.readline()
            writer.close()
            answer: Answer = msgspec.json.decode(line, type=dict[str, Any])
    except (OSError, TimeoutError, msgspec.DecodeError) as error:
        raise DrakkarError(
            f"the cluster does not answer: {error or type(error).__name__}", reason="Unreachable", subject=str(path)
        ) from error
    if "error" in answer:
        problem = answer["error"]
        raise DrakkarError(
            problem.get("message", "the cluster refused"),
            reason=problem.get("reason", ""),
            subject=problem.get("subject", ""),
            expected=problem.get("expected", ""),
            next_step=problem.get("nextStep", ""),
        )
    return answer
