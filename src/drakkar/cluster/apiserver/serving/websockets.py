"""The frames of RFC 6455, server side, as far as remotecommand needs them: binary messages, ping, close.

Small enough to be written out, and it spares the first `kubectl exec` a tenth of a second of imports.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

_OVERHEAD: Final = 64
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
MESSAGE_LIMIT: Final = 1 << 22
QUEUE_BYTES: Final = 1 << 20
"""How much may wait for a slow receiver before the peer is no longer read from."""


class WebSocket:
    """Messages in and out. `receive` returns None once the peer has closed or vanished.

    `hold(True)` is called when the peer sends more than is received, `hold(False)` when it may go on.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]],
        hold: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._write = write
        self._drain = drain
        self._hold = hold
        self._held = False
        self._queued = 0
        self._partial = 0
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._messages: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    @staticmethod
    def greeting(headers: Mapping[str, str], subprotocol: str) -> bytes:
        """The answer that switches protocols."""
        key = headers.get("sec-websocket-key", "").encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {accept}",
            f"Sec-WebSocket-Protocol: {subprotocol}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def receive(self) -> bytes | None:
        """The next message."""
        while not self._messages:
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._queued -= len(message) + _OVERHEAD
        if self._held and self._queued <= QUEUE_BYTES // 2 and not self._closed:
            self._held = False
            self._hold(False)
        return message

    async def send(self, message: bytes) -> None:
        """Send one binary message, waiting while the peer is slow."""
        if not self._closed:
            self._frame(_BINARY, message)
            await self._drain()

    def close(self, code: int = 1000) -> None:
        """Say goodbye; nothing can be sent afterwards."""
        if not self._closed:
            self._frame(_CLOSE, code.to_bytes(2, "big"))
            self.lost()

    def ping(self) -> None:
        """Ask for a sign of life."""
        if not self._closed:
            self._frame(_PING, b"")

    def lost(self) -> None:
        """The connection is gone."""
        self._closed = True
        self._arrived.set()

    def received(self, data: bytes) -> None:
        """Bytes from the peer; a peer that breaks the protocol is closed."""
        self._buffer += data
        while not self._closed:
            frame = self._next_frame()
            if frame is None:
                return
            self._take(*frame)

    def _take(self, final: bool, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self._frame(_PONG, payload)
        elif opcode == _CLOSE:
            self.close()
        elif opcode in (0, _TEXT, _BINARY):
            if payload:
                self._parts.append(payload)
            self._partial += len(payload)
            if self._partial > MESSAGE_LIMIT:
                self.close(1009)
            elif final:
                self._queue(b"".join(self._parts))
        elif opcode != _PONG:
            self.close(1002)

    def _queue(self, message: bytes) -> None:
        self._parts.clear()
        self._partial = 0
        self._messages.append(message)
        self._queued += len(message) + _OVERHEAD
        self._arrived.set()
        if self._queued > QUEUE_BYTES and not self._held:
            self._held = True
            self._hold(True)

    def _next_frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        length, at = buffer[1] & 0x7F, 2
        if length == 126:
            length, at = int.from_bytes(buffer[2:4], "big"), 4
        elif length == 127:
            length, at = int.from_bytes(buffer[2:10], "big"), 10
        if not buffer[1] & 0x80 or length > MESSAGE_LIMIT:  # clients must mask
            self.close(1002 if length <= MESSAGE_LIMIT else 1009)
            return None
        end = at + 4 + length
        if len(buffer) < end:
            return None
        mask, payload = bytes(buffer[at : at + 4]), bytes(buffer[at + 4 : end])
        opcode, final = buffer[0] & 0x0F, bool(buffer[0] & 0x80)
        del buffer[:end]
        return final, opcode, _unmasked(payload, mask)

    def _frame(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | opcode, size))
        elif size < 1 << 16:
            head = bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")
        self._write(head + payload)


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    if not size:
        return b""
    pattern = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(pattern, "big")).to_bytes(size, "big")
