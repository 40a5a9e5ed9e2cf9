"""How plain YAML text becomes a number, a boolean or nothing, exactly as the readers of CDI files do it.

Neither YAML 1.1 nor 1.2: ``1:0`` is a name and not 60, ``010`` is eight in a number field and itself in a text field,
``0o17`` and ``0b11`` are numbers, ``08`` is eight, words like ``yes`` are booleans only in a boolean field. These are
the rules of the YAML reader in the CDI reference library 1.1.2; PyYAML's own resolver follows others.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

__all__ = ["FALSE_WORDS", "NULL_WORDS", "TRUE_WORDS", "Tagged", "decode_binary", "resolve", "short_tag"]

NULL_WORDS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
TRUE_WORDS: Final = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
FALSE_WORDS: Final = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})
_SPECIAL_FLOATS: Final = {
    word: value
    for value, words in (
        (float("nan"), (".nan", ".NaN", ".NAN")),
        (float("inf"), (".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF")),
        (float("-inf"), ("-.inf", "-.Inf", "-.INF")),
    )
    for word in words
}
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_DOT_FLOAT: Final = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?", re.ASCII)
_PREFIXED: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_PREFIX_THEN_SIGN: Final = re.compile(r"0(?:b([-+][01]+)|o([-+][0-7]+))", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-(1[0-2]|0?[1-9])-(3[01]|[12][0-9]|0?[1-9])"
    r"([Tt]([01]?[0-9]|2[0-3]):[0-5]?[0-9]:[0-5]?[0-9](\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})"
    r"| ([01]?[0-9]|2[0-3]):[0-5]?[0-9]:[0-5]?[0-9](\.[0-9]+)?)?",
    re.ASCII,
)
_LONG_TAG: Final = "tag:yaml.org,2002:"

Tagged = tuple[str, "str | int | float | bool | None"]
"""A short tag such as ``!!int`` and the value the text has under it."""


def short_tag(tag: str | None) -> str:
    """``tag:yaml.org,2002:int`` as ``!!int``; no tag and the non-specific ``!`` as ""."""
    if not tag or tag == "!":
        return ""
    return "!!" + tag[len(_LONG_TAG) :] if tag.startswith(_LONG_TAG) else tag


def resolve(text: str) -> Tagged:
    """Reads untagged plain text by the first rule that fits; everything else is a string."""
    if text in NULL_WORDS:
        return "!!null", None
    if text in _BOOLEANS:
        return "!!bool", _BOOLEANS[text]
    if text in _SPECIAL_FLOATS:
        return "!!float", _SPECIAL_FLOATS[text]
    if text[0] == ".":
        return ("!!float", float(text)) if _finite(_DOT_FLOAT, text) else ("!!str", text)
    if text[0] not in "+-0123456789":
        return "!!str", text
    if _TIMESTAMP.fullmatch(text):
        return "!!timestamp", text
    return _number(text.replace("_", "")) or ("!!str", text)


def decode_binary(text: str) -> bytes:
    """The bytes of a ``!!binary`` scalar: padded standard base64, line ends ignored.

    Raises:
        ValueError: the text is something else.
    """
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except binascii.Error as error:
        raise ValueError("!!binary value contains invalid base64 data") from error


def _number(text: str) -> Tagged | None:
    integer = _integer(text)
    if integer is not None:
        return "!!int", integer
    if _finite(_FLOAT, text):
        return "!!float", float(text)
    match = _PREFIX_THEN_SIGN.fullmatch(text)  # "0b-1": a curiosity of the reference reader
    if match:
        binary, octal = match.groups()
        value = int(binary, 2) if binary else int(octal, 8)
        return ("!!int", value) if -(2**63) <= value < 2**64 else None
    return None


def _integer(text: str) -> int | None:
    match = _PREFIXED.fullmatch(text)
    if not match:
        return None
    sign, hexadecimal, binary, octal, decimal = match.groups()
    for digits, base in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)):
        if digits is not None:
            if len(digits) > 80:  # longer than any 64-bit number; int() of a huge text would take quadratic time
                digits = digits.lstrip("0") or "0"
                if len(digits) > 80:
                    return None
            value = int(sign + digits, base)
            unsigned = not sign and value < 2**64
            return value if unsigned or -(2**63) <= value < 2**63 else None
    return None


def _finite(pattern: re.Pattern[str], text: str) -> bool:
    return bool(pattern.fullmatch(text)) and abs(float(text)) != float("inf")
