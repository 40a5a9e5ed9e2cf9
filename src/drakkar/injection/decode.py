"""From nodes to values: every field of the specification with its type, every mismatch with its place.

The reading rules are those of the reference library 1.1.2: text fields keep the text of a plain scalar, number fields
take the YAML spellings, merge keys fill what the mapping itself leaves out, all mistakes of a document come together.
Where the library is careless (null elements dropped, fractions cut off, null keys skipped) ``compat`` does the same
and the default reports a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from .errors import CdiError, Problem
from .model import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec
from .nodes import MAPPING, SCALAR, SEQUENCE, Node, locate
from .scalars import FALSE_WORDS, NULL_WORDS, TRUE_WORDS, Tagged, decode_binary, resolve

__all__ = ["NoPlaceError", "decode"]

Path = tuple[str | int, ...]
Reader = Callable[["_Reading", Node, Path], Any]

_WRONG: Final[Any] = object()  # a problem was recorded instead of a value
_SHOWN_TEXT: Final = 60


def decode(
    root: Node, *, compat: bool, file: str = "", rules: Callable[[Spec], Iterable[Problem]] | None = None
) -> tuple[Spec | None, list[Problem]]:
    """The specification in ``root`` (None: a null document) and the null elements left out of it (none in ``compat``).

    ``rules`` is asked about a document with mismatches, too, so that one look shows everything that is wrong.

    Raises:
        CdiError: with every mismatch in the document, and what ``rules`` finds in the rest of it.
    """
    reading = _Reading(compat, [], [], file, [])
    spec = _SPEC(reading, root, ())
    if reading.problems:
        found = [*reading.problems, *reading.nulls]
        if rules is not None and isinstance(spec, Spec) and not reading.dropped and not reading.nulls:
            found += _apart_from(reading.problems, rules(spec), root)
        raise CdiError.of(found, file=file)
    return spec, reading.nulls


def _apart_from(mismatches: list[Problem], found: Iterable[Problem], root: Node) -> Iterator[Problem]:
    """Those of ``found`` that are not the consequence of a mismatch (a path of the wrong type is no empty path)."""
    for problem in found:
        shown = [each.path for each in mismatches]
        if not any(path[: len(problem.path)] == problem.path or problem.path[: len(path)] == path for path in shown):
            yield Problem(problem.message, problem.path, *locate(root, problem.path))


class _Reading(NamedTuple):
    compat: bool
    problems: list[Problem]
    nulls: list[Problem]
    file: str
    dropped: list[Path]  # elements that could not be read: those after them have other numbers than in the text

    def problem(self, node: Node, message: str, path: Path) -> Any:
        self.problems.append(Problem(message, path, *_place(node)))
        return _WRONG

    def fatal(self, node: Node, message: str, path: Path) -> CdiError:
        return CdiError.of([Problem(message, path, *_place(node))], file=self.file)

    def mismatch(self, node: Node, wanted: str, path: Path) -> Any:
        return self.problem(node, f"{_describe(node)} where {wanted} belongs", path)


class NoPlaceError(Exception):
    """A problem in a tree without places: it must be read again with them."""


def _place(node: Node) -> tuple[int, int]:
    mark = node[4]
    if mark is None:
        raise NoPlaceError
    return mark.line + 1, mark.column + 1


def _describe(node: Node) -> str:
    kind, tag, value, quoted, _ = node
    if kind == SEQUENCE:
        return "a list"
    if kind == MAPPING:
        return "a mapping"
    text = value if len(value) <= _SHOWN_TEXT else value[:_SHOWN_TEXT] + "…"
    text = text.replace("\n", "\\n")
    name = tag or ("!!str" if quoted else resolve(value)[0])
    return f"{_TAG_WORDS.get(name, name)} `{text}`"


_TAG_WORDS: Final = {
    "!!str": "the text",
    "!!int": "the integer",
    "!!float": "the number",
    "!!bool": "the boolean",
    "!!timestamp": "the date",
}


def _scalar(reading: _Reading, node: Node, path: Path) -> Tagged:
    """Tag and value of any scalar; a tag that does not fit its text ends the reading, as in the reference library."""
    _, tag, value, quoted, _ = node
    if not tag:
        return ("!!str", value) if quoted else resolve(value)
    if tag == "!!str":
        return tag, value
    if tag == "!!binary":
        try:
            data = decode_binary(value)
            return tag, data.decode("utf-8", "replace" if reading.compat else "strict")
        except UnicodeDecodeError:
            raise reading.fatal(node, "!!binary value is not UTF-8 text", path) from None
        except ValueError as error:
            raise reading.fatal(node, str(error), path) from None
    if tag not in _RESOLVABLE_TAGS:
        return tag, value
    found, resolved = resolve(value)
    if tag == "!!float" and found == "!!int":
        return tag, float(resolved or 0)
    if tag != found:
        raise reading.fatal(node, f"cannot decode {found} `{value[:_SHOWN_TEXT]}` as a {tag}", path)
    return found, resolved


_RESOLVABLE_TAGS: Final = frozenset({"!!bool", "!!int", "!!float", "!!null", "!!timestamp"})


def _text(reading: _Reading, node: Node, path: Path) -> Any:
    kind, tag, value, quoted, _ = node
    if kind != SCALAR:
        return reading.mismatch(node, "text", path)
    if not tag:
        return value if quoted or value not in NULL_WORDS else None
    found, resolved = _scalar(reading, node, path)
    if resolved is None:
        return None
    return resolved if found == "!!binary" else value


def _boolean(reading: _Reading, node: Node, path: Path) -> Any:
    if node[0] == SCALAR:
        _, resolved = _scalar(reading, node, path)
        if resolved is None or isinstance(resolved, bool):
            return resolved
        if isinstance(resolved, str) and (resolved in TRUE_WORDS or resolved in FALSE_WORDS):
            return resolved in TRUE_WORDS
    return reading.mismatch(node, "true or false", path)


_DECIMAL: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


def _integer(low: int, high: int, wanted: str) -> Reader:
    def read(reading: _Reading, node: Node, path: Path) -> Any:
        if node[0] != SCALAR:
            return reading.mismatch(node, wanted, path)
        if not node[1] and not node[3] and _DECIMAL.fullmatch(node[2]):
            number: Any = int(node[2])
        else:
            _, number = _scalar(reading, node, path)
        if number is None:
            return None
        if isinstance(number, float):
            if not reading.compat and not number.is_integer():
                return reading.mismatch(node, wanted, path)
            number = _cut(number, low)
        if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
            return number
        return reading.mismatch(node, wanted, path)

    return read


def _cut(number: float, low: int) -> int | None:
    """A float as the reference library converts it: the fraction goes, minus infinity becomes the lowest number."""
    if number == float("-inf"):
        return -(2**63) if low < 0 else None
    return int(number) if abs(number) < float("inf") else None


def _list(element: Reader, wanted: str, *, keeps_null: bool = False) -> Reader:
    """``keeps_null``: a null element stays (as None) for validation to report; else it is dropped in ``compat``."""

    def read(reading: _Reading, node: Node, path: Path) -> Any:
        kind, content = node[0], node[2]
        if kind != SEQUENCE:
            if kind == SCALAR and _is_null(reading, node, path):
                return None
            return reading.mismatch(node, wanted, path)
        values: list[Any] = []
        for index, child in enumerate(content):
            value = element(reading, child, (*path, index))
            if value is None:
                if keeps_null:
                    values.append(None)
                elif not reading.compat:
                    reading.nulls.append(Problem(f"null element in {path[-1]}", (*path, index), *_place(child)))
            elif value is _WRONG:
                reading.dropped.append((*path, index))
            else:
                values.append(value)
        return tuple(values)

    return read


def _is_null(reading: _Reading, node: Node, path: Path) -> bool:
    tag, value, quoted = node[1], node[2], node[3]
    if not tag:
        return not quoted and value in NULL_WORDS
    return tag == "!!null" and _scalar(reading, node, path)[1] is None


class _Field(NamedTuple):
    attribute: str
    read: Reader
    required: Any = None  # what stands for an absent or null key where the value type has no default


def _struct(make: Callable[..., Any], title: str, fields: Mapping[str, _Field]) -> Reader:
    required = {field.attribute: field.required for field in fields.values() if field.required is not None}

    def read(reading: _Reading, node: Node, path: Path) -> Any:
        if node[0] != MAPPING:
            if node[0] == SCALAR and _is_null(reading, node, path):
                return None
            return reading.mismatch(node, title, path)
        values: dict[str, Any] = dict(required)
        if not fill(reading, node, path, values, None):
            return _WRONG
        return make(**values)

    def fill(reading: _Reading, node: Node, path: Path, values: dict[str, Any], taken: set[str] | None) -> bool:
        content = node[2]
        if not _keys_differ(reading, content, path):
            return False
        merge: Node | None = None
        for position in range(0, len(content), 2):
            key_node = content[position]
            if _is_merge(key_node):
                merge = content[position + 1]
                continue
            key = _text(reading, key_node, path)
            if key is _WRONG:
                continue
            if key is None:
                if not reading.compat:
                    reading.problem(key_node, f"null is no field of {title}", path)
                continue
            if taken is not None:
                if key in taken:
                    continue
                taken.add(key)
            field = fields.get(key)
            if field is None:
                reading.problem(key_node, f"unknown field `{key}` in {title}{_hint(key, fields)}", (*path, key))
                continue
            value = field.read(reading, content[position + 1], (*path, key))
            if value is not None and value is not _WRONG:
                values[field.attribute] = value
        if merge is not None:
            if taken is None:
                taken = {_key_text(key) for key in content[::2]}
            for source in _merge_sources(reading, merge, path):
                fill(reading, source, path, values, taken)
        return True

    return read


def _string_map(reading: _Reading, node: Node, path: Path) -> Any:
    if node[0] != MAPPING:
        if node[0] == SCALAR and _is_null(reading, node, path):
            return None
        return reading.mismatch(node, "a mapping of text", path)
    values: dict[str, str] = {}
    _fill_map(reading, node, path, values, None)
    return values


def _fill_map(reading: _Reading, node: Node, path: Path, values: dict[str, str], taken: set[str] | None) -> None:
    content = node[2]
    if not _keys_differ(reading, content, path):
        return
    merge: Node | None = None
    for position in range(0, len(content), 2):
        key_node = content[position]
        if _is_merge(key_node):
            merge = content[position + 1]
            continue
        key = _text(reading, key_node, path)
        if key is None and not reading.compat:
            reading.problem(key_node, f"null key in {path[-1]}", path)
        if key is None or key is _WRONG:
            continue
        if taken is not None:
            if key in taken:
                continue
            taken.add(key)
        value = _text(reading, content[position + 1], (*path, key))
        if value is not _WRONG:
            values[key] = value or ""
    if merge is not None:
        if taken is None:
            taken = {_key_text(key) for key in content[::2]}
        for source in _merge_sources(reading, merge, path):
            _fill_map(reading, source, path, values, taken)


def _keys_differ(reading: _Reading, content: list[Node], path: Path) -> bool:
    """Reports keys written twice (by kind and text, as the reference library compares them)."""
    keys = {(key[0], key[2]) if key[0] == SCALAR else (key[0], "") for key in content[::2]}
    if len(keys) * 2 == len(content):
        return True
    seen: dict[tuple[int, str], int] = {}
    for key in content[::2]:
        identity = (key[0], key[2]) if key[0] == SCALAR else (key[0], "")
        if identity in seen:
            reading.problem(key, f"duplicate key `{identity[1]}`, already at line {seen[identity]}", path)
        else:
            seen[identity] = _place(key)[0]
    return False


def _is_merge(node: Node) -> bool:
    return node[0] == SCALAR and node[2] == "<<" and (node[1] == "!!merge" or (not node[1] and not node[3]))


def _merge_sources(reading: _Reading, node: Node, path: Path) -> list[Node]:
    sources = node[2] if node[0] == SEQUENCE else [node]
    if any(source[0] != MAPPING for source in sources):
        raise reading.fatal(node, "map merge requires a mapping or a list of mappings as the value of `<<`", path)
    return list(sources)


def _key_text(node: Node) -> str:
    return node[2] if node[0] == SCALAR else ""


def _hint(key: str, fields: Mapping[str, _Field]) -> str:
    folded = key.lower()
    for name in fields:
        if name.lower() == folded:
            return f", it is spelt `{name}`"
    return ""


_INT64: Final = _integer(-(2**63), 2**63 - 1, "a 64-bit integer")
_UINT32: Final = _integer(0, 2**32 - 1, "an integer from 0 to 4294967295")
_TEXTS: Final = _list(_text, "a list of text")

_NODE: Final = _struct(
    DeviceNode,
    "a device node",
    {
        "path": _Field("path", _text, ""),
        "hostPath": _Field("host_path", _text),
        "type": _Field("type", _text),
        "major": _Field("major", _INT64),
        "minor": _Field("minor", _INT64),
        "fileMode": _Field("file_mode", _UINT32),
        "permissions": _Field("permissions", _text),
        "uid": _Field("uid", _UINT32),
        "gid": _Field("gid", _UINT32),
    },
)
_MOUNT: Final = _struct(
    Mount,
    "a mount",
    {
        "hostPath": _Field("host_path", _text, ""),
        "containerPath": _Field("container_path", _text, ""),
        "options": _Field("options", _TEXTS),
        "type": _Field("type", _text),
    },
)
_HOOK: Final = _struct(
    Hook,
    "a hook",
    {
        "hookName": _Field("hook_name", _text, ""),
        "path": _Field("path", _text, ""),
        "args": _Field("args", _TEXTS),
        "env": _Field("env", _TEXTS),
        "timeout": _Field("timeout", _INT64),
    },
)
_NET_DEVICE: Final = _struct(
    NetDevice,
    "a network device",
    {
        "hostInterfaceName": _Field("host_interface_name", _text, ""),
        "name": _Field("name", _text, ""),
    },
)
_RDT: Final = _struct(
    IntelRdt,
    "an intelRdt object",
    {
        "closID": _Field("clos_id", _text),
        "l3CacheSchema": _Field("l3_cache_schema", _text),
        "memBwSchema": _Field("mem_bw_schema", _text),
        "schemata": _Field("schemata", _TEXTS),
        "enableMonitoring": _Field("enable_monitoring", _boolean),
    },
)
_EDITS: Final = _struct(
    ContainerEdits,
    "container edits",
    {
        "env": _Field("env", _TEXTS),
        "deviceNodes": _Field("device_nodes", _list(_NODE, "a list of device nodes", keeps_null=True)),
        "netDevices": _Field("net_devices", _list(_NET_DEVICE, "a list of network devices", keeps_null=True)),
        "hooks": _Field("hooks", _list(_HOOK, "a list of hooks", keeps_null=True)),
        "mounts": _Field("mounts", _list(_MOUNT, "a list of mounts", keeps_null=True)),
        "intelRdt": _Field("intel_rdt", _RDT),
        "additionalGids": _Field("additional_gids", _list(_UINT32, "a list of group ids")),
    },
)
_DEVICE: Final = _struct(
    Device,
    "a device",
    {
        "name": _Field("name", _text, ""),
        "annotations": _Field("annotations", _string_map),
        "containerEdits": _Field("container_edits", _EDITS),
    },
)
_SPEC: Final = _struct(
    Spec,
    "the specification",
    {
        "cdiVersion": _Field("cdi_version", _text, ""),
        "kind": _Field("kind", _text, ""),
        "annotations": _Field("annotations", _string_map),
        "devices": _Field("devices", _list(_DEVICE, "a list of devices"), ()),
        "containerEdits": _Field("container_edits", _EDITS),
    },
)
