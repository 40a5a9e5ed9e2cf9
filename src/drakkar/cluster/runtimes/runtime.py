"""The seam between a kubelet and whatever runs containers; its shape is that of the CRI, without the gRPC.

A kubelet hands over a `ContainerRequest` (what CRI's ContainerConfig says: image, command, environment, mounts, CDI
device names) and gets exits back; the runtime writes an OCI bundle, has the CDI edits applied to it and runs it. Two
runtimes implement the protocol, and each is honest: what it could not apply of a bundle is in `limitations()`.

OCI runtime specification 1.2 (bundle, config.json); CRI v1 (RunPodSandbox is folded into the containers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from drakkar.cluster.streams import ExecSession
from drakkar.errors import DrakkarError


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount from the node into the container."""

    host_path: Path
    container_path: str
    read_only: bool = False
    propagation: str = "rprivate"


@dataclass(frozen=True, slots=True)
class User:
    """Who the process is; None means that the image decides."""

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """CPU in thousandths of a core, memory in bytes; None means no limit."""

    cpu_limit_milli: int | None = None
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class HostNode:
    """A device node of the host for a container: where it is here and there, permissions of r, w and m."""

    host: str
    container: str
    permissions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """Everything a runtime needs to know of one container.

    `command` and `args` are Kubernetes' words (entrypoint and its arguments; empty: the image's own). `annotations`
    are kept in the bundle and come back from `containers()`; `pod_labels` and `pod_annotations` are those of its pod
    (CRI's PodSandboxConfig), which only simulated containers look at. `cdi_devices` are qualified names, looked up in
    `cdi_dirs`, and `root_paths` are host paths to keep out of a root file system made from the host's.
    """

    id: str
    name: str
    image: str
    log: Path
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    mounts: Sequence[Mount] = ()
    cdi_devices: Sequence[str] = ()
    cdi_dirs: Sequence[Path] = ()
    nodes: Sequence[HostNode] = ()
    hostname: str = ""
    user: User = User()
    limits: Limits = Limits()
    privileged: bool = False
    read_only_root: bool = False
    capabilities_add: Sequence[str] = ()
    capabilities_drop: Sequence[str] = ()
    no_new_privileges: bool = False
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended: exit code (128 + signal number for a signal) and when.

    `known` is False where nobody saw the end (the supervisor was killed too).
    """

    code: int
    finished_at: datetime
    known: bool = True
    oom_killed: bool = False


@dataclass(frozen=True, slots=True)
class Limitation:
    """One edit of a bundle that a runtime did not apply as written: what, and what it did instead."""

    edit: str
    instead: str

    def to_dict(self) -> dict[str, str]:
        return {"edit": self.edit, "instead": self.instead}


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A container the runtime knows; `exit` is None while it runs, `started_at` None before."""

    id: str
    annotations: Mapping[str, str]
    bundle: Path
    image_id: str
    pid: int = 0
    started_at: datetime | None = None
    exit: Exit | None = None


class ContainerError(DrakkarError):
    """A container could not be created (`CreateContainerError`), started (`StartError`) or found (`NotFound`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A further process in a running container; it inherits the container's environment, user and directory."""

    command: Sequence[str]
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False


class Runtime(Protocol):
    """Containers by id. Every method may be called for many containers side by side; none blocks the event loop."""

    @property
    def name(self) -> str:
        """`runc` or `process`; also the scheme of container ids in pod status."""

    @property
    def version(self) -> str:
        """The runtime's version, for `nodeInfo.containerRuntimeVersion`."""

    async def open(self) -> None:
        """Make ready and take over what an earlier process left running. Raises `DrakkarError` with the next step."""

    async def close(self, *, kill: bool = True) -> None:
        """End everything (`kill`), or leave the containers running for the next `open`."""

    async def create(self, request: ContainerRequest) -> ContainerRecord:
        """Write the bundle and apply the CDI edits. Raises `ContainerError`; nothing is left behind then."""

    async def start(self, container_id: str) -> ContainerRecord:
        """Run it; returns once its first process runs. Raises `ContainerError` (reason StartError)."""

    async def wait(self, container_id: str) -> Exit:
        """The end of a started container."""

    async def kill(self, container_id: str, signal: int) -> None:
        """Send a signal to the first process; nothing happens if it has ended."""

    async def release(self, container_id: str) -> None:
        """Free what only a running container needs (its root file system); what describes it stays, as evidence."""

    async def delete(self, container_id: str) -> None:
        """Kill it if it still runs and remove every trace but the log."""

    async def exec(self, container_id: str, request: ExecRequest) -> ExecSession:
        """Start a process in a running container."""

    async def attach(self, container_id: str, *, stdin: bool) -> ExecSession:
        """Join the first process of a running container."""

    def probed(self, container_id: str, kind: str) -> bool | None:
        """What a probe (startup, readiness, liveness) or a hook of a container would say where nothing runs that
        could be asked; None where something does."""

    def containers(self) -> Sequence[ContainerRecord]:
        """All containers, ended ones included until deleted."""

    def limitations(self, container_id: str) -> Sequence[Limitation]:
        """What of this container's bundle was not applied as written."""


def summary(record: ContainerRecord, limitations: Sequence[Limitation]) -> dict[str, Any]:
    """One container as evidence: plain JSON."""
    return {
        "id": record.id,
        "bundle": str(record.bundle),
        "imageID": record.image_id,
        "pid": record.pid,
        "limitations": [limitation.to_dict() for limitation in limitations],
    }
