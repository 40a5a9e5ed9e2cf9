"""Which line of which file caused which change of a container.

An injection joins edits of several files and devices, and what it leaves behind does not say where it came from. Here
the edits are applied one by one in the order of :mod:`edit`, each change being put down to the element that made it;
the end is the same configuration, which a test holds against every recorded case. Lines come from the text of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from .edit import Lstat, OciConfig, apply
from .errors import CdiError
from .model import ContainerEdits
from .nodes import Node, compose, locate
from .spec import CdiSpec

__all__ = ["Cause", "Change", "Element", "Places", "causes", "changes", "elements"]

_FIELDS: Final = (
    ("env", "env"),
    ("device_nodes", "deviceNodes"),
    ("net_devices", "netDevices"),
    ("mounts", "mounts"),
    ("hooks", "hooks"),
    ("intel_rdt", "intelRdt"),
    ("additional_gids", "additionalGids"),
)  # in the order of application


class Element(NamedTuple):
    """One element of a block of edits: its field, its path in the document, its value."""

    field: str
    path: tuple[str | int, ...]
    value: Any
    edits: ContainerEdits  # the element alone


class Cause(NamedTuple):
    """An element and the file and device that have it; ``device`` is "" for edits of the whole file."""

    file: str
    device: str
    element: Element


@dataclass(frozen=True)
class Change:
    """One difference between a configuration before and after.

    Attributes:
        change: added, replaced or removed.
        where: the place in the result, e.g. ``process.env[3]``; without a number where a later edit took it away again.
        before, after: the values in the configuration, None where there is none.
        cause: the element that made it.
    """

    change: str
    where: str
    before: Any
    after: Any
    cause: Cause


def elements(edits: ContainerEdits, path: tuple[str | int, ...]) -> Iterator[Element]:
    """The single elements of a block at ``path`` of its document, in the order in which they are applied."""
    for attribute, field in _FIELDS:
        value = getattr(edits, attribute)
        if attribute == "intel_rdt":
            if value is not None:
                yield Element(field, (*path, field), value, ContainerEdits(intel_rdt=value))
            continue
        for index, each in enumerate(value):
            alone: dict[str, Any] = {attribute: (each,)}
            yield Element(field, (*path, field, index), each, ContainerEdits(**alone))


def causes(spec: CdiSpec, device: str, *, whole_file: bool) -> list[Cause]:
    """What one device brings, with what every device of its file brings if ``whole_file``."""
    found = []
    if whole_file:
        found += [Cause(spec.path, "", each) for each in elements(spec.raw.container_edits, ("containerEdits",))]
    for index, each in enumerate(spec.raw.devices):
        if each.name == device:
            path = ("devices", index, "containerEdits")
            found += [Cause(spec.path, device, element) for element in elements(each.container_edits, path)]
    return found


def changes(config: OciConfig, wanted: Sequence[Cause], lstat: Lstat) -> tuple[OciConfig, list[Change]]:
    """The edited copy of ``config`` and every change with its cause.

    Args:
        config: a parsed OCI runtime configuration; not changed.
        wanted: the elements in request order, those of a file before those of its first device; edits that contradict
            each other are found by :func:`drakkar.injection.edit.apply`, which sees them together.
        lstat: the host's device nodes.

    Raises:
        CdiError: as :func:`drakkar.injection.edit.apply`.
    """
    order = {field: number for number, (_, field) in enumerate(_FIELDS)}
    made: list[tuple[_Difference, Cause]] = []
    result = config
    for cause in sorted(wanted, key=lambda each: order[each.element.field]):
        edited = apply(result, [cause.element.edits], lstat).config
        made += [(difference, cause) for difference in _differences(result, edited, ())]
        result = edited
    return result, [_change(difference, cause, result) for difference, cause in made]


class Places:
    """Lines and columns of elements. ``text`` gives the content of a file by its path; each file is composed once."""

    def __init__(self, text: Callable[[str], bytes]) -> None:
        self._text = text
        self._roots: dict[str, Node | None] = {}

    def of(self, cause: Cause) -> tuple[int, int]:
        """Line and column from 1; (0, 0) where the file is gone or no longer what it was."""
        if cause.file not in self._roots:
            try:
                self._roots[cause.file] = compose(self._text(cause.file), json_escapes=True).root
            except (OSError, CdiError):
                self._roots[cause.file] = None
        root = self._roots[cause.file]
        return locate(root, cause.element.path) if root else (0, 0)


class _Difference(NamedTuple):
    path: tuple[str, ...]
    before: Any
    after: Any
    in_list: bool


def _differences(before: Any, after: Any, path: tuple[str, ...]) -> Iterator[_Difference]:
    """What is different below ``path``; parts that an edit left alone are shared, ``is`` finds them."""
    if before is after or before == after:
        return
    if isinstance(after, dict) and (before is None or isinstance(before, dict)):
        for key, value in after.items():
            old = (before or {}).get(key)
            if isinstance(value, (dict, list)) and key != "intelRdt" and path != ("linux", "netDevices"):
                yield from _differences(old, value, (*path, key))
            elif old != value:
                yield _Difference((*path, key), old, value, False)
    elif isinstance(after, list):
        old_entries = list(before or [])
        gone = [entry for entry in old_entries if not _among(entry, after)]
        new = _added(old_entries, after)
        for number in range(max(len(gone), len(new))):
            old = gone[number] if number < len(gone) else None
            fresh = new[number] if number < len(new) else None
            yield _Difference(path, old, fresh, True)


def _added(old: list[Any], new: list[Any]) -> list[Any]:
    rest = list(old)
    added = []
    for entry in new:
        for index, other in enumerate(rest):
            if entry is other or entry == other:
                del rest[index]
                break
        else:
            added.append(entry)
    return added


def _among(entry: Any, entries: list[Any]) -> bool:
    return any(entry is other or entry == other for other in entries)


def _change(difference: _Difference, cause: Cause, result: OciConfig) -> Change:
    where = ".".join(difference.path)
    if difference.in_list and difference.after is not None:
        target: Any = result
        for key in difference.path:
            target = target.get(key) or {}
        places = [index for index, entry in enumerate(target) if entry is difference.after]
        places = places or [index for index, entry in enumerate(target) if entry == difference.after]
        where += f"[{places[-1]}]" if places else ""
    kind = "added" if difference.before is None else "removed" if difference.after is None else "replaced"
    return Change(kind, where, difference.before, difference.after, cause)
