"""Log lines that can be searched: what a line is about stands in fields of its own, not only in its sentence.

Fields are claim (namespace/name), claimUID, node, devices and seconds; as text they follow the sentence as `key=value`,
as JSON each line is one object. A kubelet does not wait for a line to be written: what is no warning is written when
the answer is out, and before the next line that is one, or that another thread writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from drakkar.preparation.values import ClaimRef

_FIELDS = "drakkar_fields"
#: Turns of the event loop until a line is written that nobody waits for: by then the call that said it is answered,
#: and who asked is at work itself. A killed process loses as much, some fifty microseconds.
_TURNS = 8


def about(claim: ClaimRef, node: str, devices: Sequence[str] = (), seconds: float | None = None) -> dict[str, Any]:
    """The `extra` argument of a log call about `claim`."""
    fields: dict[str, Any] = {"claim": f"{claim.namespace}/{claim.name}", "claimUID": claim.uid, "node": node}
    if devices:
        fields["devices"] = list(devices)
    if seconds is not None:
        fields["seconds"] = round(seconds, 6)
    return {_FIELDS: fields}


def configure(form: Literal["text", "json"], level: int = logging.INFO) -> None:
    """Make the process log that way, to standard error."""
    stream = _Later()
    stream.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[stream], force=True)
    # No form tells any of these, and every record would look them up ("Optimization" in Python's logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    vars(logging)["_srcfile"] = None


class _Later(logging.StreamHandler[TextIO]):
    """Writes to standard error; what a loop's thread says below WARNING a moment later, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[logging.LogRecord] = []
        self._told: asyncio.AbstractEventLoop | None = None  # it will call `flush`

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        self._waiting.append(record)
        if loop is None or record.levelno >= logging.WARNING:
            self._write()
        elif loop is not self._told:
            self._told = loop
            _in_turns(loop, _TURNS, self.flush)

    def flush(self) -> None:
        """Writes what waits; `logging.shutdown` calls it, too."""
        with self.lock or contextlib.nullcontext():
            self._write()
            super().flush()

    def _write(self) -> None:
        waiting, self._waiting, self._told = self._waiting, [], None
        for record in waiting:
            super().emit(record)


def _in_turns(loop: asyncio.AbstractEventLoop, turns: int, action: Callable[[], None]) -> None:
    if turns:
        loop.call_soon(_in_turns, loop, turns - 1, action)
    else:
        action()


class JsonLines(logging.Formatter):
    """One JSON object per line: time (RFC 3339), level, logger, message, the fields, and the trace of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """The usual line, the fields behind it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, {})
        words = (f"{key}={','.join(value) if isinstance(value, list) else value}" for key, value in fields.items())
        return " ".join((super().formatMessage(record), *words))
