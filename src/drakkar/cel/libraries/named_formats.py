"""Named formats: format.dns1123Label().validate("…") and its siblings; an empty optional means valid.

The checks are those of Kubernetes' own API validation and of its OpenAPI formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final

from drakkar.cel.libraries.url import URLProblem, parse_request_uri
from drakkar.cel.signatures import Library
from drakkar.cel.values import NONE, OpaqueValue, Optional, size_of, tenth
from drakkar.kube import names

_UUID: Final = re.compile(r"[0-9A-F]{8}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{12}", re.ASCII | re.IGNORECASE)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_DATETIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(z|([+-])[0-9]{2}:[0-9]{2})",
    re.ASCII | re.IGNORECASE,
)


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A name that something will be appended to may end with a dash."""

    def run(text: str) -> list[str]:
        return check(names.prefix_of_generated(text))

    return run


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except URLProblem as problem:
        return [str(problem)]
    return []


def _valid_date(year: str, month: str, day: str) -> bool:
    try:
        date(int(year) or 4, int(month), int(day))
    except ValueError:
        return False
    return True


def _date(text: str) -> list[str]:
    found = _DATE.fullmatch(text)
    return [] if found and _valid_date(*found.groups()) else ["invalid date"]


def _datetime(text: str) -> list[str]:
    found = _DATETIME.fullmatch(text)
    if found and _valid_date(found.group(1), found.group(2), found.group(3)):
        hour, minute, second = int(found.group(4)), int(found.group(5)), int(found.group(6))
        if hour <= 23 and minute <= 59 and second <= 59:
            return []
    return ["invalid datetime"]


def _matching(pattern: re.Pattern[str], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if text and pattern.fullmatch(text) else [problem]


class NamedFormat(OpaqueValue):
    """A format: its name, its check, and the length of pattern it is priced by."""

    __slots__ = ("check", "name", "pattern_size")
    type_name = "kubernetes.NamedFormat"
    unhashable = "cel.Format"

    def __init__(self, name: str, check: Callable[[str], list[str]], pattern_size: int) -> None:
        self.name = name
        self.check = check
        self.pattern_size = pattern_size

    def same(self, other: Any) -> bool:
        """Equality by name."""
        return bool(self.name == other.name)


FORMATS: Final = {
    name: NamedFormat(name, check, size)
    for name, check, size in (
        ("dns1123Label", names.dns_label, 30),
        ("dns1123Subdomain", names.dns_subdomain, 60),
        ("dns1035Label", names.dns_1035_label, 30),
        ("qualifiedName", names.label_key, 60),
        ("dns1123LabelPrefix", _prefix(names.dns_label), 30),
        ("dns1123SubdomainPrefix", _prefix(names.dns_subdomain), 60),
        ("dns1035LabelPrefix", _prefix(names.dns_1035_label), 30),
        ("labelValue", names.label_value, 40),
        ("uri", _uri, 1103),
        ("uuid", _matching(_UUID, "does not match the UUID format"), 70),
        ("byte", _matching(_BASE64, "invalid base64"), 84),
        ("date", _date, 71),
        ("datetime", _datetime, 71),
    )
}


def _constant(known: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: known


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(known: NamedFormat, text: str) -> Optional:
    problems = known.check(text)
    return Optional(problems) if problems else NONE


def _validate_price(arguments: Any, _: Any) -> int:
    known = arguments[0]
    if type(known) is not NamedFormat:
        return 1
    return tenth(size_of(arguments[1]) + 1) * -(-known.pattern_size // 4)


NAMED_FORMATS: Final = Library(
    name="format",
    declarations="\n".join(f"format.{name}() -> kubernetes.NamedFormat    format.{name}" for name in FORMATS)
    + """
format.named(string) -> optional_type(kubernetes.NamedFormat)    format-named
kubernetes.NamedFormat.validate(string) -> optional_type(list(string))    format-validate
""",
    implementations={
        **{f"format.{name}": _constant(known) for name, known in FORMATS.items()},
        "format-named": _named,
        "format-validate": _validate,
    },
    function_prices={"validate": _validate_price, "format.named": 1},
)
