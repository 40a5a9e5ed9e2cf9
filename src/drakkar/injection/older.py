"""How older releases of the reference library read a file: 1.1.0 and 0.8.1, which consumers still have inside.

They turned YAML into untyped JSON first and that into their structures. So plain numbers and booleans in text fields
became the text of the value (``010`` is "8", ``yes`` is "true"), field names matched in any case, a merge key could not
be overridden, and null elements became empty ones. The tree is rewritten to what today's reader understands as the
same; what has no such form is refused with its place.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from . import rules
from .errors import CdiError, Problem
from .model import ContainerEdits, Spec
from .names import quote, split_kind
from .nodes import MAPPING, SCALAR, SEQUENCE, Node
from .scalars import FALSE_WORDS, NULL_WORDS, TRUE_WORDS, resolve
from .versions import VERSIONS

__all__ = ["NEWEST_VERSION", "as_read_by", "problems"]

NEWEST_VERSION: Final = {"compat-1.1.0": "1.1.0", "compat-0.8.1": "0.8.0"}

_NODE: Final = {
    **dict.fromkeys(("path", "hostPath", "type", "permissions"), "text"),
    **dict.fromkeys(("major", "minor", "fileMode", "uid", "gid"), "integer"),
}
_RDT: Final = {
    **dict.fromkeys(("closID", "l3CacheSchema", "memBwSchema"), "text"),
    "schemata": ["text"],
    "enableMonitoring": "boolean",
}
_EDITS: Final = {
    "env": ["text"],
    "deviceNodes": [_NODE],
    "netDevices": [dict.fromkeys(("hostInterfaceName", "name"), "text")],
    "hooks": [
        {
            **dict.fromkeys(("hookName", "path"), "text"),
            "args": ["text"],
            "env": ["text"],
            "timeout": "integer",
        }
    ],
    "mounts": [{**dict.fromkeys(("hostPath", "containerPath", "type"), "text"), "options": ["text"]}],
    "intelRdt": _RDT,
    "additionalGids": ["integer"],
}
_SPEC: Final = {
    **dict.fromkeys(("cdiVersion", "kind"), "text"),
    "annotations": "texts by name",
    "devices": [{"name": "text", "annotations": "texts by name", "containerEdits": _EDITS}],
    "containerEdits": _EDITS,
}
_UNKNOWN_TO_0_8: Final = frozenset({"netDevices", "schemata", "enableMonitoring"})
_KNOWN_TO_0_8: Final = frozenset({"enablecmt", "enablembm"})  # removed since, of no effect
_EMPTY_TEXT: Final = ""


def as_read_by(profile: str, root: Node, file: str) -> Node:
    """The tree that today's reader takes as the release of ``profile`` took ``root``.

    Raises:
        CdiError: that release refuses it for a reason that today's does not have.
    """
    return _Rewriting(profile == "compat-0.8.1", file).value(root, _SPEC)


def problems(profile: str, spec: Spec) -> Iterator[Problem]:
    """What the release of ``profile`` refuses: today's rules without the newest, and with those given up since."""
    newest = NEWEST_VERSION[profile]
    declared = spec.cdi_version.removeprefix("v")
    if declared in VERSIONS and VERSIONS.index(declared) > VERSIONS.index(newest):
        yield Problem(f'invalid version "{spec.cdi_version}"', ("cdiVersion",))
    for part, title in zip(split_kind(spec.kind), ("vendor", "class"), strict=True):
        if len(part) == 1:
            yield Problem(f"invalid {title} {quote(part)}: this release crashes on a single letter", ("kind",))
    yield from rules.problems(_without_negative_numbers(spec))
    for edits, path in _blocks(spec):
        for index, node in enumerate(edits.device_nodes):
            if node is not None and node.permissions == "none":
                place = (*path, "deviceNodes", index, "permissions")
                yield Problem(f'device {quote(node.path)}: invalid permissions "none"', place)


def _blocks(spec: Spec) -> Iterator[tuple[ContainerEdits, tuple[str | int, ...]]]:
    yield spec.container_edits, ("containerEdits",)
    for index, device in enumerate(spec.devices):
        yield device.container_edits, ("devices", index, "containerEdits")


def _without_negative_numbers(spec: Spec) -> Spec:
    def edited(edits: ContainerEdits) -> ContainerEdits:
        nodes = tuple(
            node if node is None else msgspec.structs.replace(node, major=max(node.major, 0), minor=max(node.minor, 0))
            for node in edits.device_nodes
        )
        return msgspec.structs.replace(edits, device_nodes=nodes)

    devices = tuple(msgspec.structs.replace(d, container_edits=edited(d.container_edits)) for d in spec.devices)
    return msgspec.structs.replace(spec, devices=devices, container_edits=edited(spec.container_edits))


class _Rewriting:
    def __init__(self, older: bool, file: str) -> None:
        self._older = older
        self._file = file

    def value(self, node: Node, shape: Any) -> Node:
        """``node`` where ``shape`` belongs: a mapping's fields, a list's only element, or the name of a scalar."""
        if _is_null(node):
            return node
        if isinstance(shape, dict):
            return self._mapping(node, shape) if node[0] == MAPPING else node
        if isinstance(shape, list):
            return self._list(node, shape[0]) if node[0] == SEQUENCE else node
        if shape == "texts by name":
            return self._texts(node) if node[0] == MAPPING else node
        return self._scalar(node, shape) if node[0] == SCALAR else node

    def _mapping(self, node: Node, fields: dict[str, Any]) -> Node:
        spelt = {name.lower(): name for name in fields}
        found: dict[str, tuple[Node, Node]] = {}
        unknown: list[Node] = []
        # The JSON between was sorted by key, and of two spellings of a field the last one counted.
        for key, child in sorted(self._entries(node), key=lambda entry: str(entry[0][2]).encode("utf-8", "replace")):
            text = key[2] if key[0] == SCALAR else ""
            folded = text.lower()
            name = spelt.get(folded)
            if self._older and (folded in _KNOWN_TO_0_8 and "closid" in spelt):
                continue
            if name is None:
                unknown += [key, child]
                continue
            if self._older and name in _UNKNOWN_TO_0_8:
                raise self._fatal(key, f"unknown field `{text}` for this release")
            found[name] = ((SCALAR, "", name, False, key[4]), self.value(child, fields[name]))
        content = [part for pair in found.values() for part in pair]
        return node[0], node[1], [*content, *unknown], node[3], node[4]

    def _entries(self, node: Node) -> list[tuple[Node, Node]]:
        """Keys with values, merged mappings spread out; a key given twice is refused, also by a merge."""
        entries: list[tuple[Node, Node]] = []
        seen: set[str] = set()
        pairs = list(zip(node[2][::2], node[2][1::2], strict=True))
        merges = [child for key, child in pairs if _is_merge(key)]
        own = [(key, child) for key, child in pairs if not _is_merge(key)]
        for key, child in own + [pair for merge in merges for pair in self._merged(merge)]:
            if key[0] == SCALAR and _is_null(key):
                raise self._fatal(key, "null is no key")
            text = key[2] if key[0] == SCALAR else ""
            if text in seen:
                raise self._fatal(key, f"key `{text}` already set in map")
            seen.add(text)
            entries.append((key, child))
        return entries

    def _merged(self, node: Node) -> list[tuple[Node, Node]]:
        sources = node[2] if node[0] == SEQUENCE else [node]
        if any(source[0] != MAPPING for source in sources):
            raise self._fatal(node, "map merge requires a mapping or a list of mappings as the value of `<<`")
        return [pair for source in sources for pair in self._entries(source)]

    def _list(self, node: Node, element: Any) -> Node:
        children = []
        for child in node[2]:
            if not _is_null(child) or (isinstance(element, dict) and "name" not in element):
                children.append(self.value(child, element))
            elif isinstance(element, dict):
                children.append((MAPPING, "", [], False, child[4]) if "containerEdits" in element else child)
            else:
                children.append((SCALAR, "", "0" if element == "integer" else "", element != "integer", child[4]))
        return node[0], node[1], children, node[3], node[4]

    def _texts(self, node: Node) -> Node:
        content: list[Node] = []
        for key, child in self._entries(node):
            content += [key, self.value(child, "text")]
        return node[0], node[1], content, node[3], node[4]

    def _scalar(self, node: Node, kind: str) -> Node:
        _, tag, text, quoted, mark = node
        if quoted or tag not in ("", "!!int", "!!float", "!!bool"):
            return node
        value: Any = text in TRUE_WORDS if text in TRUE_WORDS or text in FALSE_WORDS else resolve(text)[1]
        if kind == "text":
            return (SCALAR, "", _written(value), True, mark) if isinstance(value, (bool, int, float)) else node
        if kind == "boolean":
            return (SCALAR, "", _written(value), False, mark) if isinstance(value, bool) else node
        if isinstance(value, float):
            if math.isnan(value) or not value.is_integer():
                raise self._fatal(node, f"the number `{text}` where an integer belongs")
            return SCALAR, "", str(int(value)), False, mark
        return node

    def _fatal(self, node: Node, message: str) -> CdiError:
        place = (node[4].line + 1, node[4].column + 1) if node[4] is not None else (0, 0)
        return CdiError.of([Problem(message, (), *place)], file=self._file)


def _is_null(node: Node) -> bool:
    return node[0] == SCALAR and not node[3] and node[2] in NULL_WORDS and node[1] in ("", "!!null")


def _is_merge(node: Node) -> bool:
    return node[0] == SCALAR and node[2] == "<<" and (node[1] == "!!merge" or (not node[1] and not node[3]))


def _written(value: bool | int | float) -> str:
    """As those releases wrote a value into text; a float in single precision, the shortest form that reads back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = float("inf") if value > 0 else float("-inf")
    if single in (float("inf"), float("-inf")):
        return "+Inf" if single > 0 else "-Inf"
    digits = next(
        text for precision in range(9) if _reads_back(text := f"{single:.{precision}e}", single) or precision == 8
    )
    mantissa, _, exponent = digits.partition("e")
    power = int(exponent)
    if power < -4 or power >= 21:
        return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return f"{float(digits):.{max(len(mantissa.partition('.')[2]) - power, 0)}f}"


def _reads_back(text: str, single: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", float(text)))[0] == single)
    except OverflowError:
        return False
