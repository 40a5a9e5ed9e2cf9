"""Room for deeply nested expressions.

Kubernetes accepts 250 levels of nesting, and each costs this package several Python frames: more than Python's default
limit of 1000. Almost no expression needs it, so a call is made as it is and repeated with a higher limit only after a
RecursionError. Frames of Python functions live on the heap (since 3.11), so the higher limit endangers no stack.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar

_ROOM: Final = 20_000
_lock: Final = Lock()
_state: Final[dict[str, int]] = {"users": 0, "before": 0}

Result = TypeVar("Result")


def with_room(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function with room for 20,000 more frames; threads that do so at once share the raised limit."""
    with _lock:
        if not _state["users"]:
            _state["before"] = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_state["before"], _ROOM))
        _state["users"] += 1
    try:
        return function(*arguments)
    finally:
        with _lock:
            _state["users"] -= 1
            if not _state["users"]:
                sys.setrecursionlimit(_state["before"])
