"""The commands by name, their options as a table, and the way in: ``python -I …/drakkar/hooks/__main__.py NAME …``.

``python -I -m drakkar.hooks`` is the same, a fifth slower. Options are read by hand, since ``argparse`` alone would
take a third of the time that a hook may need.
"""

from __future__ import annotations

import os
import sys

from .errors import HookError
from .state import ContainerState

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Final

    Given = Mapping[str, list[str]]

__all__ = ["COMMANDS", "Command", "main"]

_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_IGNORED: Final = ("--debug", "--quiet")  # of nvidia-cdi-hook, before the command's name


class Command:
    """A hook: what it does, the options it takes (all with a value), and its function."""

    def __init__(self, about: str, options: tuple[str, ...], run: Callable[[ContainerState, Given], None]) -> None:
        self.about = about
        self.options = options
        self.run = run


def main(arguments: Sequence[str]) -> int:
    """Runs one hook and returns the exit status: 0, 1 for a failure, 2 for a wrong command line."""
    words = list(arguments)
    while words and words[0] in _IGNORED:
        del words[0]
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if words else 2
    command = COMMANDS.get(words[0])
    if command is None:
        print(f"drakkar hook: no such hook {words[0]!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if set(words[1:]) & {"-h", "--help"}:
        print(f"{command.about}\n\nOptions: {', '.join((*command.options, '--container-spec'))}")
        return 0
    os.environ.clear()  # the runtime hands the container's own to a hook that has none in its specification
    os.environ.update(_ENVIRONMENT)
    os.umask(0o022)
    try:
        given = _options(words[1:], (*command.options, "--container-spec", "--host-root"))
    except HookError as error:
        print(f"drakkar hook {words[0]}: {error}", file=sys.stderr)
        return 2
    try:
        command.run(ContainerState.read(_last(given, "--container-spec")), given)
    except HookError as error:
        print(f"drakkar hook {words[0]}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        about = f" {error.filename}" if isinstance(error.filename, str) else ""
        print(f"drakkar hook {words[0]}:{about} {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _options(words: Sequence[str], known: Sequence[str]) -> Given:
    given: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option not in known:
            raise HookError(f"unknown argument {word!r}; it takes {', '.join(known[:-1])}")
        if not equals:
            try:
                value = next(rest)
            except StopIteration:
                raise HookError(f"{option} has no value") from None
        given.setdefault(option, []).append(value)
    return given


def _last(given: Given, option: str, default: str = "") -> str:
    return given[option][-1] if option in given else default


def _create_symlinks(state: ContainerState, given: Given) -> None:
    from .files import create_symlinks

    create_symlinks(state, given.get("--link", []))


def _update_ldcache(state: ContainerState, given: Given) -> None:
    from .ldcache import update_ldcache

    update_ldcache(state, given.get("--folder", []), _last(given, "--ldconfig-path"))


def _enable_cuda_compat(state: ContainerState, given: Given) -> None:
    from .files import enable_cuda_compat

    enable_cuda_compat(state, _last(given, "--host-driver-version"))


def _disable_device_node_modification(state: ContainerState, given: Given) -> None:
    from .params import disable_device_node_modification

    disable_device_node_modification(state, _last(given, "--host-root", "/"))


def _update_application_profile(state: ContainerState, given: Given) -> None:
    from .files import update_application_profile

    update_application_profile(state)


def _apply_cuda_memory_limits(state: ContainerState, given: Given) -> None:
    from .limits import apply_cuda_memory_limits

    root, share = _last(given, "--host-root", "/"), _last(given, "--limit") if "--limit" in given else None
    apply_cuda_memory_limits(state, _last(given, "--driver-root", "/"), given.get("--gpu-id", []), root, share)


def _chmod(state: ContainerState, given: Given) -> None:
    from .files import apply_mode

    apply_mode(state, _last(given, "--mode"), given.get("--path", []))


COMMANDS: Final[Mapping[str, Command]] = {
    "create-symlinks": Command("Make links in the container: --link TARGET::LINK.", ("--link",), _create_symlinks),
    "update-ldcache": Command(
        "Add folders to the container's library path and renew its loader cache.",
        ("--folder", "--ldconfig-path"),
        _update_ldcache,
    ),
    "enable-cuda-compat": Command(
        "Put the image's CUDA compatibility libraries first if they are newer than the host's driver.",
        ("--host-driver-version",),
        _enable_cuda_compat,
    ),
    "disable-device-node-modification": Command(
        "Keep the driver's tools in the container from making device nodes.", (), _disable_device_node_modification
    ),
    "update-application-profile": Command(
        "Tell EGL and Vulkan which GPUs the container has.", (), _update_application_profile
    ),
    "apply-cuda-memory-limits": Command(
        "Make the driver enforce NVIDIA_GPU_MEMORY_REQUEST and NVIDIA_GPU_MEMORY_LIMIT (MiB) of the container, and a"
        " claim's share: --limit MIB.",
        ("--driver-root", "--gpu-id", "--limit"),
        _apply_cuda_memory_limits,
    ),
    "chmod": Command("Set the mode of folders of the container.", ("--mode", "--path"), _chmod),
}


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name.ljust(width)}  {command.about}" for name, command in COMMANDS.items())
    return f"""Usage: drakkar hook NAME [OPTIONS] < STATE

  What a container runtime runs beside a container before it starts; the OCI state comes on standard input.
  Names and options are those of nvidia-cdi-hook.

Hooks:
{lines}"""
