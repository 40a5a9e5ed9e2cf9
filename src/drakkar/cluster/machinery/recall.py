"""Work on equal parts is done once: a fleet's pods and claims come from a few templates, and differ in their names.

The spec of a new pod whose text was seen a moment ago has the same shape, the same defaults, the same owners' fields
and the same faults. So a part that was shaped is kept by its text, later steps keep what they made of it by its
identity, and all objects share the one value, which also is what makes ten thousand equal pods small. Nothing in here
changes an answer: every step is a function of the part (and of what is named in its stage), and a stored value is never
changed. What is kept is bounded, and forgotten as a whole when it gets too much.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import msgspec

__all__ = ["forget", "keeps", "made_once", "once", "part", "size"]

T = TypeVar("T")
Json = dict[str, Any]
MOST: Final = 256
LONGEST: Final = 8192
_encode = msgspec.json.Encoder().encode


class _Kept:
    """A value, which lives as long as this does, and what was worked out about it."""

    __slots__ = ("results", "value")

    def __init__(self, value: Json) -> None:
        self.value = value
        self.results: dict[Hashable, Any] = {}


_by_text: dict[tuple[str, bytes], Json] = {}
_by_identity: dict[int, _Kept] = {}


def part(kind: str, value: Json, make: Callable[[], tuple[Json, bool]]) -> Json:
    """What `make` makes of `value`, a JSON object of this kind; `make` also says whether that may be kept."""
    text = _encode(value)
    if len(text) > LONGEST:
        return make()[0]
    known = _by_text.get((kind, text))
    if known is not None:
        return known
    made, lasting = make()
    if lasting:
        if len(_by_text) >= MOST:
            forget()
        _by_text[kind, text] = made
        _by_identity[id(made)] = _Kept(made)
    return made


def once(value: Any, stage: Hashable, work: Callable[[], T]) -> T:
    """The result of `work`, which depends on `value` and `stage` alone; kept if the value is. Do not change it."""
    kept = _by_identity.get(id(value))
    if kept is None or kept.value is not value:
        return work()
    found = kept.results.get(stage, _by_identity)
    if found is _by_identity:
        found = kept.results[stage] = work()
    result: T = found
    return result


def keeps(value: Any) -> bool:
    """Whether what is worked out about this very value is kept."""
    kept = _by_identity.get(id(value))
    return kept is not None and kept.value is value


def made_once(value: Json, stage: Hashable, work: Callable[[], Json]) -> Json:
    """The same for a step that makes another part of this one, of which the next steps ask in their turn."""
    result = once(value, stage, work)
    if result is not value and keeps(value) and not keeps(result):
        _by_identity[id(result)] = _Kept(result)
    return result


def size() -> int:
    """How many parts are kept."""
    return len(_by_text)


def forget() -> None:
    """Keep nothing."""
    _by_text.clear()
    _by_identity.clear()
