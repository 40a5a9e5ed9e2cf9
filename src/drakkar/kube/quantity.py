"""Kubernetes quantities ("40Gi", "500m", "1e3") with the exact arithmetic of resource.Quantity.

A quantity is a decimal number and the family of suffixes it likes to be written with. Kubernetes keeps most of them as
a 64-bit integer with a power of ten (here: the *compact* form) and falls back to arbitrary decimals for the rest; the
two are equal in every comparison, but a few operations tell them apart (`asInteger()` in CEL, the exemption of
defaults from capacity policies), so the form is part of the value. Source: the grammar and the canonical form in
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Any, Final

from drakkar.errors import DrakkarError

__all__ = ["Format", "Quantity", "QuantityError"]

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_COMPACT_DIGITS: Final = 18
_NANO: Final = -9
# Kubernetes shifts by any 32-bit exponent; beyond this a decimal expansion is an attack, not a quantity (and Python
# refuses to print integers of more than 4300 digits).
_MAX_EXPANSION: Final = 2_000

_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIX_OF_EXPONENT: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_SUFFIX_OF_POWER: Final = {0: "", **{bits // 10: suffix for suffix, bits in _BINARY_SUFFIXES.items()}}

_SHAPE: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)

FORMAT_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # upstream's words
)
SUFFIX_TEXT: Final = "unable to parse quantity's suffix"
NUMERIC_TEXT: Final = "unable to parse numeric part of quantity"


class QuantityError(DrakkarError, ValueError):
    """The text is not a quantity; the message is Kubernetes' own."""


class Format(Enum):
    """The family of suffixes a quantity is written with."""

    DECIMAL_EXPONENT = "DecimalExponent"
    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"


@total_ordering
class Quantity:
    """An exact quantity: `unscaled` × 10^`scale`, immutable and hashable by its number.

    `compact` is false where Kubernetes needs arbitrary precision.
    """

    __slots__ = ("compact", "format", "scale", "unscaled")

    unscaled: int
    scale: int
    format: Format
    compact: bool

    def __init__(
        self, unscaled: int, scale: int = 0, format: Format = Format.DECIMAL_SI, *, compact: bool = True
    ) -> None:
        self.unscaled = unscaled
        self.scale = scale
        self.format = format
        self.compact = compact

    @staticmethod
    def parse(text: str | int | float) -> Quantity:
        """Read a quantity from its text or from a JSON number.

        Raises `QuantityError` with upstream's message.
        """
        if isinstance(text, str):
            return _parse(text)
        return _parse(repr(text) if isinstance(text, float) else str(int(text)))

    @classmethod
    def from_json(cls, value: Any) -> Quantity:
        """Read the JSON form: a string (blanks around it are ignored), a number, or null for zero."""
        if value is None:
            return cls(0)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(FORMAT_TEXT, reason="InvalidQuantity", subject=repr(value), expected="a quantity")
        return cls.parse(value.strip() if isinstance(value, str) else value)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1 as this quantity is smaller than, equal to or larger than the other; formats do not matter."""
        if self.scale == other.scale:
            return (self.unscaled > other.unscaled) - (self.unscaled < other.unscaled)
        if self.sign != other.sign or not self.unscaled:
            return (self.sign > other.sign) - (self.sign < other.sign)
        mine, theirs = len(str(abs(self.unscaled))) + self.scale, len(str(abs(other.unscaled))) + other.scale
        if mine != theirs:
            return self.sign if mine > theirs else -self.sign
        common = min(self.scale, other.scale)
        left = self.unscaled * _ten_to(self.scale - common)
        right = other.unscaled * _ten_to(other.scale - common)
        return (left > right) - (left < right)

    def add(self, other: Quantity) -> Quantity:
        """The exact sum, in this quantity's format (the other's if this one is zero)."""
        return self._plus(other, other.unscaled, other.unscaled)

    def sub(self, other: Quantity) -> Quantity:
        """The exact difference, in this quantity's format (the other's if this one is zero).

        But for one: upstream negates compact numbers within 64 bits, where the least one stays as it is.
        """
        wrapped = other.unscaled if other.unscaled == _INT64_MIN else -other.unscaled
        return self._plus(other, wrapped, -other.unscaled)

    def value(self) -> int:
        """The number rounded up (away from zero) to an integer, within 64 bits as upstream's Value()."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """The number of thousandths, rounded up (away from zero)."""
        return self.scaled_value(-3)

    def scaled_value(self, scale: int) -> int:
        """The number of 10^`scale`, rounded up (away from zero), not limited in size."""
        shift = self.scale - scale
        if shift >= 0:
            _check_expansion(shift)
            return self.unscaled * _ten_to(shift)
        if -shift > _MAX_EXPANSION:
            return self.sign
        quotient = -(-abs(self.unscaled) // _ten_to(-shift))
        return quotient if self.unscaled >= 0 else -quotient

    def as_int64(self) -> int | None:
        """The integer if Kubernetes can name it without arithmetic on decimals (AsInt64), else None."""
        if not self.compact or self.scale < 0 or self.scale > _COMPACT_DIGITS:
            return 0 if self.compact and self.unscaled == 0 and self.scale >= 0 else None
        number = self.unscaled * _ten_to(self.scale)
        return number if _INT64_MIN <= number <= _INT64_MAX else None

    def as_float(self) -> float:
        """The nearest double as upstream's AsApproximateFloat64 computes it (two roundings)."""
        try:
            base = float(self.unscaled)
        except OverflowError:
            base = float("inf") if self.unscaled > 0 else float("-inf")
        if self.scale == 0:
            return base
        return base * _power(self.scale)

    def canonical(self) -> str:
        """The canonical text: no fraction, the largest fitting suffix, as the API server writes it."""
        if not self.unscaled:
            return "0"
        if self.format is Format.BINARY_SI and not self._small():
            whole = self._integer()
            if whole is not None:
                return _binary_text(whole)
        return _decimal_text(self.unscaled, self.scale, self.format)

    def negated(self) -> Quantity:
        """The same magnitude with the opposite sign."""
        return Quantity(-self.unscaled, self.scale, self.format, compact=self.compact)

    def __str__(self) -> str:
        return self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({self.canonical()!r})"

    def __eq__(self, other: object) -> bool:
        return self.compare(other) == 0 if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        return hash(_without_zeros(self.unscaled, self.scale))

    def __add__(self, other: Quantity) -> Quantity:
        return self.add(other)

    def __sub__(self, other: Quantity) -> Quantity:
        return self.sub(other)

    def __neg__(self) -> Quantity:
        return self.negated()

    def __bool__(self) -> bool:
        return self.unscaled != 0

    def _plus(self, other: Quantity, addend: int, exact: int) -> Quantity:
        """The sum with `addend` if 64 bits suffice all the way, else with `exact` and arbitrary precision."""
        format = self.format if self.unscaled else other.format
        compact = self.compact and other.compact
        if compact and not addend:
            return Quantity(self.unscaled, self.scale, format)
        if compact and not self.unscaled:
            return Quantity(addend, other.scale, format)
        common = min(self.scale, other.scale)
        _check_expansion(max(self.scale, other.scale) - common)
        left = self.unscaled * _ten_to(self.scale - common)
        factor = _ten_to(other.scale - common)
        right = addend * factor
        if compact and _fits(left) and _fits(right) and _fits(left + right):
            return Quantity(left + right, common, format)
        return Quantity(left + exact * factor, common, format, compact=False)

    def _small(self) -> bool:
        return Quantity(abs(self.unscaled), self.scale).compare(Quantity(1024)) < 0

    def _integer(self) -> int | None:
        """The number if it is whole, else None."""
        if self.scale >= 0:
            _check_expansion(self.scale)
            return self.unscaled * _ten_to(self.scale)
        quotient, rest = divmod(self.unscaled, _ten_to(-self.scale))
        return None if rest else quotient


def _parse(text: str) -> Quantity:
    found = _parsed(text)
    if isinstance(found, str):
        raise QuantityError(found, reason="InvalidQuantity", subject=repr(text), expected='a quantity like "40Gi"')
    return found


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Quantity | str:
    shape = _SHAPE.fullmatch(text)
    if not text or shape is None:
        return FORMAT_TEXT
    sign, whole, fraction, suffix = shape.group(1), shape.group(2), shape.group(3) or "", shape.group(4)
    digitless = not whole and not fraction
    whole = whole.lstrip("0") or "0"
    if len(whole) + len(fraction) > _MAX_EXPANSION:
        return NUMERIC_TEXT
    quantity = _interpreted(sign, whole, fraction, suffix)
    if digitless and isinstance(quantity, Quantity) and not quantity.compact:
        return NUMERIC_TEXT  # "Gi" is zero, "Ei" an error: only the arbitrary precision path wants digits
    return quantity


def _interpreted(sign: str, whole: str, fraction: str, suffix: str) -> Quantity | str:
    if suffix in _DECIMAL_SUFFIXES:
        return _decimal(sign, whole, fraction, _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI)
    if suffix in _BINARY_SUFFIXES:
        return _binary(sign, whole, fraction, _BINARY_SUFFIXES[suffix])
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None or len(exponent.group(1)) > 20 or not _fits(int(exponent.group(1))):
        return SUFFIX_TEXT
    power = (int(exponent.group(1)) + (1 << 31)) % (1 << 32) - (1 << 31)  # upstream narrows to 32 bits
    return _decimal(sign, whole, fraction, power, Format.DECIMAL_EXPONENT)


def _decimal(sign: str, whole: str, fraction: str, exponent: int, format: Format) -> Quantity | str:
    digits = int(whole + fraction)
    scale = exponent - len(fraction)
    if len(whole) + len(fraction) <= _COMPACT_DIGITS and scale >= _NANO:
        return Quantity(-digits if sign == "-" else digits, scale, format)
    if scale > _MAX_EXPANSION:
        return NUMERIC_TEXT
    return _rounded(sign, digits, scale, format)


def _binary(sign: str, whole: str, fraction: str, bits: int) -> Quantity:
    digits = int(whole + fraction) << bits
    # The compact form is chosen by a rough count of decimal digits, 3 for each 10 bits.
    if not fraction and 14 - len(whole) - bits * 3 // 10 >= 0 and _fits(digits):
        return Quantity(-digits if sign == "-" else digits, 0, Format.BINARY_SI)
    return _rounded(sign, digits, -len(fraction), Format.BINARY_SI)


def _rounded(sign: str, digits: int, scale: int, format: Format) -> Quantity:
    """Arbitrary precision: whole nanos, rounded away from zero; binary magnitudes stop at 2^63-1."""
    if not digits:
        return Quantity(0, 0, format, compact=False)
    if scale >= _NANO:
        nanos = digits * _ten_to(scale - _NANO)
    elif _NANO - scale > _MAX_EXPANSION:
        nanos = 1
    else:
        nanos = -(-digits // _ten_to(_NANO - scale))
    if format is Format.BINARY_SI:
        if nanos > _INT64_MAX * 10**9:
            return Quantity(-_INT64_MAX if sign == "-" else _INT64_MAX, 0, format, compact=False)
        if 0 < nanos < 10**9:
            format = Format.DECIMAL_SI
    return Quantity(-nanos if sign == "-" else nanos, _NANO, format, compact=False)


def _decimal_text(unscaled: int, scale: int, format: Format) -> str:
    mantissa, exponent = _without_zeros(unscaled, scale)
    shift = exponent % 3
    number = str(mantissa * _ten_to(shift))
    exponent -= shift
    if format is Format.DECIMAL_EXPONENT:
        return f"{number}e{exponent}" if exponent else number
    return number + _SUFFIX_OF_EXPONENT.get(exponent, "")


def _binary_text(number: int) -> str:
    power = 0
    while number and number % 1024 == 0 and power < len(_BINARY_SUFFIXES):
        number //= 1024
        power += 1
    return f"{number}{_SUFFIX_OF_POWER[power]}"


def _without_zeros(unscaled: int, scale: int) -> tuple[int, int]:
    if not unscaled:
        return 0, 0
    digits = str(unscaled)
    kept = digits.rstrip("0")
    return int(kept), scale + len(digits) - len(kept)


def _ten_to(power: int) -> int:
    return int(10**power)


def _power(exponent: int) -> float:
    return float("inf") if exponent > 308 else 0.0 if exponent < -323 else float(f"1e{exponent}")


def _fits(number: int) -> bool:
    return _INT64_MIN <= number <= _INT64_MAX


def _check_expansion(shift: int) -> None:
    if shift > _MAX_EXPANSION:
        raise QuantityError(
            f"a quantity with {shift} more digits cannot be written out",
            reason="QuantityTooLarge",
            expected=f"at most {_MAX_EXPANSION} digits",
        )
