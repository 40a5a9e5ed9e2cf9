"""How simulated containers behave, as data: when they start, how long they run, how they end.

A container of the simulated runtime has no process, so somebody has to say what its process would do. In order: an
annotation of the pod, a rule of the fleet file, and what the command says by itself (`commands`). What nobody said is
not made up: such a container runs until it is stopped. Spans are drawn from; KWOK's stages are the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from drakkar.cel.libraries.times import parse_duration
from drakkar.kube.chance import Chance

__all__ = ["ANNOTATION", "FIELDS", "Behaviour", "Rule", "Span", "annotated", "behaviour", "behaviour_of"]

ANNOTATION: Final = "drakkar.dev/"
_LONGEST: Final = 10**9
_FOREVER: Final = "forever"


@dataclass(frozen=True, slots=True)
class Span:
    """Between `low` and `high` seconds; both infinite for "for ever"."""

    low: float
    high: float

    def draw(self, chance: Chance, *about: str) -> float:
        return self.low if self.low == self.high else chance.uniform(self.low, self.high, *about)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """None where nothing was said. `exit_code` are codes with their weights."""

    start_delay: Span | None = None
    runs: Span | None = None
    exit_code: tuple[tuple[int, float], ...] | None = None
    ready_after: Span | None = None
    stop_delay: Span | None = None

    def code(self, chance: Chance, *about: str) -> int | None:
        """An exit code, drawn by weight; None where nothing was said."""
        if not self.exit_code:
            return None
        left = chance.uniform(0.0, sum(weight for _, weight in self.exit_code), *about)
        for code, weight in self.exit_code:
            left -= weight
            if left < 0:
                return code
        return self.exit_code[-1][0]


@dataclass(frozen=True, slots=True)
class Rule:
    """A behaviour of the containers that fit: the pod's labels and namespace, the container's name, where given."""

    behaviour: Behaviour
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    container: str = ""

    def fits(self, namespace: str, labels: Mapping[str, str], container: str) -> bool:
        return (
            self.namespace in ("", namespace)
            and self.container in ("", container)
            and all(labels.get(key) == value for key, value in self.labels.items())
        )


def behaviour_of(
    rules: Sequence[Rule], namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], container: str
) -> Behaviour:
    """What is said of a container: the first rule that fits, and before it annotations. Raises `ValueError`."""
    said = next((rule.behaviour for rule in rules if rule.fits(namespace, labels, container)), Behaviour())
    return annotated(said, annotations, container)


def annotated(said: Behaviour, annotations: Mapping[str, str], container: str) -> Behaviour:
    """`said` with what annotations say: ``drakkar.dev/runs``, or ``drakkar.dev/runs.NAME`` for one container alone.

    Raises `ValueError` naming the annotation.
    """
    changes = {}
    for name, (key, read) in FIELDS.items():
        plain = ANNOTATION + _hyphenated(name)
        for annotation in (plain, f"{plain}.{container}"):
            if annotation in annotations:
                try:
                    changes[key] = read(annotations[annotation])
                except ValueError as error:
                    raise ValueError(f"annotation {annotation}: {error}") from None
    return replace(said, **changes) if changes else said


def behaviour(values: Mapping[str, Any]) -> Behaviour:
    """A behaviour from fields of `FIELDS`; None counts as nothing said. Raises `ValueError` starting with the field."""
    found = {}
    for name, (key, read) in FIELDS.items():
        if values.get(name) is not None:
            try:
                found[key] = read(values[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    return Behaviour(**found)


def _span(value: Any) -> Span:
    """``10m``, ``10m..30m``, or a number of seconds."""
    if isinstance(value, str) and ".." in value:
        low, _, high = value.partition("..")
        found = Span(_seconds(low.strip()), _seconds(high.strip()))
        if found.low > found.high:
            raise ValueError(f"{value!r} ends before it begins")
        return found
    seconds = _seconds(value)
    return Span(seconds, seconds)


def _life(value: Any) -> Span:
    return Span(math.inf, math.inf) if value == _FOREVER else _span(value)


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        nanoseconds = parse_duration(value)
        value = _number(value) if nanoseconds is None else nanoseconds / 1e9
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        raise ValueError("no duration; expected 30s, 2m, 1h30m, 10m..30m, or a number of seconds")
    return float(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _codes(value: Any) -> tuple[tuple[int, float], ...]:
    """``3``, codes with weights, or the same as a text: ``0=95,1=5``."""
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",")]
        pairs: Iterable[tuple[Any, Any]] = [
            (code.strip(), weight.strip() if sign else 1) for code, sign, weight in parts
        ]
    else:
        pairs = value.items() if isinstance(value, Mapping) else [(value, 1)]
    found = []
    for code, weight in pairs:
        number = _number(str(code)) if not isinstance(code, bool) else None
        share = _number(str(weight)) if not isinstance(weight, bool) else None
        if number is None or not 0 <= number <= 255 or number != int(number):
            raise ValueError(f"{code!r} is no exit code; expected 0 to 255, or codes with weights: 0=95,1=5")
        if share is None or not 0 <= share < math.inf:
            raise ValueError(f"{weight!r} is no weight of exit code {code}")
        found.append((int(number), share))
    if not sum(share for _, share in found):
        raise ValueError("no exit code has a weight")
    return tuple(found)


def _hyphenated(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


FIELDS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "startDelay": ("start_delay", _span),
    "runs": ("runs", _life),
    "exitCode": ("exit_code", _codes),
    "readyAfter": ("ready_after", _span),
    "stopDelay": ("stop_delay", _span),
}
"""Fields of a fleet file (annotations are spelled with hyphens): the attribute, and how its value is read."""
