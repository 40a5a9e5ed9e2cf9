"""What is different between two specifications of one kind, in sentences for people who watch a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .model import ContainerEdits, Spec

__all__ = ["changes"]

_MOST = 6  # names in one sentence


def changes(before: Spec | None, after: Spec) -> list[str]:
    """The differences, devices first; one sentence for each kind of thing. Empty if they mean the same."""
    if before is None:
        return [f"{_count(len(after.devices), 'device')}: {_named(device.name for device in after.devices)}"]
    said: list[str] = []
    if before.kind != after.kind:
        said.append(f"the kind is {after.kind}, it was {before.kind}")
    old = {device.name: device for device in before.devices}
    new = {device.name: device for device in after.devices}
    for verb, names in (
        ("new", [name for name in new if name not in old]),
        ("gone", [name for name in old if name not in new]),
        ("changed", [name for name in new if name in old and new[name] != old[name]]),
    ):
        if names:
            said.append(f"{_count(len(names), 'device')} {verb}: {_named(names)}")
    said += _edit_changes(before.container_edits, after.container_edits)
    if before.cdi_version != after.cdi_version:
        said.append(f"CDI version {after.cdi_version}, it was {before.cdi_version}")
    return said


def _edit_changes(before: ContainerEdits, after: ContainerEdits) -> list[str]:
    views: tuple[tuple[str, Callable[[ContainerEdits], list[str]]], ...] = (
        ("file", lambda edits: [mount.host_path for mount in edits.mounts]),
        ("node", lambda edits: [f"{node.path} ({node.major}:{node.minor})" for node in edits.device_nodes]),
        ("hook", lambda edits: [" ".join(hook.args[1:] or hook.args) for hook in edits.hooks]),
        ("variable", lambda edits: list(edits.env)),
    )
    said = []
    for what, names in views:
        old, new = names(before), names(after)
        for verb, found in (("new", [n for n in new if n not in old]), ("gone", [n for n in old if n not in new])):
            if found:
                said.append(f"{_count(len(found), what)} {verb}: {_named(found)}")
    return said


def _named(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    return ", ".join(known[:_MOST]) + more


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
