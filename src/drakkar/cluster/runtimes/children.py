"""Child processes without asyncio's child watcher.

asyncio reaps children in a thread each (3.11) or demands to be the only one to reap (uvloop); a kubelet has hundreds of
children that outlive it and that a later process must watch although they are not its children. A pidfd serves both
cases: it becomes readable when the process ends, whoever started it (Linux 5.3; elsewhere a thread waits).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


class Child:
    """A process started here: `await wait()` gives its exit code (128 + signal number for a signal).

    With `whole_group` the rest of its process group is killed when it ends, as an init takes its name space along.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *, whole_group: bool = False) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._whole_group = whole_group
        self._end = asyncio.ensure_future(self._watch())

    async def wait(self) -> int:
        return await asyncio.shield(self._end)

    @property
    def ended(self) -> bool:
        return self._end.done()

    def kill(self, number: int = 9, *, group: bool = False) -> None:
        """Signal the process (or its group, which it leads), SIGKILL by default; ignored once it was reaped."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(self.pid, number)

    async def _watch(self) -> int:
        await process_end(self.pid, self._popen)
        if self._whole_group:
            # Before it is reaped, so that its number cannot be another group's yet.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        code = self._popen.wait()
        return code if code >= 0 else 128 - code


def spawn(
    argv: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    whole_group: bool = False,
) -> Child:
    """Start a program as leader of its own session; file descriptors are numbers. Takes about a millisecond (vfork).

    `whole_group`: see `Child`. Raises `OSError` if it cannot be executed.
    """
    popen = subprocess.Popen(
        list(argv), stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True, close_fds=True
    )
    return Child(popen, whole_group=whole_group)


async def run(argv: Sequence[str], *, time_limit: float = 30.0) -> tuple[int, str]:
    """Run a short program to its end: exit code and its output, at most 64 KiB of it."""
    reader, writer = os.pipe()
    try:
        child = spawn(argv, stdout=writer, stderr=writer)
    except OSError as error:
        os.close(reader)
        return 127, str(error)
    finally:
        os.close(writer)
    os.set_blocking(reader, False)
    try:
        async with asyncio.timeout(time_limit):
            code = await child.wait()
    except TimeoutError:
        child.kill(group=True)
        code = await child.wait()
    output = b""
    with contextlib.suppress(BlockingIOError):
        output = os.read(reader, 65536)
    os.close(reader)
    return code, output.decode(errors="replace").strip()


async def process_end(pid: int, popen: subprocess.Popen[bytes] | None = None) -> None:
    """Return once the process `pid` has ended (it may be anyone's child); at once if there is none."""
    opener: Any = getattr(os, "pidfd_open", None)
    if opener is not None:
        try:
            descriptor = opener(pid, 0)
        except ProcessLookupError:
            return
        except OSError:
            descriptor = -1
        if descriptor >= 0:
            try:
                await readable(descriptor)
            finally:
                os.close(descriptor)
            return
    if popen is not None:
        await _thread_end(popen)
        return
    # Somebody else's child on a kernel without pidfds: there is nothing to wait on.
    while alive(pid):  # noqa: ASYNC110
        await asyncio.sleep(0.2)


async def _thread_end(popen: subprocess.Popen[bytes]) -> None:
    """Wait in a thread of its own: it may take as long as the process lives."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wait() -> None:
        popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, name=f"process {popen.pid}", daemon=True).start()
    await ended.wait()


def alive(pid: int, started: int = 0) -> bool:
    """Whether the process exists; with `started` (see `start_ticks`) whether it is still the same one."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not started or start_ticks(pid) == started


def with_variable(name: str) -> Iterator[tuple[int, str]]:
    """Processes of this user that were started with the variable `name` in their environment, and its value (Linux)."""
    wanted = f"{name}=".encode()
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                for line in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    if line.startswith(wanted):
                        yield int(entry.name), os.fsdecode(line[len(wanted) :])


def start_ticks(pid: int) -> int:
    """When the process began, in clock ticks since boot; with the pid it names a process uniquely. 0 if unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        # The second field is the program's name in brackets and may hold blanks; the 22nd is the start time.
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


async def readable(descriptor: int) -> None:
    """Wait until the descriptor can be read."""
    await _ready(descriptor, writing=False)


async def writable(descriptor: int) -> None:
    """Wait until the descriptor can be written."""
    await _ready(descriptor, writing=True)


async def _ready(descriptor: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def done() -> None:
        if not future.done():
            future.set_result(None)

    (loop.add_writer if writing else loop.add_reader)(descriptor, done)
    try:
        await future
    finally:
        (loop.remove_writer if writing else loop.remove_reader)(descriptor)
