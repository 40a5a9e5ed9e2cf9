"""The string functions (cel-go's strings extension, version 2); positions count code points."""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel.libraries.format_strings import format_string
from drakkar.cel.natives import printed
from drakkar.cel.signatures import Library
from drakkar.cel.values import Failure, size_of, tenth

# What Go's strings.TrimSpace removes, and Python's strip() does not agree with.
_BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
        "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
    }
)  # fmt: skip
_LARGEST: Final = 16_000_000
_TOO_LARGE: Final = "operation cancelled: result of %s exceeds the size limit"


def _out_of_range(position: int) -> Failure:
    return Failure(f"index out of range: {position}")


def _char_at(text: str, index: int) -> Any:
    if index < 0 or index > len(text):
        return _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str) -> int:
    return text.find(part)


def _index_of_from(text: str, part: str, start: int) -> Any:
    if start < 0:
        return _out_of_range(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_of_until(text: str, part: str, start: int) -> Any:
    if start < 0:
        return _out_of_range(start)
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> Any:
    if count == 0:
        return text
    found = text.count(old) if old else len(text) + 1
    if count > 0:
        found = min(found, count)
    if len(text) + found * max(len(new) - len(old), 0) > _LARGEST:
        return Failure(_TOO_LARGE % "replace")
    return text.replace(old, new, found)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if count == 1 and (text or separator):
        return [text]
    if not separator:
        parts = list(text)
        if 0 < count < len(parts):
            parts = [*parts[: count - 1], "".join(parts[count - 1 :])]
        return parts
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring_from(text: str, start: int) -> Any:
    if start < 0 or start > len(text):
        return _out_of_range(start)
    return text[start:]


def _substring(text: str, start: int, end: int) -> Any:
    if start > end:
        return Failure(f"invalid substring range. start: {start}, end: {end}")
    if start < 0 or start > len(text):
        return _out_of_range(start)
    if end < 0 or end > len(text):
        return _out_of_range(end)
    return text[start:end]


def _join(parts: list[Any], separator: str = "") -> Any:
    for part in parts:
        if type(part) is not str:
            return Failure(f"join: invalid input: {printed(part)}")
    if sum(map(len, parts)) + len(separator) * len(parts) > _LARGEST:
        return Failure(_TOO_LARGE % "join")
    return separator.join(parts)


def quote(text: str) -> str:
    """The text in double quotes, its control characters escaped."""
    return '"' + text.translate(_QUOTED) + '"'


def _walk(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0]))


def _walk_twice(arguments: Any, _: Any) -> int:
    product = size_of(arguments[0]) * 2 * 0.1
    return int(product) if product == int(product) else int(product) + 1


def _result_twice(_: Any, result: Any) -> int:
    product = size_of(result) * 2 * 0.1
    return int(product) if product == int(product) else int(product) + 1


STRINGS: Final = Library(
    name="strings",
    declarations="""
string.charAt(int) -> string    string_char_at_int
string.format(list(dyn)) -> string    string_format
string.indexOf(string) -> int    string_index_of_string
string.indexOf(string, int) -> int    string_index_of_string_int
list(string).join() -> string    list_join
list(string).join(string) -> string    list_join_string
string.lastIndexOf(string) -> int    string_last_index_of_string
string.lastIndexOf(string, int) -> int    string_last_index_of_string_int
string.lowerAscii() -> string    string_lower_ascii
string.replace(string, string) -> string    string_replace_string_string
string.replace(string, string, int) -> string    string_replace_string_string_int
string.split(string) -> list(string)    string_split_string
string.split(string, int) -> list(string)    string_split_string_int
strings.quote(string) -> string    strings_quote
string.substring(int) -> string    string_substring_int
string.substring(int, int) -> string    string_substring_int_int
string.trim() -> string    string_trim
string.upperAscii() -> string    string_upper_ascii
""",
    implementations={
        "string_char_at_int": _char_at,
        "string_format": format_string,
        "string_index_of_string": _index_of,
        "string_index_of_string_int": _index_of_from,
        "list_join": _join,
        "list_join_string": _join,
        "string_last_index_of_string": _last_index_of,
        "string_last_index_of_string_int": _last_index_of_until,
        "string_lower_ascii": lambda text: text.lower() if text.isascii() else text.translate(_LOWER),
        "string_replace_string_string": _replace,
        "string_replace_string_string_int": _replace,
        "string_split_string": _split,
        "string_split_string_int": _split,
        "strings_quote": quote,
        "string_substring_int": _substring_from,
        "string_substring_int_int": _substring,
        "string_trim": lambda text: text.strip(_BLANKS),
        "string_upper_ascii": lambda text: text.upper() if text.isascii() else text.translate(_UPPER),
    },
    prices={"string_format": _walk, "strings_quote": _walk},
    function_prices={
        **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _walk),
        **dict.fromkeys(("replace", "split"), _walk_twice),
        "join": _result_twice,
    },
)
