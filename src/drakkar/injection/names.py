"""Qualified device names, ``vendor/class=name``, and the rules for their parts (SPEC.md, "kind" and "name").

The reference library only knows ASCII and looks at the first, the inner and the last characters; lengths and DNS
rules that the specification also states are in ``strict``.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple

from .errors import CdiError

__all__ = [
    "QualifiedName",
    "check_class",
    "check_device",
    "check_vendor",
    "qualified_name",
    "quote",
    "split_kind",
    "split_name",
]

_LETTERS: Final = frozenset(string.ascii_letters)
ALPHANUMERIC: Final = frozenset(string.ascii_letters + string.digits)
_KIND_INNER: Final = ALPHANUMERIC | set("_-.")
_DEVICE_INNER: Final = _KIND_INNER | {":"}


class QualifiedName(NamedTuple):
    """A device name in its three parts; ``str()`` joins them."""

    vendor: str
    device_class: str
    name: str

    @classmethod
    def parse(cls, text: str) -> QualifiedName:
        """Splits and checks a qualified name.

        Raises:
            CdiError: a part is missing or has wrong characters.
        """
        vendor, device_class, name = split_name(text)
        for part, title in ((vendor, "vendor"), (device_class, "class"), (name, "device name")):
            if not part:
                raise CdiError(
                    f"unqualified device {quote(text)}, missing {title}",
                    reason="InvalidName",
                    expected="vendor/class=name, e.g. nvidia.com/gpu=0",
                )
        problem = check_vendor(vendor) or check_class(device_class) or check_device(name)
        if problem:
            raise CdiError(f"invalid device {quote(text)}: {problem}", reason="InvalidName")
        return cls(vendor, device_class, name)

    def __str__(self) -> str:
        return f"{self.vendor}/{self.device_class}={self.name}"


def quote(text: str) -> str:
    """The text in quotes, as Go's ``%q`` writes it; imported when there is something to quote."""
    from drakkar.api.fields import quote as quoted

    return quoted(text)


def qualified_name(vendor: str, device_class: str, name: str) -> str:
    """The three parts joined, unchecked."""
    return f"{vendor}/{device_class}={name}"


def split_kind(kind: str) -> tuple[str, str]:
    """Vendor and class at the first slash; ("", kind) where one would be empty."""
    vendor, slash, device_class = kind.partition("/")
    return (vendor, device_class) if slash and vendor and device_class else ("", kind)


def split_name(text: str) -> tuple[str, str, str]:
    """Vendor, class and name without checks; ("", "", text) where the text is not qualified."""
    qualifier, equals, name = text.partition("=")
    if text.startswith("/") or not (equals and qualifier and name):
        return "", "", text
    vendor, device_class = split_kind(qualifier)
    return (vendor, device_class, name) if vendor else ("", "", text)


def check_vendor(vendor: str) -> str:
    """What is wrong with a vendor, or ""."""
    problem = _check_kind_part(vendor)
    return f"invalid vendor. {problem}" if problem else ""


def check_class(device_class: str) -> str:
    """What is wrong with a class, or ""."""
    problem = _check_kind_part(device_class)
    return f"invalid class. {problem}" if problem else ""


def check_device(name: str) -> str:
    """What is wrong with an unqualified device name, or ""."""
    if not name:
        return "invalid (empty) device name"
    if name[0] not in ALPHANUMERIC:
        return f"invalid class {quote(name)}, should start with a letter or digit"
    for character in _inner(name):
        if character not in _DEVICE_INNER:
            return f"invalid character '{character}' in device name {quote(name)}"
    if len(name) > 1 and name[-1] not in ALPHANUMERIC:
        return f"invalid name {quote(name)}, should end with a letter or digit"
    return ""


def _check_kind_part(part: str) -> str:
    if not part:
        return "empty name"
    if part[0] not in _LETTERS:
        return f"{quote(part)}, should start with letter"
    for character in _inner(part):
        if character not in _KIND_INNER:
            return f"invalid character '{character}' in name {quote(part)}"
    if len(part) > 1 and part[-1] not in ALPHANUMERIC:
        return f"{quote(part)}, should end with a letter or digit"
    return ""


def _inner(name: str) -> str:
    """All but the first and last byte, as the reference library counts: a last character of two bytes is inside."""
    return name[1:-1] if name[-1].isascii() else name[1:]
