"""YAML bodies turned into JSON values as an API server does (sigs.k8s.io/yaml on YAML 1.1): first document only.

PyYAML's own resolver reads base-60 numbers, dates and sets, Go's does not; Go's reads `yes` and `on` as booleans and
`0o17` as a number, so the implicit types are written out here. Keys become strings, the key order is alphabetical (Go
marshals maps that way, and messages list unknown fields in that order), duplicate keys are reported with their line.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from functools import cache
from typing import Any, Final

__all__ = ["YamlError", "parse"]

_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL: Final = frozenset(["", "~", "null", "Null", "NULL"])
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_INFINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN: Final = "plain"
_QUOTED: Final = "quoted"
_TAG_OF: Final = {bool: "bool", int: "int", float: "float", type(None): "null"}
_BASES: Final = {"0x": 16, "0o": 8, "0b": 2}
MAX_NODES: Final = 1_000_000


class YamlError(ValueError):
    """The text is not YAML or not representable as JSON; the message follows Go's parser as far as Python's says it."""


def parse(body: bytes) -> tuple[Any, list[str]]:
    """The JSON value of the first document, and its duplicate keys as `line 12: key "a" already set in map`.

    Raises `YamlError`.
    """
    import yaml

    try:
        loader = _loader_class()(body.decode("utf-8", "replace"))
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


@cache
def _loader_class() -> Any:
    """A composer that resolves nothing itself, so that implicit types and written tags can be told apart."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Composer(base):  # type: ignore[misc]
        def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
            del value
            return _PLAIN if kind is yaml.ScalarNode and implicit[0] else _QUOTED

    return Composer


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
            if key_node.value == "<<" and key_node.tag in (_PLAIN, _TAG + "merge"):
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
    tag: str = node.tag
    text: str = node.value
    if tag == _PLAIN:
        return _plain(text)
    if not tag.startswith(_TAG) or tag in (_QUOTED, _TAG + "str"):
        return text
    if tag == _TAG + "binary":
        try:
            return base64.b64decode(text, validate=True).decode("utf-8", "replace")
        except binascii.Error:
            raise YamlError(
                "error converting YAML to JSON: yaml: !!binary value contains invalid base64 data"
            ) from None
    value, wanted = _plain(text), tag.removeprefix(_TAG)
    found = _TAG_OF.get(type(value), "str")
    if wanted == found or wanted not in _TAG_OF.values() or (wanted, found) == ("float", "int"):
        return float(value) if wanted == "float" else value
    raise YamlError(f"error converting YAML to JSON: yaml: cannot decode !!{found} `{text}` as a !!{wanted}")


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
    whole = _integer(plain)
    if whole is not None:
        return whole
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        return number if math.isfinite(number) else None
    return None


def _integer(text: str) -> int | float | None:
    """Go's ParseInt with base 0: prefixes 0x, 0o, 0b, and a plain 0 for octal numbers."""
    unsigned = text.lstrip("+-")
    base = _BASES.get(unsigned[:2].lower(), 8 if len(unsigned) > 1 and unsigned[0] == "0" else 10)
    if len(text) - len(unsigned) > 1 or not unsigned.isascii() or not unsigned.isalnum():
        return None
    try:
        number = int(text, base)
    except ValueError:
        return None
    return number if -(1 << 63) <= number < 1 << 64 else float(number)
