"""Things a specification may say and probably does not mean: reported as warnings, never refused.

Each comes from a report of somebody who lost a day over it (hooks that inherit the container's environment,
``fileMode: 660`` read as decimal, a command line as a path).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .errors import Problem
from .model import ContainerEdits, Hook, Spec
from .names import quote

__all__ = ["warnings"]

Path = tuple[str | int, ...]

# 600, 640, 644, 660, 664, 666 and so on, written in decimal, have no meaning as a mode that anybody wants.
_DECIMAL_LOOKING_OCTAL: Final = frozenset(
    int(f"{owner}{group}{other}") for owner in "4567" for group in "04567" for other in "04567"
)


def warnings(spec: Spec) -> Iterator[Problem]:
    """Doubtful content of an otherwise acceptable specification."""
    yield from _edit_warnings(spec.container_edits, ("containerEdits",))
    for index, device in enumerate(spec.devices):
        yield from _edit_warnings(device.container_edits, ("devices", index, "containerEdits"))


def _edit_warnings(edits: ContainerEdits, path: Path) -> Iterator[Problem]:
    for index, node in enumerate(edits.device_nodes):
        if node.file_mode in _DECIMAL_LOOKING_OCTAL:
            yield Problem(
                f"fileMode {node.file_mode} is decimal (octal {node.file_mode:o}); write 0o{node.file_mode} or"
                f" {int(str(node.file_mode), 8)} for rights {node.file_mode}",
                (*path, "deviceNodes", index, "fileMode"),
            )
    for index, hook in enumerate(edits.hooks):
        yield from _hook_warnings(hook, (*path, "hooks", index))


def _hook_warnings(hook: Hook, path: Path) -> Iterator[Problem]:
    if " " in hook.path.strip():
        yield Problem(
            f"hook path {quote(hook.path)} contains a space; a path is one file, arguments go into args",
            (*path, "path"),
        )
    program = hook.path.rsplit("/", 1)[-1]
    if hook.args and hook.args[0].rsplit("/", 1)[-1] != program:
        yield Problem(
            f"hook args begin with {quote(hook.args[0])}; args[0] is the program's name ({program}), so the hook will"
            " not see this argument",
            (*path, "args"),
        )
    if not hook.env:
        yield Problem(
            "hook without env inherits the container's environment (LD_PRELOAD and PATH included); give it any env,"
            " e.g. NVIDIA_CTK_DEBUG=false",
            path,
        )
