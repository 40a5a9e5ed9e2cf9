"""String.format(): the verbs %s %d %f %e %x %X %o %b (cel-go's strings extension, version 2, English locale).

%f groups thousands with commas and %e writes "1.234500×10⁰³": upstream formats numbers for people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from drakkar.cel.libraries.conversions import float_text
from drakkar.cel.libraries.times import duration_text, timestamp_text
from drakkar.cel.types import Type
from drakkar.cel.values import Duration, Failure, Timestamp, TypeValue, UInt, keys_of, type_name

_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_CLAUSE: Final = "could not parse formatting clause: "
_DURING: Final = "error during formatting: "
_NOT_TEXT: Final = 'could not convert argument "invalid UTF-8 in bytes, cannot convert to string" to string'
_STRING_TYPES: Final = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps, was given "
)


class FormatProblem(Exception):
    """What is wrong with a format or an argument; `argument` is the index of the argument, or -1."""

    def __init__(self, message: str, argument: int = -1) -> None:
        super().__init__(message)
        self.argument = argument


def format_string(template: str, arguments: list[Any]) -> Any:
    """The formatted text, or upstream's error."""
    try:
        return _format(template, arguments)
    except FormatProblem as problem:
        return Failure(str(problem))


def pieces_of(template: str, arguments: int) -> Iterator[tuple[str, str, int]]:
    """The pieces of a format, one by one: (literal text, "", 0) or ("", verb, precision); raises `FormatProblem`.

    A precision of -1 stands for none. Whether one of so many `arguments` is left is asked before a clause is read, and
    a clause is read after those before it were used, since upstream tells the first problem on that way.
    """
    index = used = 0
    while index < len(template):
        percent = template.find("%", index)
        if percent < 0:
            yield template[index:], "", 0
            return
        if percent > index:
            yield template[index:percent], "", 0
        index = percent + 1
        if template[index : index + 1] == "%":
            yield "%", "", 0
            index += 1
            continue
        if used >= arguments:
            raise FormatProblem(f"index {used} out of range")
        if index >= len(template):
            raise FormatProblem("unexpected end of string")
        precision, index = _precision(template, index)
        verb = template[index] if index < len(template) else ""
        if not verb or verb not in _VERBS:
            shown = chr(verb.encode()[0]) if verb else ""  # upstream reads byte by byte
            raise FormatProblem(f'{_CLAUSE}unrecognized formatting clause "{shown}"')
        yield "", verb, precision
        used += 1
        index += 1


def _precision(template: str, index: int) -> tuple[int, int]:
    if template[index] != ".":
        return -1, index
    end = index + 1
    while end < len(template) and template[end].isascii() and template[end].isdigit():
        end += 1
    digits = template[index + 1 : end]
    prefix = f"{_CLAUSE}error while parsing precision: "
    if end >= len(template):
        raise FormatProblem(f"{prefix}could not find end of precision specifier")
    if not digits:
        raise FormatProblem(
            f'{prefix}error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
        )
    if len(digits) > 18:
        raise FormatProblem(
            f'{prefix}error while converting precision to integer: strconv.Atoi: parsing "{digits}": value out of range'
        )
    return min(int(digits), 10_000), end


def check_format(template: str, arguments: list[Type]) -> None:
    """Check a literal format against the types of its literal list of arguments; raises `FormatProblem`."""
    used = 0
    for _, verb, _ in pieces_of(template, len(arguments)):
        if not verb:
            continue
        problem = _type_problem(verb, arguments[used])
        if problem:
            raise FormatProblem(f"{_DURING}{problem}", used)
        used += 1
    if len(arguments) > used:
        raise FormatProblem(f"too many arguments supplied to string.format (expected {used}, got {len(arguments)})")


def _type_problem(verb: str, given: Type) -> str:
    if given.kind in ("dyn", "param", "error"):
        return ""
    allowed, complaint = _ALLOWED[verb]
    if given.kind not in allowed:
        return f"{complaint}{_LONG_NAMES.get(given.name, given.name)}"
    if given.kind in ("list", "map") and verb == "s":
        for inner in given.parameters:
            problem = _type_problem(verb, inner) if inner.kind != "any" else ""
            if problem:
                return problem
    return ""


_STRING_KINDS: Final = frozenset(
    ["string", "bool", "bytes", "int", "uint", "double", "map", "list", "type", "duration", "timestamp", "null"]
)
_INTEGERS: Final = frozenset({"int", "uint"})
_DOUBLES: Final = frozenset({"double", "string"})  # "NaN" is a text upstream had in mind
_LONG_NAMES: Final = {
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "null": "null_type",
    "any": "google.protobuf.Any",
}
_HEXADECIMAL: Final = frozenset({"int", "uint", "string", "bytes"})
_ALLOWED: Final = {
    "s": (_STRING_KINDS, _STRING_TYPES),
    "d": (_INTEGERS, "decimal clause can only be used on integers, was given "),
    "f": (_DOUBLES, "fixed-point clause can only be used on doubles, was given "),
    "e": (_DOUBLES, "scientific clause can only be used on doubles, was given "),
    "x": (_HEXADECIMAL, "only integers, byte buffers, and strings can be formatted as hex, was given "),
    "X": (_HEXADECIMAL, "only integers, byte buffers, and strings can be formatted as hex, was given "),
    "o": (_INTEGERS, "octal clause can only be used on integers, was given "),
    "b": (_INTEGERS | {"bool"}, "only integers and bools can be formatted as binary, was given "),
}


def _format(template: str, arguments: list[Any]) -> str:
    result: list[str] = []
    used = 0
    for text, verb, precision in pieces_of(template, len(arguments)):
        if not verb:
            result.append(text)
            continue
        result.append(_VERBS[verb](arguments[used], precision))
        used += 1
    return "".join(result)


def _given(value: Any) -> str:
    return type_name(value)


def value_text(value: Any) -> str:
    """A value as %s writes it; raises `FormatProblem` for types it does not know."""
    return _text(value)


def _text(value: Any, _: int = -1) -> str:
    kind = type(value)
    if kind is list:
        return "[" + ", ".join(_quoted(item) for item in value) + "]"
    if isinstance(value, dict):
        entries = sorted(
            (_key_text(key), _quoted(item)) for key, item in zip(keys_of(value), value.values(), strict=True)
        )
        return "{" + ", ".join(f"{key}:{item}" for key, item in entries) + "}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        return float_text(value)
    if kind is bytes:
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise FormatProblem(f"{_DURING}{_NOT_TEXT}") from None
    if value is None:
        return "null"
    if kind is Duration:
        return duration_text(value.nanos)
    if kind is Timestamp:
        return timestamp_text(value)
    if kind is TypeValue:
        return str(value.name)
    raise FormatProblem(f"{_DURING}{_STRING_TYPES}{_given(value)}")


def _quoted(value: Any) -> str:
    """A value inside a list or map."""
    kind = type(value)
    if kind is str:
        from drakkar.cel.libraries.strings import quote

        return quote(value)
    if kind is bytes:
        return f'b"{bytes(value).decode(errors="replace")}"'
    if kind is Duration:
        return f'duration("{duration_text(value.nanos)}")'
    if kind is Timestamp:
        return f'timestamp("{timestamp_text(value)}")'
    return _text(value)


def _key_text(key: Any) -> str:
    return _quoted(key)


def _decimal(value: Any, _: int) -> str:
    kind = type(value)
    if kind is int or kind is UInt:
        return str(int(value))
    raise FormatProblem(f"{_DURING}decimal clause can only be used on integers, was given {_given(value)}")


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


def _fixed(value: Any, precision: int) -> str:
    if type(value) is not float:
        raise FormatProblem(f"{_DURING}fixed-point clause can only be used on doubles, was given {_given(value)}")
    special = _special(value)
    if special is not None:
        return special
    places = 6 if precision < 0 else precision
    exact = Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN) if places <= 400 else Decimal(value)
    return f"{exact:,.{places}f}"


def _scientific(value: Any, precision: int) -> str:
    del precision  # upstream ignores it, too
    if type(value) is not float:
        raise FormatProblem(f"{_DURING}scientific clause can only be used on doubles, was given {_given(value)}")
    special = _special(value)
    if special is not None:
        return special
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    power = f"{'-' if exponent[0] == '-' else ''}{int(exponent[1:]):02d}"
    return f"{mantissa}×10{power.translate(_SUPERSCRIPT)}"


def _hex(upper: bool) -> Any:
    def convert(value: Any, _: int) -> str:
        kind = type(value)
        if kind is int or kind is UInt:
            text = f"{int(value):x}"
        elif kind is str:
            text = value.encode().hex()
        elif kind is bytes:
            text = value.hex()
        else:
            raise FormatProblem(
                f"{_DURING}only integers, byte buffers, and strings can be formatted as hex, was given {_given(value)}"
            )
        return text.upper() if upper else text

    return convert


def _octal(value: Any, _: int) -> str:
    kind = type(value)
    if kind is int or kind is UInt:
        return f"{int(value):o}"
    raise FormatProblem(f"{_DURING}octal clause can only be used on integers, was given {_given(value)}")


def _binary(value: Any, _: int) -> str:
    kind = type(value)
    if kind is bool:
        return "1" if value else "0"
    if kind is int or kind is UInt:
        return f"{int(value):b}"
    raise FormatProblem(f"{_DURING}only integers and bools can be formatted as binary, was given {_given(value)}")


_VERBS: Final = {
    "s": _text,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "x": _hex(upper=False),
    "X": _hex(upper=True),
    "o": _octal,
    "b": _binary,
}
