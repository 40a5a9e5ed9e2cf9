"""String.format(): the verbs %s %d %f %e %x %X %o %b (cel-go's strings extension, version 2, English locale).

%f groups thousands with commas and %e writes "1.234500×10⁰³": upstream formats numbers for people (Go's x/text).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from drakkar.cel.expressions import ListNode, MapNode, Node
from drakkar.cel.libraries.conversions import float_text
from drakkar.cel.libraries.times import duration_text, timestamp_text
from drakkar.cel.types import unwrapped
from drakkar.cel.values import INT_MAX, Duration, Failure, Timestamp, TypeValue, UInt, keys_of, type_name

_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_CLAUSE: Final = "could not parse formatting clause: "
_DURING: Final = "error during formatting: "
_NOT_TEXT: Final = 'could not convert argument "invalid UTF-8 in bytes, cannot convert to string" to string'
_STRING_TYPES: Final = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps, was given "
)


_MOST: Final = 10_000_009
"""The greatest precision that Go's printer reads; of what follows a greater one it finds no verb."""
_NO_VERB: Final = "%!(NOVERB)"
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class FormatProblem(Exception):
    """What is wrong with a format or an argument, and the expression at fault if it is one of the arguments."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


def format_string(template: str, arguments: list[Any]) -> Any:
    """The formatted text, or upstream's error."""
    try:
        return _format(template, arguments)
    except FormatProblem as problem:
        return Failure(str(problem))


def pieces_of(template: str, arguments: int, *, checked: bool = False) -> Iterator[tuple[str, str, int]]:
    """The pieces of a format, one by one: (literal text, "", 0) or ("", verb, precision); raises `FormatProblem`.

    A precision of -1 stands for none. Whether one of so many `arguments` is left is asked before a clause is read, and
    a clause is read after those before it were used, since upstream tells the first problem on that way. Where a format
    is only `checked`, its end is looked at before.
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
        if used >= arguments and not (checked and index >= len(template)):
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
    digits = digits.lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > INT_MAX:
        raise FormatProblem(
            f"{prefix}error while converting precision to integer: strconv.Atoi: parsing "
            f'"{template[index + 1 : end]}": value out of range'
        )
    return int(digits), end


def check_format(template: str, arguments: Sequence[Node]) -> None:
    """Check a literal format against the expressions in its literal list of arguments; raises `FormatProblem`."""
    used = 0
    for _, verb, _ in pieces_of(template, len(arguments), checked=True):
        if not verb:
            continue
        wrong = _misfit(verb, arguments[used])
        if wrong is not None:
            name = unwrapped(wrong.type).name
            raise FormatProblem(f"{_DURING}{_ALLOWED[verb][1]}{_LONG_NAMES.get(name, name)}", wrong)
        used += 1
    if len(arguments) > used:
        raise FormatProblem(f"too many arguments supplied to string.format (expected {used}, got {len(arguments)})")


def _misfit(verb: str, node: Node) -> Node | None:
    """The expression that a verb cannot show: this one, or for %s one of those written in it."""
    kind = unwrapped(node.type).kind
    if kind not in ("dyn", "param", "error") and kind not in _ALLOWED[verb][0]:
        return node
    if verb != "s":
        return None
    parts: Iterable[Node] = ()
    if isinstance(node, ListNode):
        parts = node.elements
    elif isinstance(node, MapNode):
        parts = (part for entry in node.entries for part in entry[:2])
    return next(filter(None, (_misfit(verb, part) for part in parts)), None)


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
    if type(value) is list:
        return "[" + ", ".join(map(_inner, value)) + "]"
    if isinstance(value, dict):
        entries = [(_key_text(key), _inner(item)) for key, item in zip(keys_of(value), value.values(), strict=True)]
        return "{" + ", ".join(f"{key}:{item}" for key, item in sorted(entries)) + "}"
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


def _inner(value: Any) -> str:
    """A value inside a list or map, as an expression would write it."""
    kind = type(value)
    if kind is str:
        return _quoted(value)
    if kind is bytes:
        return f"b{_quoted(_scalar(value))}"
    if kind is float:
        if math.isfinite(value):
            return f"{value:.6f}"
        return '"NaN"' if math.isnan(value) else '"+Inf"' if value > 0 else '"-Inf"'
    if kind is Duration:
        return f'duration("{duration_text(value.nanos)}")'
    if kind is Timestamp:
        return f'timestamp("{timestamp_text(value)}")'
    try:
        return _text(value)
    except FormatProblem as problem:
        if str(problem).startswith(f"{_DURING}{_STRING_TYPES}"):
            raise FormatProblem(f"{_DURING}no formatting function for {_given(value)}") from None
        raise


def _key_text(key: Any) -> str:
    if type(key) not in (str, bool, int, UInt):
        raise FormatProblem(f"{_DURING}no formatting function for map key of type {_given(key)}")
    return _inner(key)


def _quoted(text: str) -> str:
    """A text as Go quotes it (strconv.Quote)."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    known = _ESCAPES.get(character)
    if known is not None:
        return known
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES: Final = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", '"': r"\"", "\\": r"\\",
}  # fmt: skip


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


def _number(value: Any, verb: str) -> float:
    if type(value) is str and value in _WORDS:
        return _WORDS[value]
    if type(value) is not float:
        raise FormatProblem(f"{_DURING}{_ALLOWED[verb][1]}{_given(value)}")
    return value or 0.0  # the zero below zero has no sign


def _fixed(value: Any, precision: int) -> str:
    """Go's printer for people keeps the least number of decimals in 8 bits, the greatest in 16 with a sign: beyond that
    it writes as many as it needs.
    """
    number = _number(value, "f")
    wanted = 6 if precision < 0 else precision
    if wanted > _MOST:
        return _NO_VERB
    special = _special(number)
    if special is not None:
        return special
    least, most = wanted & 0xFF, wanted & 0xFFFF
    text = f"{number:,.{most}f}" if most < 0x8000 else format(Decimal(repr(number)), ",f")
    whole, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0").ljust(least, "0")
    return f"{whole}.{decimals}" if decimals else whole


def _scientific(value: Any, precision: int) -> str:
    """Upstream takes the precision for a width, of which Go's printer keeps 16 bits."""
    number = _number(value, "e")
    width = 6 if precision < 0 else precision
    if width > _MOST:
        return _NO_VERB
    shown = _special(number)
    if shown is None:
        mantissa, _, exponent = f"{number:.6e}".partition("e")
        power = f"{'-' if exponent[0] == '-' else ''}{int(exponent[1:]):02d}"
        shown = f"{mantissa}×10{power.translate(_SUPERSCRIPT)}"
    return shown.rjust(width & 0xFFFF)


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
