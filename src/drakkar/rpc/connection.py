"""One HTTP/2 connection, whichever side we are on: settings, windows, pings, headers in pieces, messages in streams.

What is received is given back to the sender's window at once, since messages are limited in length and streams in
number; what is sent waits for the other side's windows. Whoever breaks the protocol gets GOAWAY with the reason and
loses the connection, never the process.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from drakkar.rpc import frames, headers
from drakkar.rpc.frames import Frame, ProtocolError
from drakkar.rpc.status import Code, RpcError

_log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 16 << 20
"""Bytes of one message, as gRPC servers of kubelets allow."""
MAX_STREAMS: Final = 256
_WINDOW: Final = 1 << 20
_USUAL_WINDOW: Final = 65_535
_MAX_BLOCK: Final = 64 << 10
_MAX_UNSENT: Final = 4 << 20
"""Bytes of answers to pings and settings that somebody may leave unread."""
_OUR_SETTINGS: Final = {
    frames.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
    frames.INITIAL_WINDOW_SIZE: _WINDOW,
    frames.MAX_HEADER_LIST_SIZE: headers.MAX_LIST,
}


class Stream:
    """One call on the wire: what came in so far, and how much may go out."""

    __slots__ = ("_buffer", "ended", "number", "owner", "unreported", "window")

    def __init__(self, number: int, window: int, owner: Any) -> None:
        self.number = number
        self.window = window
        self.owner = owner
        self.ended = False
        self.unreported = 0
        self._buffer = bytearray()

    def messages(self, data: bytes) -> list[bytes]:
        """The messages that are complete with `data`. Raises `RpcError` for one that is compressed or too long."""
        buffer = self._buffer
        buffer += data
        found = []
        while len(buffer) >= 5:
            length = int.from_bytes(buffer[1:5], "big")
            if buffer[0]:
                raise RpcError(Code.UNIMPLEMENTED, "grpc: compressed messages are not supported")
            if length > MAX_MESSAGE:
                text = f"grpc: received message larger than max ({length} vs. {MAX_MESSAGE})"
                raise RpcError(Code.RESOURCE_EXHAUSTED, text)
            if len(buffer) < 5 + length:
                break
            found.append(bytes(buffer[5 : 5 + length]))
            del buffer[: 5 + length]
        return found

    @property
    def between_messages(self) -> bool:
        """Whether no message is begun."""
        return not self._buffer


class Connection(asyncio.Protocol):
    """What both sides do; a side says what headers, data, an end and a reset of a stream mean to it."""

    def __init__(self, *, serves: bool) -> None:
        self.transport: asyncio.Transport | None = None
        self.streams: dict[int, Stream] = {}
        self.closed = False
        self.going_away = False
        self._serves = serves
        self._preface: bytes = frames.PREFACE if serves else b""
        self._reader = frames.FrameReader()
        self._memory = headers.decoder()
        self._block: tuple[int, int, bytearray] | None = None
        self._window = _USUAL_WINDOW
        self._initial_window = _USUAL_WINDOW
        self._unreported = 0
        #: The highest number a stream has had.
        self.highest = 0
        self._room: asyncio.Event | None = None
        self._paused = False

    # --- what a side answers ----------------------------------------------------------------------------------------

    def on_headers(self, number: int, found: headers.Headers, *, ended: bool) -> None:
        """Headers or trailers of a stream."""
        raise NotImplementedError

    def on_messages(self, stream: Stream, messages: list[bytes]) -> None:
        """Messages of a stream, and its end if `stream.ended`."""
        raise NotImplementedError

    def on_failed(self, stream: Stream, error: RpcError) -> None:
        """A stream that the other side gave up, or that went with the connection; it is not in `streams` any more."""
        raise NotImplementedError

    def on_broken(self, stream: Stream, error: RpcError) -> None:
        """A stream with a message that cannot be taken."""
        raise NotImplementedError

    def on_closed(self) -> None:
        """The connection is gone; `on_failed` was called for each of its streams."""

    # --- the transport's calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        first = b"" if self._serves else frames.PREFACE
        self.write(first + frames.settings(_OUR_SETTINGS) + frames.window_update(0, _WINDOW - _USUAL_WINDOW))

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            if self._preface:
                seen, data = data[: len(self._preface)], data[len(self._preface) :]
                if not self._preface.startswith(seen):
                    raise ProtocolError("this is no HTTP/2")
                self._preface = self._preface[len(seen) :]
            for one in self._reader.feed(data):
                self._received(one)
        except ProtocolError as error:
            _log.debug("connection closed: %s", error)
            self.close(error.code, str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(RpcError(Code.UNAVAILABLE, f"error reading from server: {error or 'EOF'}"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._make_room()

    # --- sending ----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes that need no window; nothing on a connection that is gone."""
        if self.transport is not None and not self.closed:
            self.transport.write(data)

    async def send(self, stream: Stream, message: bytes, *, before: bytes = b"", after: bytes = b"") -> None:
        """Send one message as the windows allow, `before` and `after` it frames that need none.

        Raises `RpcError` when the stream or the connection ends in between.
        """
        rest = b"\x00" + len(message).to_bytes(4, "big") + message
        while True:
            room = min(self._window, stream.window, frames.MAX_FRAME)
            if len(rest) <= room and not self._paused:  # nearly always, and at once
                self._spend(stream, len(rest))
                self.write(before + frames.frame(frames.DATA, 0, stream.number, rest) + after)
                return
            if room > 0 and not self._paused:
                part, rest = rest[:room], rest[room:]
                self._spend(stream, room)
                self.write(before + frames.frame(frames.DATA, 0, stream.number, part))
                before = b""
                continue
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()
            if self.closed or stream.number not in self.streams:
                raise RpcError(Code.CANCELLED, "the stream is over")

    def _spend(self, stream: Stream, amount: int) -> None:
        self._window -= amount
        stream.window -= amount

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self, code: int = frames.NO_ERROR, text: str = "") -> None:
        """Say GOAWAY and close; calls in flight fail."""
        self.write(frames.go_away(self.highest, code, text))
        if self.transport is not None:
            self.transport.close()
        self._end(RpcError(Code.UNAVAILABLE, text or "the connection is closing"))

    def _end(self, error: RpcError) -> None:
        if self.closed:
            return
        self.closed = True
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            self.on_failed(stream, error)
        self._make_room()
        self.on_closed()

    def forget(self, stream: Stream) -> None:
        """The stream is over for us."""
        self.streams.pop(stream.number, None)
        self._make_room()

    # --- receiving --------------------------------------------------------------------------------------------------

    def _received(self, one: Frame) -> None:
        kind = one.type
        if self._block is not None and (kind != frames.CONTINUATION or one.stream != self._block[0]):
            raise ProtocolError("headers were not continued")
        if kind == frames.DATA:
            self._data(one)
        elif kind == frames.HEADERS:
            self._block = (one.stream, one.flags, bytearray(one.payload))
            self._headers_go_on(one.flags)
        elif kind == frames.CONTINUATION:
            if self._block is None:
                raise ProtocolError("a continuation of nothing")
            self._block[2].extend(one.payload)
            self._headers_go_on(one.flags)
        elif kind == frames.WINDOW_UPDATE:
            self._more_window(one.stream, int.from_bytes(one.payload, "big") & frames.MAX_WINDOW)
        elif kind == frames.SETTINGS:
            self._settings(one)
        elif kind == frames.PING:
            if not one.flags & frames.ACK:
                self._answer(frames.frame(frames.PING, frames.ACK, 0, one.payload))
        elif kind == frames.RST_STREAM:
            self._reset(one)
        elif kind == frames.GOAWAY:
            self._go_away(one)
        elif kind == frames.PUSH_PROMISE:
            raise ProtocolError("a push that nobody allowed")
        # PRIORITY says nothing to us; unknown types must be ignored (section 4.1).

    def _answer(self, data: bytes) -> None:
        """Answer a control frame; who sends many and reads no answers is told to calm down (section 10.5)."""
        assert self.transport is not None
        if self.transport.get_write_buffer_size() > _MAX_UNSENT:
            raise ProtocolError("answers are not read", frames.ENHANCE_YOUR_CALM)
        self.write(data)

    def _data(self, one: Frame) -> None:
        amount = one.length
        self._unreported += amount
        if self._unreported > _WINDOW // 4:
            self.write(frames.window_update(0, self._unreported))
            self._unreported = 0
        stream = self.streams.get(one.stream)
        if stream is None:
            if one.stream > self.highest:
                raise ProtocolError("data for a stream that was never opened")
            return  # it was reset or answered already; what is under way may still arrive
        if stream.ended:
            raise ProtocolError("data after the end of a stream", frames.STREAM_CLOSED)
        stream.ended = bool(one.flags & frames.END_STREAM)
        stream.unreported += amount
        if stream.unreported > _WINDOW // 4 and not stream.ended:
            self.write(frames.window_update(stream.number, stream.unreported))
            stream.unreported = 0
        try:
            messages = stream.messages(one.payload)
            if stream.ended and not stream.between_messages:
                raise RpcError(Code.INTERNAL, "a message that is not complete")
        except RpcError as error:
            self.on_broken(stream, error)
            return
        if messages or stream.ended:
            self.on_messages(stream, messages)

    def _headers_go_on(self, flags: int) -> None:
        assert self._block is not None
        number, first, data = self._block
        if len(data) > _MAX_BLOCK:
            raise ProtocolError("headers without end", frames.ENHANCE_YOUR_CALM)
        if not flags & frames.END_HEADERS:
            return
        self._block = None
        self.on_headers(number, headers.read(self._memory, bytes(data)), ended=bool(first & frames.END_STREAM))

    def _more_window(self, number: int, amount: int) -> None:
        stream = self.streams.get(number) if number else None
        if not amount:
            raise ProtocolError("a window update of nothing")
        if not number:
            self._window += amount
        elif stream is not None:
            stream.window += amount
        if max(self._window, stream.window if stream is not None else 0) > frames.MAX_WINDOW:
            raise ProtocolError("a window larger than a window can be", frames.FLOW_CONTROL_ERROR)
        self._make_room()

    def _settings(self, one: Frame) -> None:
        if one.stream or (one.flags & frames.ACK and one.payload):
            raise ProtocolError("settings of a stream, or settings in an acknowledgement")
        if one.flags & frames.ACK:
            return
        for key, value in frames.read_settings(one.payload):
            if key == frames.INITIAL_WINDOW_SIZE:
                for stream in self.streams.values():
                    stream.window += value - self._initial_window
                self._initial_window = value
        self._answer(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._make_room()

    def _reset(self, one: Frame) -> None:
        stream = self.streams.pop(one.stream, None)
        if stream is None:
            if one.stream > self.highest:
                raise ProtocolError("a reset of a stream that was never opened")
            return
        code = int.from_bytes(one.payload, "big")
        refused = code == frames.REFUSED_STREAM
        self._make_room()
        self.on_failed(
            stream,
            RpcError(
                Code.UNAVAILABLE if refused else Code.CANCELLED,
                f"stream terminated by RST_STREAM with error code: {code}",
            ),
        )

    def _go_away(self, one: Frame) -> None:
        self.going_away = True
        if len(one.payload) < 8:
            raise ProtocolError("a GOAWAY of a broken length", frames.FRAME_SIZE_ERROR)
        last = int.from_bytes(one.payload[:4], "big") & frames.MAX_WINDOW
        if not self._serves:
            for stream in [stream for stream in self.streams.values() if stream.number > last]:
                self.forget(stream)
                self.on_failed(stream, RpcError(Code.UNAVAILABLE, "the server is going away"))

    def open(self, number: int, owner: Any) -> Stream:
        """A new stream of this number."""
        self.highest = max(self.highest, number)
        stream = self.streams[number] = Stream(number, self._initial_window, owner)
        return stream
