"""The Multi-Process Service: one control daemon per claim and set of devices, started, watched and ended by the driver.

NVIDIA's driver makes a Deployment for each claim and waits for its pod inside NodePrepareResources, which fails where
pods may not do what the daemon needs. Here the daemon is a process of the node. It outlives the driver, so that a
restart does not end the work of those who use it: its process id and start time are kept beside its pipes, the next
driver finds it and goes on watching. One that dies is started again, with growing pauses, and told in an event.

Clients meet the daemon in two folders that the container gets: the pipes as /tmp/nvidia-mps and the shared memory as
/dev/shm (https://docs.nvidia.com/deploy/mps). The GPUs are in exclusive mode meanwhile, so nobody works beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

from drakkar.drivers.gpu.configs import MpsLimits
from drakkar.drivers.kit import PreparationError
from drakkar.errors import DrakkarError
from drakkar.files import replace_file
from drakkar.kube.clock import Clock
from drakkar.preparation.values import ClaimUID
from drakkar.vendors.nvidia.machine import MpsProgram

_log = logging.getLogger(__name__)
_READY_SECONDS = 10.0
_QUIT_SECONDS = 5.0
_NOBODY_LISTENS = "Cannot find MPS control daemon process"
_POLL_SECONDS = 0.02
_PAUSES = (0.5, 1.0, 2.0, 5.0, 15.0, 30.0)

#: Where containers find pipes and shared memory.
PIPES_IN_CONTAINER, SHM_IN_CONTAINER = "/tmp/nvidia-mps", "/dev/shm"  # noqa: S108 - names inside the container


@dataclass(frozen=True, slots=True)
class MpsGroup:
    """The devices of a claim that one daemon serves; `uuids` of GPUs or MIG devices, `gpus` indices of whole GPUs.

    `shares` are MiB by UUID: what the claim has of a device that others have shares of, too.
    """

    claim: ClaimUID
    uuids: tuple[str, ...]
    gpus: tuple[int, ...]
    limits: MpsLimits
    shares: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`<claim UID>-<five hexadecimal digits of the devices>`, as NVIDIA's driver names the folder."""
        return f"{self.claim}-{hashlib.sha256(','.join(self.uuids).encode()).hexdigest()[:5]}"

    def commands(self) -> list[str]:
        """What the daemon is told once it runs."""
        told = []
        if self.limits.active_thread_percentage is not None:
            told.append(f"set_default_active_thread_percentage {self.limits.active_thread_percentage}")
        for index, uuid in enumerate(self.uuids):
            limits = self.limits.pinned_memory
            asked = (limits.get(uuid, limits.get(str(index), limits.get(""))), self.shares.get(uuid))
            bounds = [bound for bound in asked if bound is not None]
            if bounds:
                told.append(f"set_default_device_pinned_mem_limit {uuid} {min(bounds)}M")
        return told


class _Daemon(NamedTuple):
    """What is kept of a daemon beside its pipes; `started` as in `_start_time`, `serves` once it has its limits."""

    pid: int
    started: str | None
    serves: bool


class MpsDaemons:
    """The daemons of one node, with their files in `folder`.

    Args:
        program: how the control program of the machine is run; raises `DrakkarError` where there is none.
        set_exclusive: sets the compute mode of the GPU with this index.
    """

    def __init__(
        self,
        folder: Path,
        program: Callable[[], MpsProgram],
        *,
        set_exclusive: Callable[[int, bool], None],
        clock: Clock,
    ) -> None:
        self._folder, self._program, self._clock = folder, program, clock
        self._set_exclusive = set_exclusive
        #: Hears (type, reason, message) of what an administrator should know.
        self.tell: Callable[[str, str, str], None] = lambda *_: None
        #: For each daemon the task that waits for its end, or that tries to start it again.
        self._watched: dict[str, asyncio.Task[None]] = {}

    async def start(self, group: MpsGroup) -> None:
        """Returns when the daemon of `group` serves with its limits; one that runs already is only watched.

        Raises:
            PreparationError: it does not come up; what was set for it is set back.
        """
        if group.name in self._watched:
            return
        for index in group.gpus:
            self._set_exclusive(index, True)
        try:
            known = self._running(group.name)
            self._watch(group, known.pid if known is not None and known.serves else await self._launch(group))
        except BaseException:
            await self.stop(group.claim, group.gpus)
            raise

    async def stop(self, claim: ClaimUID, gpus: Iterable[int]) -> None:
        """Ends the daemons of `claim`, removes their files, sets these GPUs back; none running is fine."""
        for name in [name for name in self._names() if name.rpartition("-")[0] == claim]:
            await self._end(name)
        for index in gpus:
            self._set_exclusive(index, False)

    async def sweep(self, wanted: Iterable[str]) -> None:
        """Ends daemons whose folder is here but whose group is not `wanted` (names)."""
        kept = set(wanted)
        for name in self._names():
            if name not in kept:
                _log.info("ending the MPS daemon of %s, which no claim has", name)
                await self._end(name)

    async def end_all(self) -> None:
        """Ends every daemon: the machine is going down."""
        await self.sweep(())

    async def leave(self) -> None:
        """Stop watching; the daemons run on for the next driver."""
        for name in list(self._watched):
            await self._unwatch(name)

    def edits(self, group: MpsGroup) -> dict[str, Any]:
        """What a container with a device of `group` gets beside the device."""
        options = ["rw", "nosuid", "nodev", "bind"]
        return {
            "env": [f"CUDA_MPS_PIPE_DIRECTORY={PIPES_IN_CONTAINER}"],
            "mounts": [
                {"hostPath": str(self._folder / group.name / inner), "containerPath": path, "options": options}
                for inner, path in (("shm", SHM_IN_CONTAINER), ("pipe", PIPES_IN_CONTAINER))
            ],
        }

    def _names(self) -> list[str]:
        folders = [folder.name for folder in self._folder.iterdir()] if self._folder.is_dir() else []
        return sorted({*folders, *self._watched})

    # --- one daemon -------------------------------------------------------------------------------------------------

    async def _launch(self, group: MpsGroup) -> int:
        program = self._program()
        folder = self._folder / group.name
        for inner in ("pipe", "shm", "log"):
            (folder / inner).mkdir(parents=True, exist_ok=True)
        await self._end_process(group.name)  # of a driver that was killed before its daemon had its limits
        environment = self._environment(program, group.name) | {"CUDA_VISIBLE_DEVICES": ",".join(group.uuids)}
        words = [*_with_own_shm(folder / "shm", program), "-f"]
        if group.limits.multi_user:
            words.append("-multiuser-server")
        with (folder / "log" / "output.log").open("ab") as output:
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - it outlives the loop
                    words,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd="/",
                )
            except OSError as error:
                raise _failed(group, f"it cannot be started: {error}") from error
        daemon = _Daemon(process.pid, _start_time(process.pid), serves=False)
        replace_file(folder / "daemon.json", json.dumps(daemon._asdict()))
        deadline = self._clock.monotonic() + _READY_SECONDS
        while not (folder / "pipe" / "control").exists():
            if process.poll() is not None:
                raise _failed(group, f"it ended with {process.returncode}: {_last_line(folder / 'log')}")
            if self._clock.monotonic() > deadline:
                raise _failed(group, f"it was not ready within {_READY_SECONDS:.0f} s: {_last_line(folder / 'log')}")
            await self._clock.sleep(_POLL_SECONDS)
        if commands := group.commands():
            await self._set_up(program, group.name, commands, deadline)
        replace_file(folder / "daemon.json", json.dumps(daemon._replace(serves=True)._asdict()))
        _log.info("MPS daemon of %s serves %s", group.name, ", ".join(group.uuids))
        return process.pid

    async def _set_up(self, program: MpsProgram, name: str, commands: Sequence[str], deadline: float) -> None:
        """The first commands: the daemon's pipe is there a moment before the daemon listens to it."""
        while True:
            try:
                return await self._command(program, name, commands)
            except PreparationError as error:
                if _NOBODY_LISTENS not in error.message or self._clock.monotonic() > deadline:
                    raise
            await self._clock.sleep(_POLL_SECONDS)

    async def _command(self, program: MpsProgram, name: str, commands: Sequence[str]) -> None:
        process = await asyncio.create_subprocess_exec(
            *program.command,
            env=self._environment(program, name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
        )
        try:
            async with asyncio.timeout(_QUIT_SECONDS):
                said, _ = await process.communicate("".join(f"{line}\n" for line in commands).encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            said = b"no answer"
        if process.returncode:
            raise PreparationError(
                f"the MPS daemon refuses {commands[0]!r}: {said.decode(errors='replace').strip()}",
                reason="MpsFailed",
                subject=name,
            )

    async def _end(self, name: str) -> None:
        await self._unwatch(name)
        await self._end_process(name)
        shutil.rmtree(self._folder / name, ignore_errors=True)

    async def _end_process(self, name: str) -> None:
        """Returns when no daemon runs in the folder of `name`: by its command, or, if it does not listen, by force."""
        daemon = self._running(name)
        patience = _QUIT_SECONDS if await self._quit(name) else 0
        deadline = self._clock.monotonic() + patience
        while daemon is not None and self._running(name) is not None:
            if self._clock.monotonic() >= deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(daemon.pid, signal.SIGKILL)
            await self._clock.sleep(_POLL_SECONDS)

    async def _quit(self, name: str) -> bool:
        """Ask whatever serves in the folder of `name` to end: whether something may have heard it."""
        control = self._folder / name / "pipe" / "control"
        if not control.exists():
            return False
        with contextlib.suppress(DrakkarError, OSError):
            await self._command(self._program(), name, ["quit"])
        control.unlink(missing_ok=True)
        return True

    def _running(self, name: str) -> _Daemon | None:
        """The daemon if it lives; the start time tells it from another process of that number."""
        try:
            daemon = _Daemon(**json.loads((self._folder / name / "daemon.json").read_bytes()))
            _reap(daemon.pid)
            return daemon if daemon.started is not None and _start_time(daemon.pid) == daemon.started else None
        except (OSError, ValueError, TypeError):
            return None

    def _watch(self, group: MpsGroup, pid: int) -> None:
        descriptor = os.pidfd_open(pid)
        task = asyncio.create_task(self._keep_running(group, descriptor), name=f"MPS daemon of {group.name}")
        task.add_done_callback(lambda _: os.close(descriptor))
        self._watched[group.name] = task

    async def _unwatch(self, name: str) -> None:
        task = self._watched.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _keep_running(self, group: MpsGroup, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(descriptor, ended.set_result, None)
        try:
            await ended
        finally:
            loop.remove_reader(descriptor)
        self.tell("Warning", "MpsDaemonEnded", f"the MPS daemon of {group.name} ended; it is started again")
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            await self._clock.sleep(pause)
            try:
                self._watch(group, await self._launch(group))
                return
            except (DrakkarError, OSError) as error:
                self.tell("Warning", "MpsDaemonFailed", f"the MPS daemon of {group.name}: {error}")

    def _environment(self, program: MpsProgram, name: str) -> dict[str, str]:
        folder = self._folder / name
        return {
            **program.environment,
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
        }


def _with_own_shm(shm: Path, program: MpsProgram) -> list[str]:
    """The command in a mount namespace in which /dev/shm is the folder that clients get; plain where that is no use."""
    if not program.real:
        return list(program.command)
    script = 'mount --bind "$1" /dev/shm && shift && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(shm), *program.command]


def _start_time(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat, clock ticks since boot; None for no process, or one that is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _last_line(folder: Path) -> str:
    for name in ("output.log", "control.log"):
        with contextlib.suppress(OSError):
            lines = (folder / name).read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1]
    return "it said nothing"


def _failed(group: MpsGroup, why: str) -> PreparationError:
    return PreparationError(
        f"the MPS control daemon for {', '.join(group.uuids)} does not serve: {why}",
        reason="MpsFailed",
        subject=group.name,
    )
