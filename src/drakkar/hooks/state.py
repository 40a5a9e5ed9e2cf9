"""The container that a hook is run for: the OCI state on standard input leads to its bundle, the bundle to its root.

The state and ``config.json`` come from the runtime and are believed; the root they name is not.
"""

from __future__ import annotations

import json
import os
import sys

from .errors import HookError
from .root import ContainerRoot

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Any, Final

__all__ = ["ContainerState"]

_MOST_BYTES: Final = 16 << 20


class ContainerState:
    """What the runtime says about the container (OCI runtime specification, "State").

    Attributes:
        bundle: the bundle's directory.
        id: the runtime's name of the container, "" if not given.
        pid: the container's first process as this process sees it, 0 if not given.
    """

    def __init__(self, state: dict[str, Any]) -> None:
        self.bundle = state.get("bundle") or state.get("bundlePath") or ""
        pid = state.get("pid", 0)
        if not isinstance(self.bundle, str) or not isinstance(pid, int):
            raise HookError("the container's state has no bundle or no pid")
        self.pid = pid
        name = state.get("id")
        self.id = name if isinstance(name, str) else ""
        self._root = state.get("root")
        self._config: dict[str, Any] | None = None

    @classmethod
    def read(cls, path: str) -> ContainerState:
        """Reads the state from a file, or from standard input for "" and "-".

        Raises:
            HookError: unreadable, or no JSON object.
        """
        if path in ("", "-"):
            return cls(_object(sys.stdin.buffer.read(_MOST_BYTES + 1), "the container's state on standard input"))
        return cls(_read(path, "the container's state"))

    @property
    def config(self) -> dict[str, Any]:
        """The bundle's ``config.json``."""
        if self._config is None:
            if not self.bundle:
                raise HookError("the container's state names no bundle")
            self._config = _read(f"{self.bundle}/config.json", "the container's configuration")
        return self._config

    def root_path(self) -> str:
        """The container's root on the host: the state's own if it has one, else the configuration's."""
        root = self._root if self._root is not None else self.config.get("root")
        path = root.get("path") if isinstance(root, dict) else root
        if not isinstance(path, str) or not path:
            raise HookError("neither the container's state nor its configuration names a root")
        return path if path.startswith("/") else f"{self.bundle}/{path}"

    def root(self) -> ContainerRoot:
        """The container's root, open."""
        return ContainerRoot(self.root_path())

    def variable(self, name: str) -> str | None:
        """A variable of the container's environment, the last one of that name."""
        process = self.config.get("process")
        env = process.get("env") if isinstance(process, dict) else None
        found = None
        for entry in env if isinstance(env, list) else ():
            if isinstance(entry, str) and entry.startswith(name + "="):
                found = entry[len(name) + 1 :]
        return found


def _read(path: str, what: str) -> dict[str, Any]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise HookError(f"cannot read {what} {path}: {error.strerror}") from None
    return _object(data, f"{what} {path}")


def _object(data: bytes, what: str) -> dict[str, Any]:
    if len(data) > _MOST_BYTES:
        raise HookError(f"{what} is larger than {_MOST_BYTES} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise HookError(f"{what} is not JSON") from None
    if not isinstance(value, dict):
        raise HookError(f"{what} is not a JSON object")
    return value
