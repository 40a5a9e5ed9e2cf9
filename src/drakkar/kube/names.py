"""What Kubernetes accepts as names, labels and identifiers, and the sentences it answers with otherwise.

Two generations of the same rules exist upstream: the ones below, and relaxed or caseless variants for single fields.
Each function returns the complaints about a text, an empty list if there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

__all__ = [
    "c_identifier",
    "config_map_key",
    "dns_1035_label",
    "dns_label",
    "dns_subdomain",
    "dns_subdomain_caseless",
    "label_key",
    "label_value",
    "path_segment",
    "regex_complaint",
]

NameCheck = Callable[[str], list[str]]

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = LABEL + r"(\." + LABEL + ")*"
QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_LABEL: Final = re.compile(LABEL, re.ASCII)
_SUBDOMAIN: Final = re.compile(SUBDOMAIN, re.ASCII)
_CASELESS: Final = re.compile(SUBDOMAIN, re.ASCII | re.IGNORECASE)
_QUALIFIED: Final = re.compile(QUALIFIED, re.ASCII)
_C_IDENTIFIER: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DNS_1035: Final = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_CONFIG_KEY: Final = re.compile("[-._a-zA-Z0-9]+", re.ASCII)

_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
_CASELESS_WORDS: Final = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character"
)
_KEY_WORDS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character"
)
_C_WORDS: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_'"
)
_DNS_1035_WORDS: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)


def regex_complaint(words: str, pattern: str, *examples: str) -> str:
    """The sentence for a text that does not match, with examples and the expression."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{words} ({f'e.g. {shown}' if examples else ''}regex used for validation is '{pattern}')"


def dns_label(text: str, *, unit: str = "characters") -> list[str]:
    """A DNS label (RFC 1123): at most 63 lower-case characters; declarative checks say "bytes"."""
    found = [] if _bytes(text) <= 63 else [f"must be no more than 63 {unit}"]
    if not _LABEL.fullmatch(text):
        dotted = _SUBDOMAIN.fullmatch(text)
        found.append("must not contain dots" if dotted else regex_complaint(_LABEL_WORDS, LABEL, "my-name", "123-abc"))
    return found


def dns_subdomain(text: str, *, unit: str = "characters") -> list[str]:
    """A DNS subdomain (RFC 1123): at most 253 lower-case characters; declarative checks say "bytes"."""
    found = [] if _bytes(text) <= 253 else [f"must be no more than 253 {unit}"]
    if not _SUBDOMAIN.fullmatch(text):
        found.append(regex_complaint(_SUBDOMAIN_WORDS, SUBDOMAIN, "example.com"))
    return found


def dns_subdomain_caseless(text: str) -> list[str]:
    """A DNS subdomain in any case, as driver names are."""
    found = [] if _bytes(text) <= 253 else ["must be no more than 253 bytes"]
    if not _CASELESS.fullmatch(text):
        found.append(regex_complaint(_CASELESS_WORDS, SUBDOMAIN, "Example.com"))
    return found


def label_key(text: str) -> list[str]:
    """A label key: optional DNS prefix, then a name of at most 63 characters."""
    return list(_label_key(text))


@lru_cache(maxsize=1024)  # a cluster has few keys, each written with every object
def _label_key(text: str) -> list[str]:
    found: list[str] = []
    parts = text.split("/")
    if len(parts) > 2:
        words = regex_complaint(_KEY_WORDS, QUALIFIED, "MyName", "my.name", "123-abc")
        return [f"a valid label key {words} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    name = parts[-1]
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {complaint}" for complaint in dns_subdomain(parts[0], unit="bytes")]
    if not name:
        found.append("name part must be non-empty")
    elif _bytes(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(name):
        found.append(f"name part {regex_complaint(_KEY_WORDS, QUALIFIED, 'MyName', 'my.name', '123-abc')}")
    return found


def label_value(text: str) -> list[str]:
    """A label value: empty, or at most 63 characters."""
    found = [] if _bytes(text) <= 63 else ["must be no more than 63 bytes"]
    if text and not _QUALIFIED.fullmatch(text):
        found.append(regex_complaint(_VALUE_WORDS, f"({QUALIFIED})?", "MyValue", "my_value", "12345"))
    return found


def c_identifier(text: str) -> list[str]:
    """An identifier of the C language, as attribute names are."""
    if _C_IDENTIFIER.fullmatch(text):
        return []
    return [regex_complaint(_C_WORDS, "[A-Za-z_][A-Za-z0-9_]*", "my_name", "MY_NAME", "MyName")]


def dns_1035_label(text: str) -> list[str]:
    """A DNS label that starts with a letter (RFC 1035), as service names are."""
    found = [] if _bytes(text) <= 63 else ["must be no more than 63 characters"]
    if not _DNS_1035.fullmatch(text):
        found.append(regex_complaint(_DNS_1035_WORDS, "[a-z]([-a-z0-9]*[a-z0-9])?", "my-name", "abc-123"))
    return found


def config_map_key(text: str) -> list[str]:
    """A key of a ConfigMap or Secret."""
    found = [] if _bytes(text) <= 253 else ["must be no more than 253 characters"]
    if not _CONFIG_KEY.fullmatch(text):
        words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        found.append(regex_complaint(words, "[-._a-zA-Z0-9]+", "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        found.append(f"must not be '{text}'")
    elif text.startswith(".."):
        found.append("must not start with '..'")
    return found


def path_segment(text: str) -> list[str]:
    """A name that only has to fit into a URL, as those of roles and bindings."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in "/%" if part in text]


def prefix_of_generated(text: str) -> str:
    """A generateName in the form in which name rules apply to it (a trailing dash is fine)."""
    return text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
