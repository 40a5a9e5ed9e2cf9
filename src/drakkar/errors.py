"""The one error tree.

An HTTP Status, a gRPC status, a line on a terminal and a JSON document are renderings of the same value, so the
knowledge (what was wrong, where, what to do next) is stored once, where the error is raised, and never re-worded.
"""

from __future__ import annotations

from typing import Any


class DrakkarError(Exception):
    """A failure that a person or a program can act upon.

    Args:
        message: one clear sentence, without a trailing full stop.
        reason: machine-readable CamelCase word, e.g. ``UnknownModel``; defaults to the class name.
        subject: the object, file or flag it is about, e.g. ``ResourceClaim/team-a/gpu`` or ``a.yaml:12``.
        expected: what would have been right.
        next_step: the next thing to do, preferably a command.

    Attributes:
        exit_status: of a command that ends with it; commands with several kinds of failure set it.
    """

    exit_status = 1

    def __init__(
        self, message: str, *, reason: str = "", subject: str = "", expected: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).__name__.removesuffix("Error") or "Error"
        self.subject = subject
        self.expected = expected
        self.next_step = next_step

    def to_dict(self) -> dict[str, Any]:
        """The error as plain JSON, without empty fields."""
        fields = {
            "reason": self.reason,
            "message": self.message,
            "subject": self.subject,
            "expected": self.expected,
            "nextStep": self.next_step,
        }
        return {key: value for key, value in fields.items() if value}
