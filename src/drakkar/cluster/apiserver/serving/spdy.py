"""The frames of SPDY/3.1 that port forwarding needs, over any pair of byte streams; server side.

Kubernetes carries SPDY in a websocket today (KEP-4006, subprotocol `SPDY/3.1+portforward.k8s.io`): streams are opened
with headers, carry data both ways and are half closed. There is no flow control in the implementation that clients
have, so a peer is held back by not being read. Source: the SPDY/3.1 draft, with the compression dictionary of its
section 2.6.10.1.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from drakkar.errors import DrakkarError

_WORDS: Final = [
    "options", "head", "post", "put", "delete", "trace", "accept", "accept-charset", "accept-encoding",
    "accept-language", "accept-ranges", "age", "allow", "authorization", "cache-control", "connection",
    "content-base", "content-encoding", "content-language", "content-length", "content-location", "content-md5",
    "content-range", "content-type", "date", "etag", "expect", "expires", "from", "host", "if-match",
    "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified", "location",
    "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "referer", "retry-after",
    "server", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning",
    "www-authenticate", "method", "get", "status",
]  # fmt: skip
_MORE: Final = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_TAIL: Final = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    b"404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    b"Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    b"chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    b"publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = b"".join(struct.pack(">I", len(w)) + w.encode() for w in (*_WORDS, *_MORE)) + _TAIL

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN: Final = 1
_CANCEL: Final = 5
_VERSION: Final = 0x8003
_FRAME_LIMIT: Final = 1 << 20
_STREAMS: Final = 4096
_HEADER_LIMIT: Final = 64 << 10
_CHUNK: Final = 32 << 10


class SpdyError(DrakkarError):
    """The peer broke the protocol."""


class SpdyStream:
    """One stream, opened by the peer with `headers` (names in lower case)."""

    def __init__(self, session: SpdySession, number: int, headers: dict[str, str]) -> None:
        self.number, self.headers = number, headers
        self._session = session
        self._chunks: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self.closed = False

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        while not self._chunks:
            if self._ended:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        return self._chunks.popleft()

    async def write(self, data: bytes) -> None:
        """Send bytes; nothing happens once the stream is closed."""
        for start in range(0, len(data), _CHUNK):
            if not self.closed:
                await self._session.send_data(self.number, data[start : start + _CHUNK])

    async def end(self) -> None:
        """Nothing more will be written."""
        if not self.closed:
            self.closed = True
            await self._session.send_data(self.number, b"", _FIN)

    async def reset(self) -> None:
        """Give the stream up."""
        self.closed = self._ended = True
        self._arrived.set()
        await self._session.send_control(_RST_STREAM, struct.pack(">II", self.number, _CANCEL))

    def take(self, data: bytes, last: bool) -> None:
        """What the session received for this stream."""
        if data:
            self._chunks.append(data)
        self._ended = self._ended or last
        self._arrived.set()


class SpdySession:
    """A connection. `receive` gives the next bytes of the peer (None at the end), `send` takes bytes to it."""

    def __init__(
        self, receive: Callable[[], Awaitable[bytes | None]], send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._receive, self._send = receive, send
        self._buffer = bytearray()
        self._streams: dict[int, SpdyStream] = {}
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def accept(self) -> AsyncIterator[SpdyStream]:
        """New streams, answered already, until the peer goes. Raises `SpdyError`: it broke the protocol."""
        try:
            while (data := await self._receive()) is not None:
                self._buffer += data
                while (frame := self._next_frame()) is not None:
                    opened = await self._take(*frame)
                    if opened is not None:
                        yield opened
        finally:
            for stream in self._streams.values():
                stream.take(b"", True)
                stream.closed = True

    def forget(self, stream: SpdyStream) -> None:
        """Both sides have ended."""
        self._streams.pop(stream.number, None)

    async def send_data(self, number: int, data: bytes, flags: int = 0) -> None:
        await self._send(struct.pack(">II", number, flags << 24 | len(data)) + data)

    async def send_control(self, kind: int, payload: bytes, flags: int = 0) -> None:
        await self._send(struct.pack(">HHI", _VERSION, kind, flags << 24 | len(payload)) + payload)

    def _next_frame(self) -> tuple[bytes, bytes] | None:
        if len(self._buffer) < 8:
            return None
        size = int.from_bytes(self._buffer[5:8], "big")
        if size > _FRAME_LIMIT:
            raise SpdyError(f"a frame of {size} bytes is too large", reason="BadRequest")
        if len(self._buffer) < 8 + size:
            return None
        head, payload = bytes(self._buffer[:8]), bytes(self._buffer[8 : 8 + size])
        del self._buffer[: 8 + size]
        return head, payload

    async def _take(self, head: bytes, payload: bytes) -> SpdyStream | None:
        if not head[0] & 0x80:
            stream = self._streams.get(int.from_bytes(head[:4], "big"))
            if stream is not None:
                stream.take(payload, bool(head[4] & _FIN))
            return None
        version, kind = struct.unpack(">HH", head[:4])
        if version != _VERSION:
            raise SpdyError(f"version {version & 0x7FFF} of SPDY is not spoken here, only 3", reason="BadRequest")
        if kind == _PING:
            await self.send_control(_PING, payload[:4])
        elif kind == _RST_STREAM and len(payload) >= 4:
            stream = self._streams.pop(int.from_bytes(payload[:4], "big"), None)
            if stream is not None:
                stream.take(b"", True)
                stream.closed = True
        elif kind == _SYN_STREAM:
            return await self._open(payload, bool(head[4] & _FIN))
        elif kind == _HEADERS and len(payload) > 4:
            self._names(payload[4:])  # the compression goes on over all header blocks
        return None

    async def _open(self, payload: bytes, last: bool) -> SpdyStream:
        if len(payload) < 10 or len(self._streams) >= _STREAMS:
            raise SpdyError("a stream cannot be opened: too short, or too many", reason="BadRequest")
        number = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        stream = self._streams[number] = SpdyStream(self, number, self._names(payload[10:]))
        if last:
            stream.take(b"", True)
        none = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self.send_control(_SYN_REPLY, struct.pack(">I", number) + none)
        return stream

    def _names(self, block: bytes) -> dict[str, str]:
        """A header block: count, then length and text of each name and value."""
        try:
            text = self._inflate.decompress(block, _HEADER_LIMIT)
            if self._inflate.unconsumed_tail:
                raise ValueError("it is too large")
            (count,) = struct.unpack_from(">I", text)
            at, words = 4, []
            for _ in range(2 * count):
                (size,) = struct.unpack_from(">I", text, at)
                words.append(text[at + 4 : at + 4 + size].decode("latin-1"))
                at += 4 + size
                if at > len(text):
                    raise ValueError("the block is cut")
        except (zlib.error, struct.error, ValueError) as error:
            raise SpdyError(f"a header block cannot be read: {error}", reason="BadRequest") from error
        return dict(zip((name.lower() for name in words[::2]), words[1::2], strict=True))
