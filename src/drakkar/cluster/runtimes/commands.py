"""What a simple command would do, known without running it: `sleep 600`, `sh -c 'echo done; sleep 5; exit 3'`.

Manifests of tests and examples are full of such commands, and a simulated container can do exactly what they say. A
command that is not entirely made of the few words below is not guessed at.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Course", "course"]

_SHELLS: Final = frozenset(("sh", "bash", "dash", "ash"))
_SEPARATOR: Final = re.compile(r"(;|&&|\|\||\n)")
_NOT_PLAIN: Final = re.compile(r"[|&<>(){}$`*?\[\]#~=!\\]")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Course:
    """It takes `seconds` (infinite for ever), ends with `code`, and prints `output` as (second, text)."""

    seconds: float
    code: int
    output: tuple[tuple[float, bytes], ...] = ()


def course(argv: Sequence[str]) -> Course | None:
    """What `argv` would do; None if that cannot be told."""
    if not argv:
        return None
    name = argv[0].rpartition("/")[2]
    if name in _SHELLS:
        if len(argv) == 1:
            return Course(0.0, 0)  # a shell without input ends at once
        if len(argv) == 3 and argv[1] in ("-c", "-ec", "-ce"):
            return _script(argv[2], stops=argv[1] != "-c")
        return None
    return _script_of([("", [name, *argv[1:]])])


def _script(text: str, *, stops: bool) -> Course | None:
    masked = _QUOTED.sub(lambda match: "'" + "x" * (len(match[0]) - 2) + "'", text)
    steps: list[tuple[str, list[str]]] = []
    sign, start = "", 0
    for match in [*_SEPARATOR.finditer(masked), None]:
        end = match.start() if match else len(masked)
        if _NOT_PLAIN.search(masked[start:end]):
            return None
        try:
            words = shlex.split(text[start:end])
        except ValueError:
            return None
        if words:
            steps.append((sign, words))
        if match:
            sign, start = match[1], match.end()
    return _script_of(steps, stops=stops)


def _script_of(steps: Sequence[tuple[str, list[str]]], *, stops: bool = False) -> Course | None:
    now, code = 0.0, 0
    output: list[tuple[float, bytes]] = []
    for sign, words in steps:
        if (sign == "&&" and code) or (sign == "||" and not code):
            continue
        if words[0] == "exit":
            given = words[1] if len(words) > 1 else str(code)
            return Course(now, int(given) % 256, tuple(output)) if given.isdigit() else None
        step = _WORDS.get(words[0])
        made = step(words[1:]) if step is not None else None
        if made is None:
            return None
        if made.output:
            output.append((now, made.output[0][1]))
        now, code = now + made.seconds, made.code
        if now == math.inf or (stops and code):
            break
    return Course(now, code, tuple(output))


def _sleep(arguments: Sequence[str]) -> Course | None:
    total = 0.0
    for word in arguments:
        number, unit = (word[:-1], _UNITS[word[-1]]) if word[-1:] in _UNITS else (word, 1)
        if word in ("inf", "infinity"):
            number = "inf"
        try:
            total += float(number) * unit
        except ValueError:
            return Course(0.0, 1, ((0.0, f"sleep: invalid time interval '{word}'\n".encode()),))
    return Course(total, 0) if arguments and total >= 0 else Course(0.0, 1)


def _echo(arguments: Sequence[str]) -> Course | None:
    if arguments[:1] and arguments[0].startswith("-"):
        return None
    return Course(0.0, 0, ((0.0, (" ".join(arguments) + "\n").encode()),))


_WORDS: Final[dict[str, Callable[[Sequence[str]], Course | None]]] = {
    "sleep": _sleep,
    "echo": _echo,
    "true": lambda _: Course(0.0, 0),
    ":": lambda _: Course(0.0, 0),
    "false": lambda _: Course(0.0, 1),
}
