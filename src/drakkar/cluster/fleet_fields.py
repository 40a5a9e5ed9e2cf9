"""Fields of a fleet file: values with their paths, read strictly, and what several parts of the file have in common."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from drakkar.cel.libraries.times import parse_duration
from drakkar.errors import DrakkarError
from drakkar.kube import names

__all__ = ["MAX_NODES", "RACK_LABEL", "ZONE_LABEL", "Field", "label_word", "labels_of", "model_of", "taint_of"]

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
RACK_LABEL: Final = "drakkar.dev/rack"
MAX_NODES: Final = 5000
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT: Final = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^=:]*))?:(?P<effect>[^=:]+)")


class Field:
    """A value of the file with its path."""

    def __init__(self, file: str, path: str, value: Any) -> None:
        self.file, self.path, self.value = file, path, value

    def wrong(self, message: str, expected: str = "") -> NoReturn:
        raise DrakkarError(
            message, reason="InvalidFleet", subject=f"{self.file}: {self.path}" if self.path else self.file,
            expected=expected,
        )  # fmt: skip

    def child(self, key: str | int, value: Any) -> Field:
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if self.path else key
        return Field(self.file, self.path + step, value)

    def mapping(self, expected: str, known: Sequence[str]) -> dict[str, Field]:
        """A field for every known key; those that are not there have the value None."""
        if not isinstance(self.value, dict):
            self.wrong(f"{self._shown()} is no mapping", expected)
        for key in self.value:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                self.child(key, None).wrong(f"unknown field {key!r}{hint}", "one of " + ", ".join(known))
        return {key: self.child(key, self.value.get(key)) for key in known}

    def items(self, expected: str) -> list[Field]:
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.wrong(f"{self._shown()} is no list", expected)
        return [self.child(index, value) for index, value in enumerate(self.value)]

    def text(self, expected: str) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.wrong(f"{self._shown()} is no text" if self.value is not None else "a text is missing", expected)
        return self.value

    def count(self, default: int) -> int:
        if self.value is None:
            return default
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 <= self.value <= MAX_NODES:
            self.wrong(f"{self._shown()} is no number of nodes", f"a whole number, at most {MAX_NODES}")
        return self.value

    def whole(self, default: int = 0) -> int:
        if self.value is None:
            return default
        if isinstance(self.value, bool) or not isinstance(self.value, int) or abs(self.value) > 10**9:
            self.wrong(f"{self._shown()} is no whole number", "a whole number, at most a milliard")
        return self.value

    def flag(self, default: bool = False) -> bool:
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            self.wrong(f"{self._shown()} is neither true nor false", "true or false")
        return self.value

    def seconds(self) -> float:
        """A duration as Go writes it, or a number of seconds."""
        value = self.value
        if isinstance(value, str):
            nanoseconds = parse_duration(value)
            value = None if nanoseconds is None else nanoseconds / 1e9
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10**9:
            shown = self._shown() + " is no duration" if self.value is not None else "a duration is missing"
            self.wrong(shown, "30s, 2m, 1h30m, 500ms, or a number of seconds")
        return float(value)

    def _shown(self) -> str:
        shown = repr(self.value)
        return shown if len(shown) <= 60 else shown[:57] + "..."


def model_of(field: Field) -> str:
    """The name of a model of machine."""
    from drakkar.drivers.catalog import family_of

    model = field.text("a model of a machine; `drakkar models` lists them")
    try:
        family_of(model)
    except DrakkarError as error:
        field.wrong(error.message, error.expected)
    return model


def label_word(field: Field, word: str = "") -> str:
    """A name that becomes the value of a label."""
    word = word or field.text("a name; numbers, and words such as y and no, in quotes")
    for complaint in names.label_value(word):
        field.wrong(f"{word!r} cannot be the value of a label", complaint)
    return word


def labels_of(field: Field, fill: Callable[[Field, str], str] = lambda _, value: value) -> dict[str, str]:
    """Labels by key; `fill` makes the value of each from what the file has."""
    if field.value is not None and not isinstance(field.value, dict):
        field.wrong(f"{field.value!r} is no mapping", "labels by key")
    found = {}
    for key, value in (field.value or {}).items():
        below = field.child(key, value)
        for complaint in names.label_key(key):
            below.wrong(f"{key!r} cannot be the key of a label", complaint)
        if not isinstance(value, str):
            below.wrong(f"{value!r} is no text", "a text; numbers, and words such as true and no, in quotes")
        found[key] = fill(below, value)
        for complaint in names.label_value(found[key]):
            below.wrong(f"{found[key]!r} cannot be the value of a label", complaint)
    return found


def taint_of(field: Field) -> dict[str, str]:
    """``key=value:NoSchedule`` as kubectl writes it, or the object."""
    if isinstance(field.value, str):
        match = _TAINT.fullmatch(field.value)
        if match is None:
            field.wrong(f"{field.value!r} is no taint", "key=value:NoSchedule")
        taint = {key: value for key, value in match.groupdict().items() if value}
    else:
        parts = field.mapping("key=value:NoSchedule, or key, value and effect", ("key", "value", "effect"))
        taint = {key: part.text(f"the {key} of a taint") for key, part in parts.items()
                 if key != "value" or part.value}  # fmt: skip
    complaints = names.label_key(taint["key"]) + names.label_value(taint.get("value", ""))
    if complaints:
        field.wrong("the taint has no valid key or value", complaints[0])
    if taint["effect"] not in _EFFECTS:
        field.wrong(f"{taint['effect']!r} is no effect of a taint", "one of " + ", ".join(_EFFECTS))
    return taint
