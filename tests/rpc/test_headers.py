"""Header blocks are read as the hpack library reads them, whichever way they are read."""

from __future__ import annotations

from hpack import Decoder, Encoder, HPACKError
from hypothesis import example, given
from hypothesis import strategies as st

from drakkar.rpc import headers
from drakkar.rpc.frames import ProtocolError

_TEXT = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), max_size=140)
_PAIRS = st.lists(st.tuples(_TEXT, _TEXT), max_size=8)


def by_library(data: bytes) -> headers.Headers | None:
    found: headers.Headers = {}
    try:
        for name, value in Decoder(max_header_list_size=headers.MAX_LIST).decode(data, raw=True):
            key, text = bytes(name).decode(), bytes(value).decode()
            found[key] = f"{found[key]},{text}" if key in found else text
    except (HPACKError, UnicodeError):
        return None
    return found


def ours(data: bytes) -> headers.Headers | None:
    try:
        return headers.read(headers.decoder(), data)
    except ProtocolError:
        return None


@given(_PAIRS)
@example([("a" * 126, "b" * 126)])
@example([("a" * 127, "")])
@example([("", "")] * 340)
@example([("", "")] * 500)
def test_what_we_write_is_read(pairs: list[tuple[str, str]]) -> None:
    data = headers.block(pairs)
    assert ours(data) == by_library(data)


@given(_PAIRS, st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), max_size=4), st.integers(0, 1200))
def test_damage_is_read_or_refused_alike(pairs: list[tuple[str, str]], damage: list[tuple[int, int]], end: int) -> None:
    data = bytearray(headers.block(pairs))
    for at, byte in damage:
        if at < len(data):
            data[at] = byte
    found = bytes(data[:end] if end % 3 == 0 else data)
    assert ours(found) == by_library(found)


@given(st.lists(_PAIRS, max_size=4))
def test_blocks_with_and_without_memory_may_follow_each_other(blocks: list[list[tuple[str, str]]]) -> None:
    encoder, memory, reference = Encoder(), headers.decoder(), Decoder(max_header_list_size=headers.MAX_LIST)
    for pairs in blocks:
        for data in (encoder.encode(pairs), headers.block(pairs)):
            assert headers.read(memory, data).keys() == {name for name, _ in reference.decode(data)}
