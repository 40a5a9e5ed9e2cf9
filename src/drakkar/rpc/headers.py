"""Header blocks: how gRPC spells a call, its time limit and its status (RFC 7541; grpc/doc/PROTOCOL-HTTP2.md).

What we send is written as literals that nobody needs to remember, so that a block is a constant; what others send is
read by the hpack library, which knows the compression's memory and codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from drakkar.rpc import frames
from drakkar.rpc.frames import ProtocolError

if TYPE_CHECKING:
    from hpack import Decoder

MAX_LIST: Final = 16_384
"""Bytes of all headers of a call."""
_SHORT: Final = 1024
"""Bytes of a block that cannot hold more headers than that, whatever is in it."""

_TIMEOUT: Final = re.compile(r"(\d{1,8})([HMSmun])", re.ASCII)
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_TIMEOUT_DIGITS: Final = 99_999_999
_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {ord("%")}

Headers = dict[str, str]


def block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A header block of literals without indexing and without Huffman codes."""
    return b"".join(b"\x00" + _string(name.encode()) + _string(value.encode()) for name, value in pairs)


def _string(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    length -= 127
    head = bytearray(b"\x7f")
    while length >= 128:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + text


def decoder() -> Decoder:
    """The memory of one direction of one connection."""
    from hpack import Decoder

    return Decoder(max_header_list_size=MAX_LIST)


def read(memory: Decoder, data: bytes) -> Headers:
    """The headers of one block; of a name that is there twice, both values with a comma. Raises `ProtocolError`."""
    from hpack import HPACKError

    found: Headers = {}
    try:
        for name, value in _literals(data) or memory.decode(data):
            key, text = _text(name), _text(value)
            found[key] = f"{found[key]},{text}" if key in found else text
    except (HPACKError, UnicodeError) as error:
        raise ProtocolError(f"headers that cannot be read: {error}", frames.COMPRESSION_ERROR) from None
    return found


def _literals(data: bytes) -> list[tuple[bytes, bytes]]:
    """The pairs of a block such as `block` makes of short texts, which no memory is needed for; of others none."""
    pairs: list[tuple[bytes, bytes]] = []
    at, end = 0, len(data)
    if end > _SHORT:
        return []
    while at + 2 < end:
        middle = at + 2 + data[at + 1]
        if data[at] or data[at + 1] > 126 or middle >= end or data[middle] > 126:
            return []
        after = middle + 1 + data[middle]
        pairs.append((data[at + 2 : middle], data[middle + 1 : after]))
        at = after
    return pairs if at == end else []


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def timeout_text(seconds: float) -> str:
    """`grpc-timeout` for a number of seconds, not longer than they are."""
    for unit in ("n", "u", "m", "S", "M", "H"):
        amount = int(seconds / _UNITS[unit])
        if amount <= _MAX_TIMEOUT_DIGITS:
            return f"{max(amount, 0)}{unit}"
    return f"{_MAX_TIMEOUT_DIGITS}H"


def timeout_seconds(text: str) -> float:
    """The seconds of a `grpc-timeout`. Raises ValueError."""
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise ValueError(f"malformed grpc-timeout {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def percent_encoded(text: str) -> str:
    """`grpc-message` for a text."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode("utf-8", "replace"))


def percent_decoded(text: str) -> str:
    """The text of a `grpc-message`."""
    return unquote(text, errors="replace")
