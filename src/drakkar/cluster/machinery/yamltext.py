"""YAML bodies turned into JSON values as an API server does (sigs.k8s.io/yaml on YAML 1.1): first document only.

PyYAML's own resolver reads base-60 numbers, dates and sets, Go's does not; Go's reads `yes` and `on` as booleans and
`0o17` as a number, so the implicit types are written out here. Keys become strings, the key order is alphabetical (Go
marshals maps that way, and messages list unknown fields in that order), duplicate keys are reported with their line.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any, Final

__all__ = ["YamlError", "parse"]

_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL: Final = frozenset(["", "~", "null", "Null", "NULL"])
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INFINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAG: Final = "tag:yaml.org,2002:"
MAX_NODES: Final = 1_000_000


class YamlError(ValueError):
    """The text is not YAML or not representable as JSON; the message follows Go's parser as far as Python's says it."""


def parse(body: bytes) -> tuple[Any, list[str]]:
    """The JSON value of the first document, and its duplicate keys as `line 12: key "a" already set in map`.

    Raises `YamlError`.
    """
    import yaml

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(body.decode("utf-8", "replace"))
        try:
            node = loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise YamlError(_complaint(error)) from None
    except RecursionError:
        raise YamlError("error converting YAML to JSON: exceeded max depth") from None
    if node is None:
        return None, []
    reader = _Reader()
    try:
        value = reader.value(node)
    except RecursionError:
        raise YamlError("error converting YAML to JSON: exceeded max depth") from None
    return value, reader.duplicates


def _complaint(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return f"error converting YAML to JSON: yaml: {where}{problem}"


class _Reader:
    def __init__(self) -> None:
        self.duplicates: list[str] = []
        self.count = 0

    def value(self, node: Any) -> Any:
        self.count += 1
        if self.count > MAX_NODES:
            raise YamlError("error converting YAML to JSON: yaml: document contains excessive aliasing")
        if node.id == "scalar":
            return _scalar(node)
        if node.id == "sequence":
            return [self.value(item) for item in node.value]
        return self._mapping(node)

    def _mapping(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                raise YamlError("error converting YAML to JSON: unsupported map key of type: map")
            if key_node.tag == _TAG + "merge" or (key_node.value == "<<" and key_node.style is None):
                self._merge(value_node, merged)
                continue
            key = _key(_scalar(key_node))
            if key in found:
                self.duplicates.append(f'line {key_node.start_mark.line + 1}: key "{key}" already set in map')
            found[key] = self.value(value_node)
        combined = {**merged, **found}
        return {key: combined[key] for key in sorted(combined)}

    def _merge(self, node: Any, target: dict[str, Any]) -> None:
        for part in node.value if node.id == "sequence" else [node]:
            if part.id != "mapping":
                raise YamlError(
                    "error converting YAML to JSON: yaml: map merge requires map or sequence of maps as the value"
                )
            for key, value in self._mapping(part).items():
                target.setdefault(key, value)


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _scalar(node: Any) -> Any:
    text: str = node.value
    tag: str = node.tag
    if node.style is not None:  # quoted or block: a string unless tagged otherwise
        return _tagged(tag, text) if tag not in ("!", _TAG + "str") else text
    if tag.startswith(_TAG) or not tag.startswith("!"):
        explicit = tag == _TAG + "str" and _plain(text) != text and False
        return text if explicit else _plain(text)
    return text


def _tagged(tag: str, text: str) -> Any:
    if tag == _TAG + "binary":
        return base64.b64decode(text, validate=False).decode("utf-8", "replace")
    return _plain(text) if tag in (_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null") else text


def _plain(text: str) -> Any:
    """The implicit type of a plain scalar, by go-yaml's table."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text[0] in "+-.0123456789":
        number = _number(text)
        if number is not None:
            return number
        if _INFINITE.fullmatch(text):
            raise YamlError(f"error converting YAML to JSON: json: unsupported value: {text}")
    return text


def _number(text: str) -> int | float | None:
    plain = text.replace("_", "")
    for prefix, base in (("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2), ("0o", 8), ("0O", 8)):
        if plain.lstrip("+-").startswith(prefix):
            return _integer(plain, base)
    unsigned = plain.lstrip("+-")
    if unsigned.isascii() and unsigned.isdigit():
        octal = len(unsigned) > 1 and unsigned[0] == "0"
        return (_integer(plain, 8) if octal else _integer(plain, 10)) if not octal or "8" not in unsigned else None
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        return number if math.isfinite(number) else None
    return None


def _integer(text: str, base: int) -> int | float | None:
    try:
        number = int(text, base)
    except ValueError:
        return None
    return number if -(1 << 63) <= number < 1 << 64 else float(number)
