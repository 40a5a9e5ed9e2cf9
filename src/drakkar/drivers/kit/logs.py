"""Log lines that can be searched: what a line is about stands in fields of its own, not only in its sentence.

Fields are claim (namespace/name), claimUID, node, devices and seconds; as text they follow the sentence as `key=value`,
as JSON each line is one object.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from drakkar.preparation.values import ClaimRef

_FIELDS = "drakkar_fields"


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
    stream = logging.StreamHandler()
    stream.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[stream], force=True)


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
