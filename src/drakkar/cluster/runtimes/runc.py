"""Containers by runc: name spaces, real device nodes, a device cgroup, real hooks. Needs root on Linux.

`runc run` stays in the foreground as the container's supervisor, started through a shell that writes the exit code into
the bundle; both are in a session of their own, so a container survives this process and the next one takes it over. Its
output goes into named pipes that the supervisor holds open for reading and writing: nobody gets SIGPIPE while nobody
reads, and the container merely waits once 64 KiB are full.

runc 1.1; OCI runtime command line interface. The root file system is described in `mounts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drakkar.cluster.runtimes import mounts
from drakkar.cluster.runtimes.bundles import BundleRuntime, Container
from drakkar.cluster.runtimes.children import Child, run, spawn
from drakkar.cluster.runtimes.images import Image, ImageStore
from drakkar.cluster.runtimes.layers import unpack
from drakkar.cluster.runtimes.oci import exec_process
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRequest, ExecRequest
from drakkar.cluster.runtimes.sessions import ProcessSession, open_terminal
from drakkar.errors import DrakkarError
from drakkar.kube.clock import Clock

_SUPERVISOR = '"$@"; echo $? >"$0"'
_POLL = 0.002


class RuncRuntime(BundleRuntime):
    """`hidden` are shell patterns of host paths that a container made from the host's files must not see."""

    name = "runc"

    def __init__(
        self,
        root: Path,
        *,
        images: ImageStore | None = None,
        program: str = "runc",
        hidden: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        super().__init__(root, images=images, clock=clock)
        self._program = program
        self._hidden = tuple(hidden)
        self._version = ""
        self._extra_mounts: list[str] = []
        self._execs = 0

    @property
    def version(self) -> str:
        return self._version

    async def open(self) -> None:
        refusal = unavailable(self._program)
        if refusal is not None:
            raise refusal
        self.root.mkdir(parents=True, exist_ok=True)
        code, text = await run([self._program, "--version"])
        if code != 0:
            raise DrakkarError(f"runc does not run: {text}", reason="RuncBroken", next_step="runc --version")
        self._version = text.split()[2].partition("+")[0] if len(text.split()) > 2 else ""
        if not mounts.is_mounted(self._scratch):
            mounts.mount_tmpfs(self._scratch)
        mounts.write_mask(self._scratch / "mask", self._hidden, state=[self.root])
        self._extra_mounts = mounts.software_mounts()
        await super().open()

    async def close(self, *, kill: bool = True) -> None:
        await super().close(kill=kill)
        if kill:
            mounts.unmount(self._scratch)

    async def exec(self, container_id: str, request: ExecRequest) -> ProcessSession:
        container = self._running(container_id)
        self._execs += 1
        name = f"exec-{os.getpid()}-{self._execs}"
        process, pid_file = container.bundle / f"{name}.json", container.bundle / f"{name}.pid"
        process.write_text(json.dumps(exec_process(container.config, list(request.command), tty=request.tty)))
        argv = [*self._runc, "exec", "--process", str(process), "--pid-file", str(pid_file), container_id]

        def kill() -> None:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(pid_file.read_text()), signal.SIGKILL)

        return _terminal_session(argv, kill) if request.tty else _pipe_session(argv, request, kill)

    # BundleRuntime

    async def _prepare(self, container: Container, request: ContainerRequest) -> None:
        bundle, config = container.bundle, container.config
        scratch = self._scratch / request.id
        lower = await self._layers(container.image)
        await asyncio.to_thread(
            mounts.mount_overlay,
            bundle / "rootfs",
            lower=lower,
            upper=scratch / "upper",
            work=scratch / "work",
        )
        if not container.image.layers:
            bound = {mount["destination"] for mount in config["mounts"]}
            config["mounts"] = [
                {"destination": point, "type": "bind", "source": point, "options": ["rbind", "rprivate", "ro"]}
                for point in self._extra_mounts
                if point not in bound
            ] + config["mounts"]
        # runc 1.1 refuses a rule without access, which is what CDI's `permissions: none` becomes.
        resources = config.get("linux", {}).get("resources", {})
        if resources.get("devices"):
            resources["devices"] = [rule for rule in resources["devices"] if rule.get("access")]
        for stream in ("stdout", "stderr"):
            os.mkfifo(bundle / stream, 0o666)
            (bundle / stream).chmod(0o666)
        if request.stdin and not request.tty:
            os.mkfifo(bundle / "stdin", 0o600)

    async def _run(self, container: Container) -> None:
        bundle = container.bundle
        pid_file = bundle / "pid"
        argv = ["/bin/sh", "-c", _SUPERVISOR, str(bundle / "exit"), *self._runc]
        argv += ["--log", str(bundle / "runc.log"), "--log-format", "json"]
        argv += ["run", "--bundle", str(bundle), "--pid-file", str(pid_file), container.record.id]
        child = self._spawn_terminal(container, argv) if _tty(container) else self._spawn_pipes(container, argv)
        while not pid_file.exists():
            if child.ended:
                if pid_file.exists():
                    break
                raise ContainerError(_failure(bundle), reason="StartError", subject=container.record.id)
            await asyncio.sleep(_POLL)
        container.record = replace(container.record, pid=int(pid_file.read_text()))
        self._supervise(container, child.pid, asyncio.ensure_future(child.wait()))

    async def _adopt(self, container: Container) -> None:
        if container.record.exit is not None:
            return
        if not container.supervisor:
            await run([*self._runc, "delete", "--force", container.record.id])
            exit_file = container.bundle / "exit"
            code = (
                int(exit_file.read_text()) if exit_file.exists() and exit_file.read_text().strip().isdigit() else None
            )
            self._ended(container, code)
            return
        self._follow_log(container)
        if (container.bundle / "stdin").exists():
            container.stdin = os.open(container.bundle / "stdin", os.O_RDWR | os.O_NONBLOCK)
        self._supervise(container, container.supervisor)

    async def _release(self, bundle: Path) -> None:
        if (self.root / "runc" / bundle.name).exists():
            await run([*self._runc, "delete", "--force", bundle.name])
        mounts.unmount(bundle / "rootfs")
        if mounts.is_mounted(bundle / "rootfs"):
            # Never look into it then: below lie the host's own files.
            raise DrakkarError("the root file system is still mounted", reason="MountBusy", subject=str(bundle))
        await asyncio.to_thread(shutil.rmtree, self._scratch / bundle.name, True)
        await super()._release(bundle)

    def _resized(self, container: Container) -> None:
        # The shell is the leader of the group; runc asks its terminal for the size when it gets this signal.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(container.supervisor, signal.SIGWINCH)

    # Own parts

    @property
    def _scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def _runc(self) -> list[str]:
        return [self._program, "--root", str(self.root / "runc")]

    async def _layers(self, image: Image) -> list[Path]:
        """Lower directories of the root file system, top first."""
        if image.layers:
            return [await unpack(image, self.root / "images")]
        return [self._scratch / "mask", Path("/")]

    def _spawn_pipes(self, container: Container, argv: list[str]) -> Child:
        bundle = container.bundle
        self._follow_log(container)
        ends = [os.open(bundle / stream, os.O_RDWR) for stream in ("stdout", "stderr")]
        stdin = -1
        if (bundle / "stdin").exists():
            container.stdin = os.open(bundle / "stdin", os.O_RDWR | os.O_NONBLOCK)
            stdin = os.open(bundle / "stdin", os.O_RDONLY)
            if container.stdin_once:
                os.close(container.stdin)
                container.stdin = os.open(bundle / "stdin", os.O_WRONLY | os.O_NONBLOCK)
            ends.append(stdin)
        try:
            if stdin >= 0:
                return spawn(argv, stdin=stdin, stdout=ends[0], stderr=ends[1])
            return spawn(argv, stdout=ends[0], stderr=ends[1])
        finally:
            for end in ends:
                os.close(end)

    def _spawn_terminal(self, container: Container, argv: list[str]) -> Child:
        master, slave = open_terminal(raw=True)
        container.terminal = master
        container.stdin = master if (container.bundle / "stdin").exists() or _tty(container) else -1
        try:
            child = spawn(argv, stdin=slave, stdout=slave, stderr=slave)
        finally:
            os.close(slave)
        assert container.log is not None
        container.log.follow(os.dup(master), 1)
        os.set_blocking(master, False)
        return child

    def _follow_log(self, container: Container) -> None:
        if container.log is None:
            from drakkar.cluster.runtimes.container_log import ContainerLog

            container.log = ContainerLog(container.log_path)
        for channel, stream in ((1, "stdout"), (2, "stderr")):
            container.log.follow(os.open(container.bundle / stream, os.O_RDONLY | os.O_NONBLOCK), channel)


def unavailable(program: str = "runc") -> DrakkarError | None:
    """Why runc cannot be used here, or None if it can."""
    if not hasattr(os, "geteuid") or os.uname().sysname != "Linux":
        return DrakkarError(
            "the runc runtime needs Linux",
            reason="RuncUnavailable",
            next_step="use the process runtime: drakkar up --runtime process",
        )
    if os.geteuid() != 0:
        return DrakkarError(
            "the runc runtime needs root",
            reason="RuncUnavailable",
            expected="user id 0",
            next_step="run as root, or use the process runtime: drakkar up --runtime process",
        )
    if shutil.which(program) is None:
        return DrakkarError(
            f"{program} is not on PATH",
            reason="RuncMissing",
            expected="runc 1.1 or newer",
            next_step="apt-get install runc, or use the process runtime: drakkar up --runtime process",
        )
    return None


def _tty(container: Container) -> bool:
    return bool(container.config["process"].get("terminal"))


def _failure(bundle: Path) -> str:
    """runc's own words for why a container did not start."""
    with contextlib.suppress(OSError):
        for line in reversed((bundle / "runc.log").read_text().splitlines()):
            with contextlib.suppress(ValueError):
                entry: dict[str, Any] = json.loads(line)
                if entry.get("level") in ("error", "fatal"):
                    return f"OCI runtime create failed: {entry.get('msg', '')}"
    return f"OCI runtime create failed: runc ended without a word ({os.strerror(errno.EIO)})"


def _pipe_session(argv: list[str], request: ExecRequest, kill: Any) -> ProcessSession:
    pipes = {channel: os.pipe() for channel, wanted in ((1, request.stdout), (2, request.stderr)) if wanted}
    stdin = os.pipe() if request.stdin else None
    ends = [end for _, end in pipes.values()] + ([stdin[0]] if stdin else [])
    null = -3  # subprocess.DEVNULL
    try:
        child = spawn(
            argv,
            stdin=stdin[0] if stdin else null,
            stdout=pipes[1][1] if 1 in pipes else null,
            stderr=pipes[2][1] if 2 in pipes else null,
        )
    finally:
        for end in ends:
            os.close(end)
    outputs = {reader: channel for channel, (reader, _) in pipes.items()}
    return ProcessSession(child, stdin=stdin[1] if stdin else -1, outputs=outputs, on_close=kill)


def _terminal_session(argv: list[str], kill: Any) -> ProcessSession:
    master, slave = open_terminal(raw=True)
    try:
        child = spawn(argv, stdin=slave, stdout=slave, stderr=slave)
    finally:
        os.close(slave)
    return ProcessSession(
        child,
        stdin=master,
        outputs={master: 1},
        terminal=master,
        on_resize=lambda: child.kill(signal.SIGWINCH),
        on_close=kill,
    )
