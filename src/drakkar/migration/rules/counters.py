"""Counter files of dcgm-exporter: three columns, types, names, and what a custom file loses.

A custom file replaces the built-in one. A damaged line stops the exporter; a field it does not know is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches
from typing import Final

from drakkar.migration.context import release
from drakkar.migration.documents import Csv
from drakkar.migration.findings import Finding
from drakkar.migration.metrics import exporter_metrics, fields
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_TYPES: Final = ("gauge", "counter", "histogram", "summary", "label")
_BASICS: Final = (
    "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_USED_PERCENT",
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE_INSTANT",
)  # fmt: skip
_UNITS: Final = {
    "ns": ("ns", "nanoseconds"), "us": ("us", "µs", "μs", "microseconds"), "ms": ("ms", "milliseconds"),
    "s": ("s", "sec", "seconds"), "MiB": ("mib",), "MB": ("mb",), "GiB": ("gib",), "GB": ("gb",), "KiB": ("kib", "kb"),
    "bytes": ("b", "bytes"), "percent": ("%", "percent"), "ratio 0 to 1": ("ratio",), "Celsius": ("c", "°c", "celsius"),
    "Fahrenheit": ("f", "°f", "fahrenheit"), "W": ("w", "watt", "watts"), "mW": ("mw", "milliwatts"),
    "kW": ("kw",), "mJ": ("mj", "millijoules"), "J": ("j", "joules"), "MHz": ("mhz",), "GHz": ("ghz",), "kHz": ("khz",),
    "MB/s": ("mb/s",), "bytes/s": ("bytes/s", "b/s"), "KB/s": ("kb/s",),
}  # fmt: skip
_NAMED_UNIT: Final = re.compile(r"\bin\s+([%°µμ\w]+(?:/s)?)", re.IGNORECASE)


@rule("counters")
def lines(review: Review) -> Iterator[Finding]:
    """Each line of each counter file; its worst mistake only."""
    for csv in review.counter_files:
        for number, columns in csv.rows():
            finding = _line(review, csv, number, columns)
            if finding is not None:
                yield finding


def _line(review: Review, csv: Csv, number: int, columns: list[str]) -> Finding | None:
    name = columns[0]
    if len(columns) != 3:
        comma = "; the help text must have no comma" if len(columns) > 3 else ""
        return csv.finding(
            "csv-columns", (number,), f"{name}: {len(columns)} columns instead of three (field, type, help){comma}"
        )
    kind, text = columns[1].lower(), columns[2]
    if kind not in _TYPES:
        near = get_close_matches(kind, _TYPES, 1)
        return csv.finding(
            "csv-type",
            (number,),
            f"{name}: type {columns[1]!r} is none of {', '.join(_TYPES)}"
            + (f"; did you mean {near[0]}?" if near else ""),
            near[0] if near else "",
        )
    unknown = _unknown(review, name)
    if unknown:
        return csv.finding("csv-field-unknown", (number,), f"{name}: {unknown}")
    return _unit(csv, number, name, text)


def _unknown(review: Review, name: str) -> str:
    dcgm, _, exporter = review.context.dcgm_exporter.partition("-")
    version = f"exporter {review.context.dcgm_exporter}"
    if name.startswith("DCGM_EXP_"):
        known = exporter_metrics(release(exporter))
        if name not in known:
            return f"{version} has no such metric{_near(name, list(known))}"
        return (
            "" if known[name] else f"{version} does not know it; it came with 4.8.3 (before: DCGM_EXP_XID_ERRORS_COUNT)"
        )
    if not name.startswith("DCGM_FI_"):
        return f"fields are named DCGM_FI_… or DCGM_EXP_…{_near(name, list(fields()))}"
    field = fields().get(name)
    if field is not None:
        if name == field.new_name and release(dcgm) < (4, 6, 0):
            old = next(each for each, entry in fields().items() if entry is field and each != name)
            return f"{version} does not know the name; before DCGM 4.6.0 it is {old}"
        return ""
    near = _misspelt(name)
    return f"{version} does not know it; did you mean {near}?" if near else ""


def _misspelt(name: str) -> str:
    """A known field that differs in the spelling of one word; DCGM has many fields that are not in our table."""
    words = name.split("_")
    for known in fields():
        pairs = [pair for pair in zip(words, known.split("_"), strict=False) if pair[0] != pair[1]]
        if len(known.split("_")) == len(words) and len(pairs) == 1 and _alike(*pairs[0]):
            return known
    return ""


def _alike(left: str, right: str) -> bool:
    extended = min(len(left), len(right)) > 2 and (left.startswith(right) or right.startswith(left))
    return extended or SequenceMatcher(None, left, right).ratio() > 0.7


def _near(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _unit(csv: Csv, number: int, name: str, text: str) -> Finding | None:
    field = fields().get(name)
    wanted = field.unit if field is not None else ""
    for word in _NAMED_UNIT.findall(text):
        told = next((unit for unit, words in _UNITS.items() if word.lower() in words), "")
        if told and wanted in _UNITS and told != wanted:
            return csv.finding(
                "csv-unit", (number,), f"{name} is in {wanted}, the help text says {word}", text.replace(word, wanted)
            )
    return None


@rule("counters")
def replaces_default(review: Review) -> Iterator[Finding]:
    """A file with nothing of what dashboards need."""
    for csv in review.counter_files:
        names = {columns[0] for _, columns in csv.rows()}
        known = {fields()[name].new_name or name for name in names if name in fields()} | names
        if names and not known & ({*_BASICS} | {fields()[name].new_name for name in _BASICS} - {""}):
            yield csv.finding(
                "csv-replaces-default",
                (),
                "a custom counter file replaces the built-in one: with this one there is no frame buffer, utilisation,"
                " temperature or power left (DCGM_FI_DEV_FB_USED, DCGM_FI_DEV_GPU_UTIL, DCGM_FI_DEV_GPU_TEMP,"
                " DCGM_FI_DEV_POWER_USAGE); add what dashboards and rules read",
            )
