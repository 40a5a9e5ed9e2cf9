"""From YAML or JSON text to a tree of nodes that still know their line, their tag and their spelling.

PyYAML's loader is not used beyond its event stream, since it would read ``1:0`` as sixty, keep the last of two equal
keys and refuse a redefined anchor. Here the first document is composed without recursion (a hostile file may nest ten
thousand deep), aliases share the node they name, and a text that names itself is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from .errors import CdiError, Problem
from .scalars import short_tag
from .spec import MAX_BYTES

__all__ = ["MAPPING", "SCALAR", "SEQUENCE", "Document", "Node", "compose", "locate"]

SCALAR: Final = 0
SEQUENCE: Final = 1
MAPPING: Final = 2
MAX_DEPTH: Final = 10_000
_ALIAS_FREE_VISITS: Final = 400_000  # the reference library's bounds against billion-laughs documents
_ALIAS_MAX_VISITS: Final = 4_000_000

Node = tuple[int, str, Any, bool, Any]
"""(kind, short tag or "", text or flat list of child nodes, written in quotes, mark with line and column from 0)."""


class Document(NamedTuple):
    """The first document of a text: its root (None: no document at all) and whether more text follows it."""

    root: Node | None
    trailing: bool
    trailing_place: tuple[int, int]


def compose(text: bytes, *, json_escapes: bool, file: str = "") -> Document:
    """Composes the first document of ``text``.

    Args:
        text: UTF-8, or UTF-16 with a byte order mark.
        json_escapes: accept ``\\/`` and surrogate pairs, which JSON allows and YAML 1.1 does not.
        file: for messages.

    Raises:
        CdiError: not YAML, too large, too deep, a cycle, or aliases that multiply beyond measure.
    """
    if len(text) > MAX_BYTES:
        raise _error(f"the file has {len(text)} bytes, more than the {MAX_BYTES} a CDI specification may have", file)
    if json_escapes and b"\\u" in text:
        text = _join_surrogates(text)
    import yaml

    events = _events(text)
    try:
        return _compose(events, yaml, text, json_escapes, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise _error(f"not valid YAML: {message}", file, place) from None
    except yaml.YAMLError as error:
        raise _error(f"not valid YAML: {_reader_message(error)}", file) from None
    except (UnicodeError, ValueError) as error:
        raise _error(f"not valid YAML: {error}", file) from None


def locate(root: Node, path: tuple[str | int, ...]) -> tuple[int, int]:
    """Line and column, from 1, of the value at ``path``; of the deepest part of it that the text holds."""
    mark = root[4]
    node = root
    for step in path:
        found = _child(node, step)
        if found is None:
            break
        node = found
        mark = node[4]
    return mark.line + 1, mark.column + 1


def _compose(events: Iterator[Any], yaml: Any, text: bytes, json_escapes: bool, file: str) -> Document:
    anchors: dict[str, Node] = {}
    open_anchors: set[str] = set()
    aliased = False
    stack: list[tuple[list[Node], str]] = []
    top: list[Node] = []
    content, anchor = top, ""
    scalar, alias = yaml.ScalarEvent, yaml.AliasEvent
    mapping, sequence = yaml.MappingStartEvent, yaml.SequenceStartEvent
    mapping_end, sequence_end = yaml.MappingEndEvent, yaml.SequenceEndEvent
    slashes = not json_escapes and b"\\/" in text

    for event in events:
        kind = type(event)
        if kind is scalar:
            tag = event.tag
            style = event.style
            node: Node = (SCALAR, short_tag(tag) if tag else "", event.value, bool(style), event.start_mark)
            if slashes and style == '"':
                _refuse_escaped_slash(text, event, file)
            content.append(node)
            if event.anchor:
                anchors[event.anchor] = node
        elif kind is mapping or kind is sequence:
            tag = event.tag
            children: list[Node] = []
            node = (
                MAPPING if kind is mapping else SEQUENCE,
                short_tag(tag) if tag else "",
                children,
                False,
                event.start_mark,
            )
            content.append(node)
            stack.append((content, anchor))
            if len(stack) > MAX_DEPTH:
                raise _error(f"nested more than {MAX_DEPTH} deep", file, _place(event))
            content, anchor = children, event.anchor or ""
            if anchor:
                anchors[anchor] = node
                open_anchors.add(anchor)
        elif kind is mapping_end or kind is sequence_end:
            open_anchors.discard(anchor)
            content, anchor = stack.pop()
        elif kind is alias:
            name = event.anchor
            if name not in anchors:
                raise _error(f"unknown anchor `{name}` referenced", file, _place(event))
            if name in open_anchors:
                raise _error(f"anchor `{name}` contains itself", file, _place(event))
            aliased = True
            content.append(anchors[name])
        elif kind is yaml.DocumentStartEvent:
            if event.version and tuple(event.version) != (1, 1):
                raise _error("found incompatible YAML document: only %YAML 1.1 is read", file, _place(event))
        elif kind is yaml.DocumentEndEvent:
            break
    if aliased and top:
        _check_aliases(top[0], file)
    trailing, place = _trailing(events, yaml) if top else (False, (0, 0))
    return Document(top[0] if top else None, trailing, place)


def _events(text: bytes) -> Iterator[Any]:
    """The event stream of libyaml where PyYAML was built with it, else of its Python twin."""
    try:
        from yaml._yaml import CParser
    except ImportError:
        import yaml

        parser: Any = yaml.SafeLoader(text)
        while parser.check_event():
            yield parser.get_event()
        return
    import yaml

    get, end = CParser(text).get_event, yaml.StreamEndEvent
    event = get()
    while type(event) is not end:
        yield event
        event = get()


def _trailing(events: Iterator[Any], yaml: Any) -> tuple[bool, tuple[int, int]]:
    try:
        for event in events:
            return True, _place(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return True, (mark.line + 1, mark.column + 1) if mark else (0, 0)
    except (yaml.YAMLError, ValueError):
        return True, (0, 0)
    return False, (0, 0)


def _check_aliases(root: Node, file: str) -> None:
    """Refuses a document whose aliases would multiply it, by the ratio the reference library allows."""
    visits: dict[int, int] = {}
    own = 0
    pending: list[tuple[Node, bool]] = [(root, False)]
    while pending:
        node, done = pending.pop()
        key = id(node)
        if done:
            visits[key] = 1 + sum(visits[id(child)] for child in node[2])
        elif key not in visits:
            own += 1
            if node[0] == SCALAR:
                visits[key] = 1
            else:
                pending.append((node, True))
                pending.extend((child, False) for child in node[2])
    total = visits[id(root)]
    extra = total - own
    if total <= _ALIAS_FREE_VISITS:
        allowed = 0.99
    elif total >= _ALIAS_MAX_VISITS:
        allowed = 0.10
    else:
        allowed = 0.99 - 0.89 * (total - _ALIAS_FREE_VISITS) / (_ALIAS_MAX_VISITS - _ALIAS_FREE_VISITS)
    if extra > 100 and total > 1000 and extra / total > allowed:
        raise _error("document contains excessive aliasing", file)


def _child(node: Node, step: str | int) -> Node | None:
    kind, _, value, _, _ = node
    if kind == SEQUENCE and isinstance(step, int):
        return value[step] if step < len(value) else None
    if kind != MAPPING:
        return None
    merged: list[Node] = []
    for key, child in zip(value[::2], value[1::2], strict=True):
        if key[2] == step:
            return child  # type: ignore[no-any-return]
        if key[2] == "<<":
            merged.append(child)
    for child in merged:
        for source in child[2] if child[0] == SEQUENCE else (child,):
            found = _child(source, step)
            if found is not None:
                return found
    return None


_SURROGATES: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _join_surrogates(text: bytes) -> bytes:
    def joined(match: re.Match[bytes]) -> bytes:
        high, low = int(match[2], 16), int(match[3], 16)
        return match[1] + b"\\U%08X" % (0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    return _SURROGATES.sub(joined, text)


_ESCAPED_SLASH: Final = re.compile(r"(?<!\\)(?:\\\\)*\\/")


def _refuse_escaped_slash(text: bytes, event: Any, file: str) -> None:
    encoding = "utf-16" if text[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    quoted = text.decode(encoding)[event.start_mark.index : event.end_mark.index]
    if _ESCAPED_SLASH.search(quoted):
        raise _error("not valid YAML: found unknown escape character `\\/`", file, _place(event))


def _reader_message(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _place(event: Any) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _error(message: str, file: str, place: tuple[int, int] = (0, 0)) -> CdiError:
    return CdiError.of([Problem(message, (), *place)], file=file, reason="NotYaml")
