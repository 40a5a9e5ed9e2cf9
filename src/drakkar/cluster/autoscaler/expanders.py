"""Which of several groups that would help is made larger: the expanders of cluster-autoscaler.

Each keeps the best of the options it is given; they are asked one after the other (`--expander=priority,least-waste`),
and what is left after the last is decided by chance, that is, by the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from drakkar.cel.libraries.regex import Pattern, compile_pattern
from drakkar.cluster.autoscaler.scale_up import Option
from drakkar.errors import DrakkarError

__all__ = ["best_option", "read_priorities"]

Priorities = Mapping[int, Sequence[str]]


def best_option(
    options: Sequence[Option], expanders: Sequence[str], *, priorities: Priorities, chance: Random
) -> Option | None:
    """The option to take; None if there is none.

    Args:
        expanders: names of `EXPANDERS`, in the order in which they are asked.
        priorities: regular expressions of group names by priority, for the priority expander; the highest wins.
        chance: decides among equals.
    """
    left = list(options)
    for name in expanders:
        if len(left) > 1:
            left = _NARROW[name](left, priorities)
    return chance.choice(left) if left else None


def read_priorities(value: Any, where: str) -> dict[int, tuple[str, ...]]:
    """Priorities as the ConfigMap has them: lists of regular expressions by number. Raises `DrakkarError`."""
    if not isinstance(value, dict) or not value:
        raise DrakkarError(f"{value!r} are no priorities", reason="InvalidPriorities", subject=where, expected=_FORM)
    found: dict[int, tuple[str, ...]] = {}
    for number, expressions in value.items():
        try:
            priority = int(number)
        except (TypeError, ValueError):
            raise DrakkarError(
                f"{number!r} is no priority", reason="InvalidPriorities", subject=where, expected=_FORM
            ) from None
        if not isinstance(expressions, list) or not all(isinstance(one, str) and one for one in expressions):
            raise DrakkarError(
                f"{expressions!r} is no list of regular expressions",
                reason="InvalidPriorities",
                subject=f"{where}.{number}",
                expected=_FORM,
            )
        for one in expressions:
            pattern = compile_pattern(one)
            if not isinstance(pattern, Pattern):
                raise DrakkarError(
                    f"{one!r} is no regular expression: {pattern.message}",
                    reason="InvalidPriorities",
                    subject=f"{where}.{number}",
                    expected="a regular expression in the syntax of RE2, such as spot-.*",
                )
        found[priority] = tuple(expressions)
    return found


_FORM: Final = "lists of regular expressions for group names by priority: {10: [spot-.*], 50: [reserved-.*]}"


def _all(options: list[Option], _priorities: Priorities) -> list[Option]:
    return options


def _most_pods(options: list[Option], _priorities: Priorities) -> list[Option]:
    most = max(len(option.pods) for option in options)
    return [option for option in options if len(option.pods) == most]


def _least_waste(options: list[Option], _priorities: Priorities) -> list[Option]:
    """The least idle CPU and memory after the scale-up, as shares of what is added."""
    wasted = [_waste(option) for option in options]
    return [option for option, waste in zip(options, wasted, strict=True) if waste == min(wasted)]


def _waste(option: Option) -> float:
    total = 0.0
    for resource in ("cpu", "memory"):
        added = option.template.capacity.get(resource, 0) * option.count
        asked = sum(pod.requests.get(resource, 0) for pod in option.pods)
        total += (added - asked) / added if added else 0.0
    return total


def _priority(options: list[Option], priorities: Priorities) -> list[Option]:
    """Those of the highest priority that matches one; all where none does."""
    for _, expressions in sorted(priorities.items(), reverse=True):
        patterns = [one for one in map(compile_pattern, expressions) if isinstance(one, Pattern)]
        matching = [option for option in options if any(one.test(option.group.name) for one in patterns)]
        if matching:
            return matching
    return options


_NARROW: Final[Mapping[str, Callable[[list[Option], Priorities], list[Option]]]] = {
    "random": _all,
    "most-pods": _most_pods,
    "least-waste": _least_waste,
    "priority": _priority,
}
