"""CEL selectors in objects: their length, whether they compile, and whether they may cost too much.

A selector is compiled as a *new* expression (the libraries a 1.37 server lets users write); what is stored already is
not looked at again. KEP-4381, limits in resource.k8s.io types.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from drakkar.api.fields import FieldError, forbidden, invalid, required, too_long

__all__ = ["check_expression", "check_selector", "check_selectors"]

LENGTH_LIMIT: Final = 10 * 1024
COST_LIMIT: Final = 1_000_000
SELECTORS_LIMIT: Final = 32


def check_selectors(selectors: list[dict[str, Any]], path: str, *, stored: bool = False) -> list[FieldError]:
    """A list of device selectors."""
    from drakkar.api.shared import check_each

    return check_each(
        selectors,
        SELECTORS_LIMIT,
        lambda selector, place: check_selector(selector, place, stored=stored),
        path,
        size_covered=True,
    )


def check_selector(selector: dict[str, Any], path: str, *, stored: bool = False) -> list[FieldError]:
    """One device selector: CEL is the only kind there is."""
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{path}.cel")]
    return check_expression(cel.get("expression") or "", f"{path}.cel.expression", stored=stored)


def check_expression(expression: str, path: str, *, stored: bool = False) -> list[FieldError]:
    """A CEL expression over `device`."""
    if stored:
        return []
    if len(expression.encode()) > LENGTH_LIMIT:
        return [too_long(path, LENGTH_LIMIT)]
    kind, detail = _compiled(expression)
    if kind == "cost":
        return [forbidden(path, detail)]
    return [invalid(path, expression, detail)] if kind else []


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> tuple[str, str]:
    """What is wrong with the expression: kind ("" for nothing) and detail."""
    from drakkar import cel

    try:
        program = _environment().compile(expression)
    except cel.CelError as error:
        return "invalid", error.message
    if program.estimated_cost > COST_LIMIT:
        return "cost", "too complex, exceeds cost limit"
    return "", ""


@lru_cache(maxsize=1)
def _environment() -> Any:
    from drakkar import cel

    return cel.device_environment(mode="new")
