"""Containers that are plain child processes: anywhere, for any user, and honest about what that cannot show.

The command runs with the bundle's environment in a private root directory. What CDI edits and volumes would put into a
real root file system is laid out there at its container path: mounts as symbolic links to the host path, device nodes
as regular files with one line `c MAJOR MINOR PERMISSIONS`. The directories of PATH that exist in the private root come
first on PATH, so an injected `nvidia-smi` is found, and one that was not injected is not. Every edit that was applied
differently or not at all is a `Limitation`, and the evidence repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from drakkar.cluster.runtimes.bundles import BundleRuntime, Container, new_environment
from drakkar.cluster.runtimes.children import Child, alive, spawn, with_variable
from drakkar.cluster.runtimes.images import ImageStore
from drakkar.cluster.runtimes.oci import DEFAULT_PATH, SYSTEM_MOUNT_TYPES
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRequest, ExecRequest, Limitation
from drakkar.cluster.runtimes.sessions import ProcessSession, open_terminal
from drakkar.kube.clock import Clock

MARKER: Final = ".drakkar-process-root"
ROOT_VARIABLE: Final = "DRAKKAR_ROOT"

_GLOBAL_LIMITATIONS: Final = (
    Limitation("root file system", "the process sees the host's files; its own lie below $DRAKKAR_ROOT"),
    Limitation("name spaces", "the process shares the host's process, network, user and mount name spaces"),
)


class ProcessRuntime(BundleRuntime):
    """Runs the commands of containers as children of this process."""

    name = "process"

    def __init__(self, root: Path, *, images: ImageStore | None = None, clock: Clock | None = None) -> None:
        super().__init__(root, images=images, clock=clock)
        self._entered: set[str] = set()

    @property
    def version(self) -> str:
        return "1.0"

    async def open(self) -> None:
        await asyncio.to_thread(_end_strays, self.root)
        await super().open()

    async def exec(self, container_id: str, request: ExecRequest) -> ProcessSession:
        container = self._running(container_id)
        self._entered.add(container_id)
        env = _environment(container)
        argv = _argv(list(request.command), env, container_id)
        cwd = _working_directory(container)
        if request.tty:
            child, master = _spawn_on_terminal(argv, env, cwd)
            return ProcessSession(child, stdin=master, outputs={master: 1}, terminal=master)
        stdin = os.pipe() if request.stdin else None
        pipes = {channel: os.pipe() for channel, wanted in ((1, request.stdout), (2, request.stderr)) if wanted}
        ends = [end for _, end in pipes.values()] + ([stdin[0]] if stdin else [])
        null = -3  # subprocess.DEVNULL
        try:
            child = spawn(
                argv,
                stdin=stdin[0] if stdin else null,
                stdout=pipes[1][1] if 1 in pipes else null,
                stderr=pipes[2][1] if 2 in pipes else null,
                env=env,
                cwd=cwd,
            )
        except OSError as error:
            for descriptor in [reader for reader, _ in pipes.values()] + ([stdin[1]] if stdin else []):
                os.close(descriptor)
            raise _not_executable(argv, error, container_id) from error
        finally:
            for end in ends:
                os.close(end)
        outputs = {reader: channel for channel, (reader, _) in pipes.items()}
        return ProcessSession(child, stdin=stdin[1] if stdin else -1, outputs=outputs)

    # BundleRuntime

    async def _remove(self, bundle: Path) -> None:
        if bundle.name in self._entered:
            # What an exec left running has a group of its own.
            self._entered.discard(bundle.name)
            await asyncio.to_thread(_end_strays, bundle)
        await super()._remove(bundle)

    async def _prepare(self, container: Container, request: ContainerRequest) -> None:
        root = container.bundle / "rootfs"
        root.mkdir(parents=True, exist_ok=True)
        (root / MARKER).touch()
        container.limitations += _GLOBAL_LIMITATIONS
        if container.image.layers:
            container.limitations.append(
                Limitation(f"image {container.image.name}", "its files are not used, only its command and environment")
            )
        config = container.config
        rules = config.get("linux", {}).get("resources", {}).get("devices") or []
        for device in config.get("linux", {}).get("devices") or []:
            self._stand_in(container, root, device, rules)
        for mount in config["mounts"]:
            self._link(container, root, mount)
        for kind, hooks in (config.get("hooks") or {}).items():
            for hook in hooks:
                container.limitations.append(Limitation(f"{kind} hook {hook.get('path', '')}", "not run"))
        self._unapplied(container, request)

    def _stand_in(
        self, container: Container, root: Path, device: dict[str, Any], rules: Sequence[dict[str, Any]]
    ) -> None:
        path = _below(root, device["path"])
        numbers = (device.get("major", 0), device.get("minor", 0))
        access = next(
            (
                rule.get("access", "")
                for rule in reversed(rules)
                if rule.get("allow") and (rule.get("major"), rule.get("minor")) == numbers
            ),
            "",
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{device.get('type', 'c')} {numbers[0]} {numbers[1]} {access or 'none'}\n")
        container.limitations.append(
            Limitation(f"device node {device['path']}", f"a regular file at ${ROOT_VARIABLE}{device['path']}")
        )

    def _link(self, container: Container, root: Path, mount: dict[str, Any]) -> None:
        kind = mount.get("type") or "bind"
        destination = mount["destination"]
        if kind in SYSTEM_MOUNT_TYPES and destination.startswith(("/proc", "/dev", "/sys")):
            return
        path = _below(root, destination)
        if kind == "tmpfs":
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.exists():
            container.limitations.append(Limitation(f"mount {destination}", "hidden by an earlier mount"))
            return
        source = Path(mount["source"])
        if not source.exists():
            raise ContainerError(
                f"mount source {source} does not exist", reason="CreateContainerError", subject=destination
            )
        path.symlink_to(source)
        container.limitations.append(Limitation(f"mount {destination}", f"a link at ${ROOT_VARIABLE}{destination}"))

    def _unapplied(self, container: Container, request: ContainerRequest) -> None:
        config = container.config
        limitations = container.limitations
        user = config["process"]["user"]
        if (user["uid"] and user["uid"] != os.getuid()) or request.user.groups:
            limitations.append(Limitation(f"user {user['uid']}:{user['gid']}", "the user of this process"))
        if user.get("additionalGids"):
            limitations.append(Limitation(f"additional groups {user['additionalGids']}", "not set"))
        if request.limits.memory_limit or request.limits.cpu_limit_milli:
            limitations.append(Limitation("cpu and memory limits", "not enforced"))
        if request.privileged or request.capabilities_add or request.capabilities_drop:
            limitations.append(Limitation("capabilities", "those of this process"))
        if request.read_only_root:
            limitations.append(Limitation("read-only root file system", "not enforced"))
        for name, edit in (("netDevices", "network devices"), ("intelRdt", "resource director")):
            if config.get("linux", {}).get(name):
                limitations.append(Limitation(edit, "not applied"))

    async def _run(self, container: Container) -> None:
        env = _environment(container)
        argv = _argv(container.config["process"]["args"], env, container.record.id)
        cwd = _working_directory(container)
        assert container.log is not None
        try:
            if container.config["process"].get("terminal"):
                child, master = _spawn_on_terminal(argv, env, cwd, whole_group=True)
                container.terminal = container.stdin = master
                os.set_blocking(master, False)
                container.log.follow(os.dup(master), 1)
            else:
                child = self._spawn_pipes(container, argv, env, cwd)
        except OSError as error:
            raise _not_executable(argv, error, container.record.id) from error
        container.record = replace(container.record, pid=child.pid)
        self._supervise(container, child.pid, asyncio.ensure_future(child.wait()))

    def _spawn_pipes(self, container: Container, argv: list[str], env: dict[str, str], cwd: Path) -> Child:
        assert container.log is not None
        stdin = os.pipe() if container.wants_stdin else None
        out, err = os.pipe(), os.pipe()
        try:
            child = spawn(
                argv,
                stdin=stdin[0] if stdin else -3,
                stdout=out[1],
                stderr=err[1],
                env=env,
                cwd=cwd,
                whole_group=True,
            )
        except OSError:
            for reader in (out[0], err[0], *(stdin[1:] if stdin else ())):
                os.close(reader)
            raise
        finally:
            for end in (out[1], err[1], *(stdin[:1] if stdin else ())):
                os.close(end)
        if stdin:
            container.stdin = stdin[1]
            os.set_blocking(stdin[1], False)
        container.log.follow(out[0], 1)
        container.log.follow(err[0], 2)
        return child

    async def _adopt(self, container: Container) -> None:
        """A child of a process that is gone cannot be waited for: it is ended, and counts as lost (exit unknown)."""
        if container.record.exit is not None:
            return
        if alive(container.record.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(container.record.pid, signal.SIGKILL)
        self._ended(container, None)

    def _signal(self, container: Container, number: int) -> None:
        # The whole group: there is no init process whose end takes the others along.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(container.record.pid, number)


def _end_strays(folder: Path) -> None:
    """End processes of containers below `folder` that nobody knows of.

    A cluster that is killed between starting a process and writing its number down leaves it running, and so does an
    exec that starts something in the background.
    """
    inside = f"{folder.absolute()}/"
    for pid, root in with_variable(ROOT_VARIABLE):
        if root.startswith(inside) and pid != os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _spawn_on_terminal(
    argv: list[str], env: dict[str, str], cwd: Path, *, whole_group: bool = False
) -> tuple[Child, int]:
    """A process with a terminal of its own, and the terminal's master side."""
    master, slave = open_terminal()
    try:
        # A session leader that opens a terminal gets it as its controlling terminal (shells want job control).
        leader = ["/bin/sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(slave), *argv]
        child = spawn(leader, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd, whole_group=whole_group)
    except OSError:
        os.close(master)
        raise
    finally:
        os.close(slave)
    return child, master


def _environment(container: Container) -> dict[str, str]:
    root = container.bundle / "rootfs"
    env = new_environment(container.config["process"]["env"])
    path = env.get("PATH", DEFAULT_PATH).split(":")
    private = [str(_below(root, entry)) for entry in path if entry.startswith("/") and _below(root, entry).is_dir()]
    env["PATH"] = ":".join([*private, *path])
    env[ROOT_VARIABLE] = str(root)
    env.setdefault("HOME", str(root))
    return env


def _working_directory(container: Container) -> Path:
    """The working directory inside the private root, so that relative names do not touch the host's files."""
    path = _below(container.bundle / "rootfs", container.config["process"].get("cwd") or "/")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _argv(command: list[str], env: dict[str, str], subject: str) -> list[str]:
    """The command with its program looked up on the container's PATH and in its private root."""
    program = command[0] if command else ""
    if "/" in program:
        private = _below(Path(env[ROOT_VARIABLE]), program) if program.startswith("/") else Path(program)
        found = str(private) if program.startswith("/") and private.exists() else program
    else:
        found = shutil.which(program, path=env["PATH"]) or ""
    if not found:
        raise ContainerError(
            f'exec: "{program}": executable file not found in $PATH', reason="StartError", subject=subject
        )
    return [found, *command[1:]]


def _not_executable(argv: list[str], error: OSError, subject: str) -> ContainerError:
    words = (error.strerror or str(error)).lower()
    return ContainerError(f'exec: "{argv[0]}": {words}', reason="StartError", subject=subject)


def _below(root: Path, path: str) -> Path:
    """`path` of the container inside its private root; `..` cannot leave it."""
    return root / os.path.normpath("/" + path).lstrip("/")
