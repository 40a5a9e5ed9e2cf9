"""HTTP/2 frames: bytes in, frames out, and the few that we write (RFC 9113, sections 4 and 6)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME: Final = 16_384
"""The longest payload that we take, and send: what everybody must take (section 4.2)."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITISED: Final = 0x20

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

MAX_WINDOW: Final = 2**31 - 1
_HEAD: Final = struct.Struct(">HBBBI")
_LENGTHS: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}


class ProtocolError(Exception):
    """The other side broke the protocol: the connection cannot go on. `code` is for GOAWAY."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


class Frame(NamedTuple):
    """One frame; padding and priority are taken off the payload, but not off the length, which windows count."""

    type: int
    flags: int
    stream: int
    payload: bytes
    length: int


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """The bytes of one frame; the payload must fit into it."""
    length = len(payload)
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in values.items()))


def window_update(stream: int, amount: int) -> bytes:
    """A WINDOW_UPDATE frame: the other side may send `amount` more bytes."""
    return frame(WINDOW_UPDATE, 0, stream, amount.to_bytes(4, "big"))


def reset(stream: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def go_away(last: int, code: int, text: str = "") -> bytes:
    """A GOAWAY frame: streams up to `last` will still be served."""
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + text.encode()[:200])


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """The pairs of a SETTINGS frame. Raises `ProtocolError`."""
    if len(payload) % 6:
        raise ProtocolError("a SETTINGS frame of a broken length", FRAME_SIZE_ERROR)
    for key, value in struct.iter_unpack(">HI", payload):
        if key == INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ProtocolError("an initial window larger than a window can be", FLOW_CONTROL_ERROR)
        if key == MAX_FRAME_SIZE and not MAX_FRAME <= value <= 0xFFFFFF:
            raise ProtocolError("a frame size out of its range")
        yield key, value


class FrameReader:
    """Cuts a stream of bytes into frames, whatever the pieces it arrives in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now. Raises `ProtocolError`."""
        buffer = self._buffer
        buffer += data
        position, end = 0, len(buffer)
        try:
            while end - position >= 9:
                high, low, kind, flags, stream = _HEAD.unpack_from(buffer, position)
                length = high << 8 | low
                if length > MAX_FRAME:
                    raise ProtocolError(f"a frame of {length} bytes", FRAME_SIZE_ERROR)
                if end - position - 9 < length:
                    return
                payload = bytes(buffer[position + 9 : position + 9 + length])
                position += 9 + length
                yield _plain(kind, flags, stream & MAX_WINDOW, payload)
        finally:
            del buffer[:position]


def _plain(kind: int, flags: int, stream: int, payload: bytes) -> Frame:
    expected, length = _LENGTHS.get(kind), len(payload)
    if expected is not None and length != expected:
        raise ProtocolError(f"a frame of type {kind} with {length} bytes", FRAME_SIZE_ERROR)
    if kind in (DATA, HEADERS):
        if not stream:
            raise ProtocolError("data or headers outside of a stream")
        start = end = 0
        if flags & PADDED:
            start = 1
            end = payload[0] if payload else 0
        if kind == HEADERS and flags & PRIORITISED:
            start += 5
        if start or end:
            if start + end > length:
                raise ProtocolError("padding longer than its frame")
            payload = payload[start : length - end]
    return Frame(kind, flags, stream, payload, length)
