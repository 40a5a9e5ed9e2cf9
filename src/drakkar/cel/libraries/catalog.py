"""Which library came with which Kubernetes version (from the release notes and KEPs of the CEL libraries)."""

from __future__ import annotations

from typing import Final

from drakkar.cel.libraries.authorization import AUTHORIZATION
from drakkar.cel.libraries.comprehensions import BINDINGS, TWO_VARIABLES
from drakkar.cel.libraries.conversions import CONVERSIONS
from drakkar.cel.libraries.ip import IPS
from drakkar.cel.libraries.lists import EXTENDED_LISTS, INCLUDES, LISTS
from drakkar.cel.libraries.named_formats import NAMED_FORMATS
from drakkar.cel.libraries.optionals import OPTIONALS
from drakkar.cel.libraries.quantities import QUANTITIES
from drakkar.cel.libraries.regex import MATCHES, REGEX
from drakkar.cel.libraries.semvers import SEMVERS
from drakkar.cel.libraries.sets import SETS
from drakkar.cel.libraries.standard import STANDARD
from drakkar.cel.libraries.strings import STRINGS
from drakkar.cel.libraries.times import TIMES
from drakkar.cel.libraries.url import URLS
from drakkar.cel.signatures import Library

SINCE: Final[tuple[tuple[int, Library], ...]] = (
    (0, STANDARD),
    (0, CONVERSIONS),
    (0, TIMES),
    (0, MATCHES),
    (0, REGEX),
    (0, STRINGS),
    (0, URLS),
    (27, AUTHORIZATION),
    (28, OPTIONALS),
    (28, QUANTITIES),
    (29, SETS),
    (30, IPS),
    (31, NAMED_FORMATS),
    (31, BINDINGS),
    (32, TWO_VARIABLES),
    (33, SEMVERS),
    (34, EXTENDED_LISTS),
)
_LISTS_LAST: Final = 37
"""Since when Kubernetes' functions of lists come last, and `includes` with them."""


def libraries_for(minor: int, *, includes: bool) -> list[Library]:
    """The libraries of Kubernetes 1.`minor`; `includes` came with the gate of list attributes in 1.36."""
    libraries = [library for since, library in SINCE if since <= minor]
    if minor >= _LISTS_LAST:
        return [*libraries, LISTS, INCLUDES]
    # What is declared first is tried first, which shows in what is inferred.
    return [LISTS, *libraries, *([INCLUDES] if includes else [])]
