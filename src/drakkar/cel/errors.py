"""How an expression fails, and the text that shows where.

Kubernetes prints each problem with line, column and a caret under the source (columns count code points, from 1; wide
characters get a wide caret). The kinds are the phases of the language: `syntax` and `type` come from parser and
checker, `compile` from the later checks and from folding constants, `runtime` and `cost` from evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from drakkar.errors import DrakkarError

Kind = Literal["syntax", "type", "compile", "runtime", "cost"]

MAX_ISSUES: Final = 100
_WIDE: Final = ("．", "＾")
_REASONS: Final = {
    "syntax": "CelSyntaxError",
    "type": "CelTypeError",
    "compile": "CelCompileError",
    "runtime": "CelRuntimeError",
    "cost": "CelLimitExceeded",
}


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem in an expression; line and column count from 1, (0, 0) is the expression as a whole."""

    message: str
    line: int
    column: int


class CelError(DrakkarError):
    """An expression that does not compile, or an evaluation that failed.

    `kind` is one of "syntax", "type", "compile", "runtime", "cost"; the message is what Kubernetes prints. `issues`
    has the single problems of a compilation; `cost` the units spent until an evaluation failed.
    """

    # A selector that fails on most devices makes one of these for each: slots are twice as quick as a dictionary.
    __slots__ = ("cost", "issues", "kind", "message", "reason", "subject")

    kind: Kind
    issues: tuple[Issue, ...]
    cost: int
    expected = ""
    next_step = ""

    def __init__(
        self, message: str, kind: Kind, *, issues: tuple[Issue, ...] = (), cost: int = 0, expression: str = ""
    ) -> None:
        self.message = message
        self.kind = kind
        self.reason = _REASONS[kind]
        self.cost = cost
        self.subject = expression
        self.issues = issues

    def __str__(self) -> str:
        return self.message


class Source:
    """The text of an expression and where its lines begin."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] | None = None

    def place(self, position: int) -> tuple[int, int]:
        """Line and column, both from 1, of a code point."""
        starts = self._starts
        if starts is None:
            starts = [0] + [index + 1 for index, character in enumerate(self.text) if character == "\n"]
            self._starts = starts
        line = 0
        while line + 1 < len(starts) and starts[line + 1] <= position:
            line += 1
        return line + 1, position - starts[line] + 1

    def line(self, number: int) -> str:
        """The text of a line, without its end."""
        return self.text.split("\n")[number - 1]

    def failure(self, kind: Kind, problems: Iterable[tuple[int, str]]) -> CelError:
        """The error for problems given as (position, message); position -1 is the expression as a whole."""
        issues = []
        for position, message in problems:
            line, column = self.place(position) if position >= 0 else (0, 0)
            column = column if self.text else 0  # an empty text has no first column
            issues.append(Issue(message, line, column))
        issues.sort(key=lambda issue: (issue.line, issue.column))
        shown = issues[:MAX_ISSUES]
        text = "\n".join(self._shown(issue) for issue in shown)
        if len(issues) > len(shown):
            text += f"\n{len(issues) - len(shown)} more errors were truncated"
        return CelError(f"compilation failed: {text}", kind, issues=tuple(shown), expression=self.text)

    def _shown(self, issue: Issue) -> str:
        if not issue.line:
            return f"ERROR: <input>:-1:0: {issue.message}"
        head = f"ERROR: <input>:{issue.line}:{issue.column}: {issue.message}"
        if not issue.column:
            return head
        line = self.line(issue.line).replace("\t", " ")
        under = "".join(_WIDE[0] if ord(character) > 127 else "." for character in line[: issue.column - 1])
        at = line[issue.column - 1 : issue.column]
        caret = _WIDE[1] if at and ord(at) > 127 else "^"
        return f"{head}\n | {line}\n | {under}{caret}"
