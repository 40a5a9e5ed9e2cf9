"""What one check says: a status, what it is about, a sentence, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

OK: Final = "ok"
WARNING: Final = "warning"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
"""The check could not be made, since something could not be read; that is not the same as passed."""

STATUSES: Final = (FAILED, WARNING, UNKNOWN, OK)


@dataclass(frozen=True, slots=True)
class Result:
    """One result; `check` names the check, `subject` the object or value it is about."""

    check: str
    status: str
    subject: str
    message: str
    next_step: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON."""
        return {
            "check": self.check,
            "status": self.status,
            "subject": self.subject,
            "message": self.message,
            "nextStep": self.next_step,
        }
