"""Where an embedded cluster keeps its files.

Two folders, because they obey different rules: sockets need short paths and vanish with the process, so they lie in a
private folder of the user below the system's run-time directory; what must survive a restart lies in `data`, which is
the folder given by ``--data`` or, without one, a part of the run-time folder that is removed at the end. A file lock in
the run-time folder says whether a cluster of that name is running: unlike a process id it cannot outlive its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from drakkar.errors import DrakkarError
from drakkar.files import replace_file

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


class ClusterRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What a running cluster tells others about itself (``cluster.json``)."""

    name: str
    pid: int
    server: str
    kubeconfig: str
    data: str
    durable: bool
    runtime: str
    started: str
    nodes: list[str]


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of the cluster `name`."""

    name: str
    runtime: Path
    data: Path
    durable: bool
    memory: Path

    @property
    def record(self) -> Path:
        return self.runtime / "cluster.json"

    @property
    def control(self) -> Path:
        return self.runtime / "control.sock"

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    @property
    def runtime_name(self) -> Path:
        """Names the runtime whose containers may have outlived a killed cluster."""
        return self.data / "runtime.name"

    @property
    def left_over(self) -> bool:
        """Whether a cluster that was to keep nothing was killed and could not tidy up."""
        return not self.durable and self.runtime_name.exists()

    def node_cdi(self, node: str) -> Path:
        """The node's ``/var/run/cdi``."""
        return self.memory / "cdi" / node

    @property
    def log(self) -> Path:
        return self.runtime / "log"

    def node_data(self, node: str) -> Path:
        """What the node must not lose: machine state, journals, kubelet's checkpoint."""
        return self.data / "nodes" / node

    def node_root(self, node: str) -> Path:
        """Kubelet's root: a link into `node_data`, since unix sockets need short paths."""
        return self.runtime / "n" / node


def places(name: str, data: Path | None = None) -> Places:
    """The folders for `name`; nothing is made yet. Raises `DrakkarError` for a bad name."""
    if not _NAME.fullmatch(name):
        raise DrakkarError(
            f"{name!r} cannot be the name of a cluster",
            reason="InvalidName",
            subject="--name",
            expected="lower-case letters, digits and dashes, at most 32",
        )
    runtime = runtime_root() / name
    memory = _in_memory() / name if "DRAKKAR_RUNTIME_DIR" not in os.environ else runtime
    return Places(name, runtime, (data or runtime / "data").absolute(), data is not None, memory)


def runtime_root() -> Path:
    """The user's private folder for all clusters, made if needed."""
    chosen = os.environ.get("DRAKKAR_RUNTIME_DIR")
    if chosen:
        root = Path(chosen)
    elif os.environ.get("XDG_RUNTIME_DIR") and os.access(os.environ["XDG_RUNTIME_DIR"], os.W_OK):
        root = Path(os.environ["XDG_RUNTIME_DIR"]) / "drakkar"
    else:
        root = Path(tempfile.gettempdir()) / f"drakkar-{os.getuid()}"
    return _private(root)


def _in_memory() -> Path:
    """A private folder that costs no disk, where there is one: a real node has /run for such files."""
    memory = Path("/dev/shm")  # noqa: S108 - what is made in it is checked to be private
    return _private(memory / f"drakkar-{os.getuid()}") if os.access(memory, os.W_OK) else runtime_root()


def _private(root: Path) -> Path:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        # In a shared temporary directory somebody else could have made it first.
        raise DrakkarError(
            f"{root} is not a private directory of this user",
            reason="UnsafeDirectory",
            subject=str(root),
            next_step="set DRAKKAR_RUNTIME_DIR to a directory that only you can write",
        )
    return root


def names() -> list[str]:
    """The names of all clusters that left a run-time folder, running or not."""
    return sorted(path.parent.name for path in runtime_root().glob("*/lock"))


def taken(name: str) -> bool:
    """Whether a process holds the cluster `name`: also while it starts and while it cleans up."""
    try:
        with (runtime_root() / name / "lock").open("rb") as lock:
            return not _try_lock(lock)
    except OSError:
        return False


def running(name: str) -> ClusterRecord | None:
    """The record of the running cluster `name`; None if it does not run or is not ready to be talked to."""
    folder = runtime_root() / name
    try:
        with (folder / "lock").open("rb") as lock:
            if _try_lock(lock):
                return None
        return msgspec.json.decode((folder / "cluster.json").read_bytes(), type=ClusterRecord)
    except (OSError, msgspec.DecodeError):
        return None


@contextlib.contextmanager
def occupied(where: Places) -> Iterator[None]:
    """Hold the cluster's lock: a second `up` of the same name is refused, leftovers of a killed one are cleared.

    Without ``--data`` everything is removed at the end. Raises `DrakkarError` when the name is taken.
    """
    where.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (where.runtime / "lock").open("ab") as lock:
        if not _try_lock(lock):
            record = running(where.name)
            raise DrakkarError(
                f"a cluster named {where.name!r} is running already" + (f" (process {record.pid})" if record else ""),
                reason="AlreadyRunning",
                subject=where.name,
                next_step=f"use it, end it with `drakkar down --name {where.name}`, or choose another --name",
            )
        _clear(where)
        make_data(where.data)
        try:
            yield
        finally:
            _clear(where)
            if not where.durable:
                remove_tree(where.data)


def _clear(where: Places) -> None:
    """Remove what is of use to a running cluster only."""
    where.record.unlink(missing_ok=True)
    where.control.unlink(missing_ok=True)
    for folder in (where.runtime / "n", where.memory / "cdi"):
        remove_tree(folder)
    if where.memory != where.runtime:
        remove_tree(where.memory)


def remove_tree(folder: Path) -> None:
    """Remove `folder`, never what is mounted in it: a killed cluster may have left a view of the host there.

    Mounts below it are detached first; where that is not allowed, what lies under them is left.
    """
    from drakkar.cluster.runtimes.mounts import unmount

    text = str(folder.resolve())
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
        for point in sorted((point for point in points if point.startswith(f"{text}/")), reverse=True):
            with contextlib.suppress(DrakkarError, OSError):
                unmount(Path(point))
    with contextlib.suppress(OSError):
        _remove_on(folder, folder.lstat().st_dev)


def _remove_on(folder: Path, device: int) -> None:
    """Remove what lies on `device` only, so that nothing behind a mount point can be reached."""
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink()
            elif entry.stat(follow_symlinks=False).st_dev == device:
                _remove_on(Path(entry.path), device)
    with contextlib.suppress(OSError):
        folder.rmdir()


def make_data(folder: Path) -> None:
    """Make the data folder, or say why it cannot be used."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise DrakkarError(
            f"the data folder cannot be used: {error.strerror or error}",
            reason="DataUnusable",
            subject=str(folder),
            expected="a folder that this user can read and write",
        ) from error


def write_record(where: Places, record: ClusterRecord) -> None:
    """Publish `record`, whole or not at all."""
    replace_file(where.record, msgspec.json.encode(record), mode=0o600)


def _try_lock(file: IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
