"""Prometheus' text exposition format 0.0.4, written exactly: escaping, numbers, names, one family after the other.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ ("Text-based format").
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from drakkar.errors import DrakkarError

__all__ = ["CONTENT_TYPE", "Family", "Histogram", "Sample", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_VALUE: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


class Sample(NamedTuple):
    """One value with its labels."""

    labels: Mapping[str, str]
    value: float
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """A metric: name, help, type and samples."""

    name: str
    help: str
    type: Literal["gauge", "counter", "histogram", "untyped"] = "gauge"
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float, /, **labels: str) -> None:
        """Add a sample."""
        self.samples.append(Sample(labels, value))

    def add_histogram(self, histogram: Histogram, /, **labels: str) -> None:
        """Add the buckets, sum and count of `histogram`."""
        for bound, count in histogram.cumulative():
            self.samples.append(Sample({**labels, "le": _number(bound)}, count, "_bucket"))
        self.samples.append(Sample(labels, histogram.sum, "_sum"))
        self.samples.append(Sample(labels, histogram.count, "_count"))


@dataclass(slots=True)
class Histogram:
    """Observed values counted below rising `bounds`, and above the last of them."""

    bounds: tuple[float, ...]
    sum: float = 0.0
    count: int = 0
    _below: list[int] = field(default_factory=list)

    def observe(self, value: float) -> None:
        """Count one value."""
        self._below = self._below or [0] * len(self.bounds)
        place = bisect.bisect_left(self.bounds, value)
        if place < len(self.bounds):
            self._below[place] += 1
        self.sum += value
        self.count += 1

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound, infinity last, and how many values were not above it."""
        total = 0
        for bound, count in zip(self.bounds, self._below or [0] * len(self.bounds), strict=True):
            total += count
            yield bound, total
        yield math.inf, self.count


def render(families: Iterable[Family]) -> str:
    """The families as text. Raises `DrakkarError` for a name that the format does not have or a sample given twice."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    _check(_METRIC, family.name)
    yield f"# HELP {family.name} {family.help.translate(_HELP)}"
    yield f"# TYPE {family.name} {family.type}"
    seen: set[tuple[str, str]] = set()
    for sample in family.samples:
        pairs = []
        for name, value in sample.labels.items():
            _check(_LABEL, name)
            pairs.append(f'{name}="{value.translate(_VALUE)}"')
        labels = "{" + ",".join(pairs) + "}" if pairs else ""
        if (sample.suffix, labels) in seen:
            raise DrakkarError(f"two samples of {family.name} have the labels {labels}", reason="DuplicateSample")
        seen.add((sample.suffix, labels))
        yield f"{family.name}{sample.suffix}{labels} {_number(sample.value)}"


def _check(shape: re.Pattern[str], name: str) -> None:
    if not shape.fullmatch(name):
        raise DrakkarError(f"{name!r} is no name in the exposition format", reason="InvalidName")


def _number(value: float) -> str:
    """As Go's ParseFloat reads it back: integers without a point, NaN, +Inf, -Inf."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
