"""YAML read as Kubernetes reads it: what sigs.k8s.io/yaml makes of YAML 1.1, with places where they are wanted.

PyYAML's own resolver reads base-60 numbers, dates and sets, Go's does not; Go's reads `yes` and `on` as booleans and
`0o17` as a number, so the implicit types are written out here. Keys become strings. libyaml composes the nodes, which
know their line and column; values are made of them here, so that API bodies, manifests under review, bundles and
kubeconfigs cannot disagree. Aliases that multiply, cycles, and keys that are there twice end in a `YamlError`.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

__all__ = ["Tree", "YamlError", "load", "parse", "trees"]

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
_CONVERTING: Final = "error converting YAML to JSON: "
MAX_NODES: Final = 1_000_000


class YamlError(ValueError):
    """The text is not YAML or not representable as JSON; the message follows Go's parser as far as Python's says it.

    Attributes:
        problem: the same without Go's preamble and place.
        line, column: where, counted from 1; 0 if that is not known.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0, *, parser: bool = True) -> None:
        where = f"line {line}: " if line and parser else ""
        super().__init__(_CONVERTING + ("yaml: " if parser else "") + where + problem)
        self.problem = problem
        self.line = line
        self.column = column


class Tree(NamedTuple):
    """One document: its JSON value, the node it is made of (PyYAML's, with marks), and the line it begins at."""

    value: Any
    node: Any
    line: int


def parse(body: bytes) -> tuple[Any, list[str]]:
    """The JSON value of the first document, and its duplicate keys as `line 12: key "a" already set in map`.

    Keys are in alphabetical order: Go marshals maps that way, and messages list unknown fields in it.

    Raises `YamlError`.
    """
    node = next(_nodes(body.decode("utf-8", "replace")), None)
    if node is None:
        return None, []
    reader = _Reader(ordered=True)
    return reader.document(node), reader.duplicates


def load(text: str | bytes) -> Any:
    """The value of the first document, None if there is none. Raises `YamlError`, also for a key that is doubled."""
    return next((tree.value for tree in trees(text)), None)


def trees(text: str | bytes, *, duplicates: bool = False) -> Iterator[Tree]:
    """Every document in turn, keys in the order they are written.

    Args:
        duplicates: take the last of keys that are there twice instead of refusing them.

    Raises `YamlError` at the first document that is broken; those before it have been given by then.
    """
    for node in _nodes(text if isinstance(text, str) else text.decode("utf-8", "replace")):
        reader = _Reader()
        value = reader.document(node)
        if reader.duplicates and not duplicates:
            where, _, problem = reader.duplicates[0].partition(": ")
            raise YamlError(problem, int(where.removeprefix("line ")))
        yield Tree(value, node, node.start_mark.line + 1)


def _nodes(text: str) -> Iterator[Any]:
    import yaml

    try:
        loader = _loader_class()(text)
        try:
            while loader.check_node():
                yield loader.get_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _complaint(error) from None
    except RecursionError:
        raise YamlError("exceeded max depth", parser=False) from None


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


def _complaint(error: Exception) -> YamlError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return YamlError(problem, mark.line + 1, mark.column + 1) if mark is not None else YamlError(problem)


class _Reader:
    """Makes the value of one document."""

    def __init__(self, *, ordered: bool = False) -> None:
        self.duplicates: list[str] = []
        self._count = 0
        self._ordered = ordered

    def document(self, node: Any) -> Any:
        try:
            return self._value(node)
        except RecursionError:
            raise YamlError("exceeded max depth", node.start_mark.line + 1, parser=False) from None

    def _value(self, node: Any) -> Any:
        kind = node.id
        if kind == "scalar":
            if node.tag != _PLAIN:
                return _scalar(node)
            return _plain(node.value)
        children = node.value
        self._count += 1 + len(children)
        if self._count > MAX_NODES:
            raise YamlError("document contains excessive aliasing")
        if kind == "sequence":
            return [self._value(item) for item in children]
        return self._mapping(children)

    def _mapping(self, pairs: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in pairs:
            if key_node.id != "scalar":
                place = key_node.start_mark
                raise YamlError("unsupported map key of type: map", place.line + 1, place.column + 1, parser=False)
            if key_node.value == "<<" and key_node.tag in (_PLAIN, _TAG + "merge"):
                self._merge(value_node, merged)
                continue
            key = _plain_key(key_node.value) if key_node.tag == _PLAIN else _key(_scalar(key_node))
            if key in found:
                self.duplicates.append(f'line {key_node.start_mark.line + 1}: key "{key}" already set in map')
            found[key] = self._value(value_node)
        combined = {**merged, **found} if merged else found
        return {key: combined[key] for key in sorted(combined)} if self._ordered else combined

    def _merge(self, node: Any, target: dict[str, Any]) -> None:
        for part in node.value if node.id == "sequence" else [node]:
            if part.id != "mapping":
                raise YamlError("map merge requires map or sequence of maps as the value")
            for key, value in self._mapping(part.value).items():
                target.setdefault(key, value)


@lru_cache(maxsize=8192)
def _plain_key(text: str) -> str:
    return _key(_plain(text))


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
            raise YamlError("!!binary value contains invalid base64 data") from None
    value, wanted = _plain(text), tag.removeprefix(_TAG)
    found = _TAG_OF.get(type(value), "str")
    if wanted == found or wanted not in _TAG_OF.values() or (wanted, found) == ("float", "int"):
        return float(value) if wanted == "float" else value
    raise YamlError(f"cannot decode !!{found} `{text}` as a !!{wanted}")


@lru_cache(maxsize=8192)
def _plain(text: str) -> Any:
    """The implicit type of a plain scalar, by go-yaml's table; most of a manifest's are there many times."""
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
            raise YamlError(f"json: unsupported value: {text}", parser=False)
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
