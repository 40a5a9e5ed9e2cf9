"""What is wrong with the policy by which a job counts as succeeded before all its indexes have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from drakkar.api.fields import FieldError, invalid, quote, required, too_long, too_many
from drakkar.cluster.machinery.validation import values
from drakkar.cluster.machinery.validation.internal_types import internal

__all__ = ["check_success_policy"]

Json = Mapping[str, Any]
Found = list[FieldError]
_MOST_RULES: Final = 20
_LONGEST: Final = 64 * 1024


class _IndexError(ValueError):
    """Indexes that cannot be read, in the server's words."""


def check_success_policy(spec: Json, path: str) -> Found:
    """The policy of a job's spec."""
    rules = spec["successPolicy"].get("rules") or []
    if spec.get("completionMode") != "Indexed":
        shown = internal(spec["successPolicy"], "SuccessPolicy")
        return [invalid(path, shown, "requires indexed completion mode")]
    found: Found = []
    if not rules:
        found.append(
            required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
        )
    if len(rules) > _MOST_RULES:
        found.append(too_many(f"{path}.rules", len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        found += _check_rule(rule, spec.get("completions") or 0, f"{path}.rules[{index}]")
    return found


def _check_rule(rule: Json, completions: int, path: str) -> Found:
    indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    found: Found = []
    total = 0
    if indexes is None and count is None:
        found.append(required(path, "at least one of succeededCount or succeededIndexes must be specified"))
    if indexes is not None:
        if len(indexes.encode()) > _LONGEST:
            found.append(too_long(f"{path}.succeededIndexes", _LONGEST))
        try:
            total = _total(indexes, completions)
        except _IndexError as error:
            detail = f"error parsing succeededIndexes: {error}"
            found.append(invalid(f"{path}.succeededIndexes", indexes, detail))
    if count is not None:
        place, at_most = f"{path}.succeededCount", "must be less than or equal to"
        found += values.check_non_negative(rule, "succeededCount", path)
        if count > completions:
            found.append(invalid(place, count, f"{at_most} {completions} (the number of specified completions)"))
        if indexes is not None and count > total:
            words = "(the number of indexes in the specified succeededIndexes field)"
            found.append(invalid(place, count, f"{at_most} {total} {words}"))
    return found


def _total(indexes: str, completions: int) -> int:
    """How many indexes a list of numbers and intervals has. Raises `_IndexError`."""
    total, last = 0, None
    for part in indexes.split(",") if indexes else ():
        first, end = _interval(part, completions)
        if last is not None and last >= first:
            raise _IndexError(f"non-increasing order, previous: {last}, current: {first}")
        total += end - first + 1
        last = end
    return total


def _interval(part: str, completions: int) -> tuple[int, int]:
    ends = part.split("-")
    if len(ends) > 2:
        raise _IndexError(
            f"the fragment {quote(part)} violates the requirement that an index interval can have at most two parts"
            " separated by '-'"
        )
    numbers = []
    for text in ends:
        if not text.removeprefix("+").isdecimal() or not text.isascii():
            raise _IndexError(f"cannot convert string to integer for index: {quote(text)}")
        numbers.append(int(text))
        if numbers[-1] >= completions:
            raise _IndexError(f"too large index: {quote(text)}")
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        raise _IndexError(f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}")
    return numbers[0], numbers[-1]
