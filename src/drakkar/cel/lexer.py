"""Text to tokens: one regular expression, the longest alternative first, as the grammar of the CEL specification.

Tokens are (kind, text, position) tuples; the kind of an operator is the operator itself.
"""

from __future__ import annotations

import re
from typing import Final

from drakkar.cel.values import UInt

INT: Final = "NUM_INT"
UINT: Final = "NUM_UINT"
FLOAT: Final = "NUM_FLOAT"
STRING: Final = "STRING"
BYTES: Final = "BYTES"
IDENT: Final = "IDENTIFIER"
QUOTED_IDENT: Final = "ESC_IDENTIFIER"
END: Final = "<EOF>"

_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7][0-7])"
_TEXT: Final = "|".join(
    (
        rf'"""(?:[^\\]|{_ESCAPE})*?"""',
        rf"'''(?:[^\\]|{_ESCAPE})*?'''",
        r'[rR]"""(?:.|\n)*?"""',
        r"[rR]'''(?:.|\n)*?'''",
        rf'"(?:[^\\"\n\r]|{_ESCAPE})*"',
        rf"'(?:[^\\'\n\r]|{_ESCAPE})*'",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
    )
)
_BLANKS: Final = r"(?:[\t\n\f\r ]+|//[^\n]*)*+"  # possessive: blanks before a bad character are not divided anew
_ALTERNATIVES: Final = {
    FLOAT: r"[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?",
    UINT: r"(?:0x[0-9a-fA-F]+|[0-9]+)[uU]",
    INT: r"0x[0-9a-fA-F]+|[0-9]+",
    STRING: _TEXT,
    BYTES: rf"[bB](?:{_TEXT})",
    IDENT: r"[A-Za-z_][A-Za-z0-9_]*",
    QUOTED_IDENT: r"`[A-Za-z0-9_./\- ]+`",
    "operator": r"&&|\|\||[<>=!]=|[-+*/%<>!?:,.()\[\]{}]",
    "end": r"\Z",
}
_TOKEN: Final = re.compile(
    _BLANKS + "(?:" + "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _ALTERNATIVES.items()) + ")", re.DOTALL
)
# The same tokens, most frequent first, for all of a text at once: blanks, then one group per family.
_ALL: Final = re.compile(
    f"({_BLANKS})"
    r"""(?:((?!(?:[rR]|[bB][rR]?)['"])[A-Za-z_][A-Za-z0-9_]*)"""
    r"|(&&|\|\||[<>=!]=|[-+*/%<>!?:,()\[\]{}]|\.(?![0-9]))"
    f"|({_TEXT})|({_ALTERNATIVES[FLOAT]})|({_ALTERNATIVES[UINT]})|({_ALTERNATIVES[INT]})"
    f"|({_ALTERNATIVES[BYTES]})|({_ALTERNATIVES[QUOTED_IDENT]})|(.)|\\Z)",
    re.DOTALL,
)
_WORDS: Final = frozenset({"in", "true", "false", "null"})
_ESCAPES: Final = re.compile(_ESCAPE)
_CONTROL: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip


class LexicalError(Exception):
    """A position and what is wrong there."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


def tokens(text: str) -> list[tuple[str, str, int]]:
    """All tokens of the text, ending with one of kind `<EOF>`.

    Raises `LexicalError` at the first character that begins no token.
    """
    found: list[tuple[str, str, int]] = []
    position = 0
    for blanks, word, operator, string, double, uint, number, binary, quoted, bad in _ALL.findall(text):
        position += len(blanks)
        if word:
            found.append((word, word, position) if word in _WORDS else (IDENT, word, position))
            position += len(word)
        elif operator:
            found.append((operator, operator, position))
            position += len(operator)
        elif string:
            found.append((STRING, string, position))
            position += len(string)
        elif bad:
            return _one_by_one(text)
        else:
            for kind, rest in ((FLOAT, double), (UINT, uint), (INT, number), (BYTES, binary), (QUOTED_IDENT, quoted)):
                if rest:
                    found.append((kind, rest, position))
                    position += len(rest)
    found.append((END, END, len(text)))
    return found


def _one_by_one(text: str) -> list[tuple[str, str, int]]:
    """The tokens of a text in which some character begins none: finds the first of those."""
    found: list[tuple[str, str, int]] = []
    match = _TOKEN.match
    position = 0
    while True:
        token = match(text, position)
        if token is None:
            begin = _after_blanks(text, position)
            raise LexicalError(begin, f"Syntax error: token recognition error at: '{text[begin : begin + 2]}'")
        kind = token.lastgroup
        if kind == "end":
            found.append((END, END, len(text)))
            return found
        word = token.group(kind)  # type: ignore[arg-type]
        position = token.end()
        if kind == "operator" or word in _WORDS:
            found.append((word, word, position - len(word)))
        else:
            found.append((kind, word, position - len(word)))  # type: ignore[arg-type]


def string_value(text: str) -> str:
    """The value of a string literal.

    Raises `ValueError` with upstream's message for code points that are none.
    """
    raw = text[0] in "rR"
    body = _body(text[1:] if raw else text)
    if raw or "\\" not in body:
        return body
    return _ESCAPES.sub(_character, body)


def bytes_value(text: str) -> bytes:
    """The value of a bytes literal (with its leading b); characters beyond ASCII stand for their UTF-8 bytes.

    Raises `ValueError`: \\u and \\U name code points, not bytes.
    """
    text = text[1:]
    raw = text[0] in "rR"
    body = _body(text[1:] if raw else text)
    if raw or "\\" not in body:
        return body.encode()
    result = bytearray()
    position = 0
    for escape in _ESCAPES.finditer(body):
        result += body[position : escape.start()].encode()
        position = escape.end()
        code = escape.group()[1:]
        if code[0] in "uU":
            raise ValueError("unable to unescape string")
        if code in _CONTROL:
            result += _CONTROL[code].encode()
        else:
            result.append(int(code[1:], 16) if code[0] in "xX" else int(code, 8))
    return bytes(result + body[position:].encode())


def int_value(text: str) -> int:
    """The value of an integer literal, which may carry a minus sign; raises `ValueError` outside 64 bits."""
    digits = text.removeprefix("-")
    number = int(digits, 16) if digits.startswith("0x") else int(digits[:4000])
    if len(digits) != len(text):
        number = -number
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("invalid int literal")
    return number


def uint_value(text: str) -> UInt:
    """The value of an unsigned literal with its suffix; raises `ValueError` outside 64 bits."""
    digits = text[:-1]
    number = int(digits, 16) if digits.startswith("0x") else int(digits[:4000])
    if number >= 1 << 64:
        raise ValueError("invalid uint literal")
    return UInt(number)


def float_value(text: str) -> float:
    """The value of a double literal; raises `ValueError` where it is too large for a double."""
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("invalid double literal")
    return number


def _body(text: str) -> str:
    body = text[3:-3] if text[:3] in ('"""', "'''") and len(text) >= 6 else text[1:-1]
    return body.replace("\r\n", "\n").replace("\r", "\n") if "\r" in body else body


def _character(escape: re.Match[str]) -> str:
    code = escape.group()[1:]
    if code in _CONTROL:
        return _CONTROL[code]
    number = int(code[1:], 16) if code[0] in "xXuU" else int(code, 8)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise ValueError("invalid unicode code point")
    return chr(number)


def _after_blanks(text: str, position: int) -> int:
    blanks = re.compile(_BLANKS).match(text, position)
    return blanks.end() if blanks else position
