"""The one failure of this room: what is wrong in which file, at which line and column.

A specification is read by machines and broken by people, so a failure keeps every problem of the text with its place
instead of the first one only, and the text that a terminal shows is made from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from drakkar.errors import DrakkarError

__all__ = ["CdiError", "Problem"]

_ONE_LINE = {code: repr(chr(code))[1:-1] for code in (*range(32), 0x7F, 0x85, 0x2028, 0x2029)}
SHOWN_PROBLEMS = 5  # a message stays readable; the whole list is in ``CdiError.problems``


class Problem(NamedTuple):
    """One thing that is wrong (or, as a warning, doubtful) in a specification.

    ``line`` and ``column`` count from 1 and are 0 where the place is not known. ``path`` leads to the value inside the
    document, e.g. ``("devices", 0, "containerEdits", "env", 1)``.
    """

    message: str
    path: tuple[str | int, ...] = ()
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}" if self.line else self.message

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain JSON."""
        fields = {"message": self.message, "path": list(self.path), "line": self.line, "column": self.column}
        return {key: value for key, value in fields.items() if value}


class CdiError(DrakkarError):
    """A specification, name, annotation or injection that cannot be used.

    Attributes:
        file: the file it is about, or "".
        line, column: the first place, from 1; 0 when unknown.
        problems: everything found, in the order of the reference library's checks.
        unresolved: requested names without a device, in request order with repeats.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str = "",
        problems: Sequence[Problem] = (),
        unresolved: Sequence[str] = (),
        reason: str = "",
        expected: str = "",
        next_step: str = "",
    ) -> None:
        first = problems[0] if problems else Problem(message)
        place = f"{file}:{first.line}:{first.column}" if first.line else file
        super().__init__(message, reason=reason or "Cdi", subject=place, expected=expected, next_step=next_step)
        self.file = file
        self.line = first.line
        self.column = first.column
        self.problems = tuple(problems) or (first,)
        self.unresolved = tuple(unresolved)

    @classmethod
    def of(cls, problems: Sequence[Problem], *, file: str = "", reason: str = "InvalidSpec") -> CdiError:
        """One error for all ``problems`` of a file; the sentence names the first few with their places."""
        shown = "; ".join(str(problem) for problem in problems[:SHOWN_PROBLEMS])
        if len(problems) > SHOWN_PROBLEMS:
            shown += f"; and {len(problems) - SHOWN_PROBLEMS} more"
        shown = shown.translate(_ONE_LINE)
        return cls(f"{file}: {shown}" if file else shown, file=file, problems=problems, reason=reason)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain JSON, with every problem."""
        extra: dict[str, Any] = {"problems": [problem.to_dict() for problem in self.problems]}
        if self.unresolved:
            extra["unresolved"] = list(self.unresolved)
        return super().to_dict() | extra
