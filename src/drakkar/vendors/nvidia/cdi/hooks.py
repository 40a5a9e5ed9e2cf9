"""The hooks that a specification names: which there are, at which OCI stage, with which arguments.

The names and arguments are those of `nvidia-cdi-hook` 1.20.2, so that the host's own executable can run them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from drakkar.errors import DrakkarError
from drakkar.injection.model import Hook

CREATE_SYMLINKS: Final = "create-symlinks"
ENABLE_CUDA_COMPAT: Final = "enable-cuda-compat"
UPDATE_LDCACHE: Final = "update-ldcache"
DISABLE_DEVICE_NODE_MODIFICATION: Final = "disable-device-node-modification"
UPDATE_APPLICATION_PROFILE: Final = "update-application-profile"
APPLY_CUDA_MEMORY_LIMITS: Final = "apply-cuda-memory-limits"
CHMOD: Final = "chmod"

#: Name to (OCI stage, whether it does anything without arguments).
HOOKS: Final = {
    CREATE_SYMLINKS: ("createContainer", False),
    ENABLE_CUDA_COMPAT: ("createContainer", True),
    UPDATE_LDCACHE: ("createContainer", True),
    DISABLE_DEVICE_NODE_MODIFICATION: ("createContainer", True),
    UPDATE_APPLICATION_PROFILE: ("createContainer", True),
    APPLY_CUDA_MEMORY_LIMITS: ("createRuntime", False),
    CHMOD: ("createContainer", False),
}

DEFAULT_PATH: Final = "/usr/bin/nvidia-cdi-hook"
#: Programs whose hooks are a subcommand.
_WITH_SUBCOMMAND: Final = ("nvidia-ctk", "drakkar")
#: chmod was made for a fault of old crun releases: off unless asked for.
_OFF: Final = (CHMOD,)


@dataclass(frozen=True, slots=True)
class HookSet:
    """Which hooks to write, and with which executable. `all` may be disabled, single ones enabled over it."""

    path: str = DEFAULT_PATH
    disabled: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    ldconfig: str = ""

    def check(self) -> None:
        """DrakkarError for a hook that does not exist."""
        for name in (*self.disabled, *self.enabled):
            if name not in HOOKS and not (name == "all" and name in self.disabled):
                raise DrakkarError(
                    f"there is no hook {name!r}",
                    reason="UnknownHook",
                    subject=name,
                    expected="one of " + ", ".join(HOOKS) + "; all for --disable-hook",
                )

    def wanted(self, name: str) -> bool:
        """Whether a hook may be written."""
        if name in self.enabled:
            return True
        return name not in self.disabled and name not in _OFF and "all" not in self.disabled

    def make(self, name: str, arguments: Iterable[str] = ()) -> tuple[Hook, ...]:
        """The hook, or nothing where it is off or has nothing to do."""
        given = tuple(arguments)
        stage, without_arguments = HOOKS[name]
        if not self.wanted(name) or not (given or without_arguments):
            return ()
        program = self.path.rpartition("/")[2]
        head = (program, "hook") if program in _WITH_SUBCOMMAND else (program,)
        return (
            Hook(
                hook_name=stage,
                path=self.path,
                args=(*head, name, *self._spelled(name, given)),
                env=("NVIDIA_CTK_DEBUG=false",),
            ),
        )

    def _spelled(self, name: str, given: tuple[str, ...]) -> list[str]:
        if name == CREATE_SYMLINKS:
            return [word for link in given for word in ("--link", link)]
        if name == CHMOD:
            return ["--mode", "755", *(word for path in given for word in ("--path", path))]
        if name == UPDATE_LDCACHE:
            own = ["--ldconfig-path", self.ldconfig] if self.ldconfig else []
            return [*own, *(word for folder in given for word in ("--folder", folder))]
        if name == APPLY_CUDA_MEMORY_LIMITS:
            root, *uuids = given
            return ["--driver-root", root, *(word for uuid in uuids for word in ("--gpu-id", uuid))]
        return list(given)
