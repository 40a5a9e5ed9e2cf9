"""Validation errors as values: where, what kind, which value, and the one way they become a Status.

Same model as Kubernetes' field errors, so that the texts that users and controllers match on come out equal: each error
becomes a cause, all of them the message. A server joins hand-written and declarative checks (KEP-5073); `covered` and
`origin` decide which of two findings about the same field survives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

__all__ = [
    "FieldError",
    "duplicate",
    "forbidden",
    "internal",
    "invalid",
    "invalid_status",
    "not_found",
    "not_supported",
    "required",
    "too_long",
    "too_many",
]

INVALID: Final = "FieldValueInvalid"
REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
DUPLICATE: Final = "FieldValueDuplicate"
NOT_FOUND: Final = "FieldValueNotFound"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"
TOO_FEW: Final = "FieldValueTooFew"
TOO_SHORT: Final = "FieldValueTooShort"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
INTERNAL: Final = "InternalError"

_WORDS: Final = {
    INVALID: "Invalid value", REQUIRED: "Required value", FORBIDDEN: "Forbidden", NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value", NOT_FOUND: "Not found", TOO_LONG: "Too long", TOO_MANY: "Too many",
    TOO_FEW: "Too few",
    TOO_SHORT: "Too short", TYPE_INVALID: "Invalid value", INTERNAL: "Internal error",
}  # fmt: skip
_WITHOUT_VALUE: Final = frozenset({REQUIRED, FORBIDDEN, TOO_LONG, TOO_SHORT, INTERNAL})


@dataclass(slots=True)
class FieldError:
    """One thing wrong with one field.

    `type` is the reason of the cause, `field` the path (`spec.devices[0].name`), `bad_value` the JSON value.
    """

    type: str
    field: str
    detail: str = ""
    bad_value: Any = None
    origin: str = ""
    covered: bool = False
    omitted: bool = False
    """The value is not told: it is too large to help anybody."""

    @property
    def body(self) -> str:
        """The message without the field, e.g. `Invalid value: "X": must be lower case`."""
        text = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE and not self.omitted:
            text += f": {_shown(self.bad_value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> dict[str, str]:
        """The error as a cause of a Status."""
        return {"reason": self.type, "message": self.body, "field": self.field}


def invalid(field: str, value: Any, detail: str, *, origin: str = "", covered: bool = False) -> FieldError:
    """A value that is malformed or out of bounds."""
    return FieldError(INVALID, field, detail, value, origin, covered)


def required(field: str, detail: str = "", *, origin: str = "", covered: bool = False) -> FieldError:
    """A value that must be there."""
    return FieldError(REQUIRED, field, detail, "", origin, covered)


def forbidden(field: str, detail: str = "") -> FieldError:
    """A value that is well-formed but not permitted here."""
    return FieldError(FORBIDDEN, field, detail, "")


def not_supported(field: str, value: Any, supported: Iterable[str], *, covered: bool = False) -> FieldError:
    """A value outside an enumeration."""
    listed = ", ".join(quote(item) for item in supported)
    return FieldError(NOT_SUPPORTED, field, f"supported values: {listed}" if listed else "", value, "", covered)


def duplicate(field: str, value: Any, *, covered: bool = False) -> FieldError:
    """A value that another entry has already."""
    return FieldError(DUPLICATE, field, "", value, "", covered)


def not_found(field: str, value: Any) -> FieldError:
    """A reference to something that is not there."""
    return FieldError(NOT_FOUND, field, "", value)


def too_long(field: str, limit: int, *, origin: str = "", covered: bool = False, unit: str = "byte") -> FieldError:
    """A text of more than `limit` bytes (or `unit` "character")."""
    detail = f"may not be more than {limit} {unit}{'' if limit == 1 else 's'}"
    return FieldError(TOO_LONG, field, detail, "<value omitted>", origin, covered)


def too_many(field: str, actual: int, limit: int, *, covered: bool = False) -> FieldError:
    """A list or map with more than `limit` entries."""
    detail = f"must have at most {limit} item{'' if limit == 1 else 's'}"
    return FieldError(TOO_MANY, field, detail, actual, "maxItems", covered)


def internal(field: str, detail: str) -> FieldError:
    """Something the server could not decide."""
    return FieldError(INTERNAL, field, detail)


def invalid_status(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> dict[str, Any]:
    """The 422 Status for an object with these errors, causes in the given order."""
    qualified = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": list({(error.field, error.body): error.cause() for error in errors}.values()),
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{qualified} "{name}" is invalid{_joined(errors)}',
        "reason": "Invalid",
        "details": {key: value for key, value in details.items() if value},
        "code": 422,
    }


def quote(text: str) -> str:
    """The text as Go's %q prints it."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    escaped = []
    for character in text:
        code = ord(character)
        if character in _ESCAPES:
            escaped.append(_ESCAPES[character])
        elif code < 0x20 or code == 0x7F:
            escaped.append(f"\\x{code:02x}")
        elif not character.isprintable():
            escaped.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
        else:
            escaped.append(character)
    return f'"{"".join(escaped)}"'


_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v",
}  # fmt: skip


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode()


def _joined(errors: Sequence[FieldError]) -> str:
    messages = list(dict.fromkeys(str(error) for error in errors))
    if not messages:
        return ""
    return f": {messages[0]}" if len(messages) == 1 else f": [{', '.join(messages)}]"
