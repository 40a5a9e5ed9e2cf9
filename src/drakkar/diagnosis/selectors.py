"""Answers of device selectors, each asked once: many pending pods ask the same of the same devices.

The engine is the scheduler's own, `drakkar.cel`; here are only its answers, with the first false clause where one is
asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["Broken", "FalseClause", "Selectors"]

_PATIENCE: Final = 2.0  # seconds for one selector on all devices: the cost limit alone allows that much for each


class Broken(NamedTuple):
    """A selector that does not compile, or fails on a device."""

    text: str
    compiling: bool


class FalseClause(NamedTuple):
    """A clause that is false for a device; `wanted` is "" where the clause compares nothing."""

    text: str
    wanted: str = ""


class Selectors:
    """Compiled selectors and what they answered, for the devices of one snapshot.

    A device is anything with ``key.driver`` and ``device``; it is known again by its identity.
    """

    def __init__(self) -> None:
        from drakkar.cel.device import DeviceValue
        from drakkar.cel.environment import device_environment
        from drakkar.cel.errors import CelError

        self._environment = device_environment()
        self._value_of = DeviceValue.from_json
        self._failure = CelError
        self._programs: dict[str, Any] = {}
        self._spent: dict[str, float] = {}  # seconds, by selector
        self._values: dict[int, Any] = {}
        self._answers: dict[tuple[str, int], bool | Broken] = {}
        self._clauses: dict[tuple[str, int], FalseClause] = {}

    def answer(self, text: str, published: Any) -> bool | Broken:
        """True, False, or why there is no answer."""
        key = (text, id(published))
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = self._ask(text, published)
        return known

    def false_clause(self, text: str, published: Any) -> FalseClause:
        """The first clause of a false selector that is false, or the whole text."""
        key = (text, id(published))
        if key not in self._clauses:
            self._clauses[key] = self._first_false(text, published)
        return self._clauses[key]

    def _first_false(self, text: str, published: Any) -> FalseClause:
        program = self._program(text)
        if isinstance(program, Broken):
            return FalseClause(text)
        for result in program.evaluate_clauses({"device": self._value(published)}):
            if result.value is False:
                return FalseClause(str(result.clause.text), result.wanted or "")
        return FalseClause(text)

    def _ask(self, text: str, published: Any) -> bool | Broken:
        program = self._program(text)
        if isinstance(program, Broken):
            return program
        spent = self._spent.get(text, 0.0)
        if spent > _PATIENCE:
            return Broken(
                f"given up: the selector takes too long, {spent:.0f} s for the first devices", compiling=False
            )
        started = time.monotonic()
        end = started + _PATIENCE
        try:
            found = program.evaluate({"device": self._value(published)}, deadline=lambda: time.monotonic() > end)
            return found.value is True
        except self._failure as error:
            return Broken(str(error), compiling=False)
        finally:
            self._spent[text] = spent + time.monotonic() - started

    def _program(self, text: str) -> Any:
        if text not in self._programs:
            try:
                self._programs[text] = self._environment.compile(text)
            except self._failure as error:
                self._programs[text] = Broken(str(error), compiling=True)
        return self._programs[text]

    def _value(self, published: Any) -> Mapping[str, Any]:
        value: Mapping[str, Any] | None = self._values.get(id(published))
        if value is None:
            value = self._values[id(published)] = self._value_of(published.key.driver, published.device)
        return value
