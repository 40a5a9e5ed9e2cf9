"""What every runtime here does the same way: bundles on disk, CDI edits, logs, exits, adoption.

A bundle is `<root>/containers/<id>/` with `config.json` (after the CDI edits), `rootfs`, and `record.json`, the little
that a later process needs to take over: the pid and its start time. The exit code of a container is written by its
supervisor into `exit`, so that it is known even if nobody was there to see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drakkar.cluster.runtimes.children import alive, process_end, start_ticks
from drakkar.cluster.runtimes.container_log import ContainerLog
from drakkar.cluster.runtimes.images import Image, ImageStore
from drakkar.cluster.runtimes.oci import container_config
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRecord, ContainerRequest, Exit, Limitation
from drakkar.cluster.runtimes.sessions import AttachSession
from drakkar.errors import DrakkarError
from drakkar.files import replace_file
from drakkar.kube.clock import Clock, SystemClock

if TYPE_CHECKING:
    from drakkar.injection.cache import CdiCache


@dataclass(slots=True)
class Container:
    """One container as the runtime holds it."""

    record: ContainerRecord
    config: dict[str, Any]
    image: Image
    log_path: Path
    limitations: list[Limitation]
    wants_stdin: bool = False
    stdin_once: bool = False
    log: ContainerLog | None = None
    stdin: int = -1
    terminal: int = -1
    supervisor: int = 0
    end: asyncio.Future[Exit] | None = None
    killed_by: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def bundle(self) -> Path:
        return self.record.bundle


class BundleRuntime:
    """Base of the runtimes: everything but how a root file system is made and how a bundle is run."""

    name = ""

    def __init__(self, root: Path, *, images: ImageStore | None = None, clock: Clock | None = None) -> None:
        self.root = root
        self.clock = clock or SystemClock()
        self.images = images or ImageStore()
        self._containers: dict[str, Container] = {}
        self._caches: dict[tuple[Path, ...], CdiCache] = {}

    @property
    def version(self) -> str:
        return ""

    # The protocol

    async def open(self) -> None:
        folder = self.root / "containers"
        folder.mkdir(parents=True, exist_ok=True)
        for bundle in sorted(folder.iterdir()):
            container = self._load(bundle)
            if container is None:
                await self._remove(bundle)
            else:
                self._containers[container.record.id] = container
                await self._adopt(container)

    async def close(self, *, kill: bool = True) -> None:
        if kill:
            await asyncio.gather(*(self.delete(container_id) for container_id in list(self._containers)))
        for container in self._containers.values():
            for task in container.tasks:
                task.cancel()
            await asyncio.gather(*container.tasks, return_exceptions=True)
            if container.log is not None:
                container.log.finish()
        self._containers.clear()

    async def create(self, request: ContainerRequest) -> ContainerRecord:
        try:
            image = self.images.find(request.image)
        except DrakkarError as error:
            raise ContainerError(
                f"{error.message}: {error.subject}", reason="CreateContainerError", subject=request.image
            ) from error
        bundle = self.root / "containers" / request.id
        config = container_config(request, image)
        if not config["process"]["args"]:
            raise ContainerError("no command specified", reason="CreateContainerError", subject=request.image)
        config = self._inject(config, request)
        bundle.mkdir(parents=True, exist_ok=True)
        record = ContainerRecord(request.id, dict(request.annotations), bundle, image.id)
        container = Container(record, config, image, request.log, [])
        container.wants_stdin, container.stdin_once = request.stdin, request.stdin_once
        if image.stand_in and not request.command and not request.args:
            container.limitations.append(
                Limitation(f"image {image.name}", "its own entrypoint is unknown: " + " ".join(image.command)[:60])
            )
        try:
            await self._prepare(container, request)
            _write_json(bundle / "config.json", container.config)
            self._save(container)
        except (OSError, DrakkarError) as error:
            await self._remove(bundle)
            message = error.message if isinstance(error, DrakkarError) else str(error)
            raise ContainerError(message, reason="CreateContainerError", subject=request.id) from error
        self._containers[request.id] = container
        return record

    async def start(self, container_id: str) -> ContainerRecord:
        container = self._container(container_id)
        container.log = ContainerLog(container.log_path, clock=self.clock)
        try:
            await self._run(container)
        except OSError as error:
            container.log.finish()
            raise ContainerError(str(error), reason="StartError", subject=container_id) from error
        except DrakkarError:
            container.log.finish()
            raise
        container.record = replace(container.record, started_at=self.clock.now())
        self._save(container)
        return container.record

    async def wait(self, container_id: str) -> Exit:
        container = self._container(container_id)
        if container.record.exit is not None:
            return container.record.exit
        if container.end is None:
            raise ContainerError("the container has not started", reason="BadRequest", subject=container_id)
        return await asyncio.shield(container.end)

    async def kill(self, container_id: str, signal: int) -> None:
        container = self._container(container_id)
        if container.end is not None and not container.end.done():
            container.killed_by = signal
            self._signal(container, signal)

    async def release(self, container_id: str) -> None:
        container = self._containers.get(container_id)
        if container is not None and container.record.exit is not None:
            await self._release(container.bundle)

    async def delete(self, container_id: str) -> None:
        container = self._containers.get(container_id)
        if container is None:
            return
        if container.end is not None and not container.end.done():
            self._signal(container, signal.SIGKILL)
            await asyncio.wait((container.end,), timeout=10)
        if self._containers.pop(container_id, None) is not None:
            await self._remove(container.bundle)

    async def attach(self, container_id: str, *, stdin: bool) -> AttachSession:
        container = self._running(container_id)
        log = container.log
        end = container.end
        if log is None or end is None:
            raise ContainerError("the container has not started", reason="BadRequest", subject=container_id)

        def close_stdin() -> None:
            if container.stdin_once and container.stdin >= 0 and container.stdin != container.terminal:
                os.close(container.stdin)
                container.stdin = -1

        return AttachSession(
            log.listen,
            lambda: asyncio.shield(end),
            stdin=container.stdin if stdin else -1,
            terminal=container.terminal,
            on_stdin_closed=close_stdin,
            on_resize=lambda: self._resized(container),
        )

    def probed(self, container_id: str, kind: str) -> bool | None:
        """None: the container is a process that can be asked."""
        return None

    def containers(self) -> Sequence[ContainerRecord]:
        return [container.record for container in self._containers.values()]

    def limitations(self, container_id: str) -> Sequence[Limitation]:
        container = self._containers.get(container_id)
        return tuple(container.limitations) if container else ()

    # What a runtime fills in

    async def _prepare(self, container: Container, request: ContainerRequest) -> None:
        """Make the root file system and adapt `container.config`."""
        raise NotImplementedError

    async def _run(self, container: Container) -> None:
        """Start the supervisor, call `_supervise`, return when the first process runs (record.pid is set)."""
        raise NotImplementedError

    async def _adopt(self, container: Container) -> None:
        """Take over a container that an earlier process left behind."""
        raise NotImplementedError

    async def _release(self, bundle: Path) -> None:
        """Remove the root file system of a container that does not run; may be repeated."""
        await asyncio.to_thread(shutil.rmtree, bundle / "rootfs", True)

    async def _remove(self, bundle: Path) -> None:
        """Remove a bundle of a container that does not run."""
        await self._release(bundle)
        await asyncio.to_thread(shutil.rmtree, bundle, True)

    def _signal(self, container: Container, number: int) -> None:
        """Send a signal to the first process."""
        if alive(container.record.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(container.record.pid, number)

    def _resized(self, container: Container) -> None:
        """The terminal has a new size."""

    # Shared parts

    def _container(self, container_id: str) -> Container:
        try:
            return self._containers[container_id]
        except KeyError:
            raise ContainerError("no such container", reason="NotFound", subject=container_id) from None

    def _running(self, container_id: str) -> Container:
        container = self._container(container_id)
        if container.end is None or container.end.done():
            raise ContainerError("the container is not running", reason="BadRequest", subject=container_id)
        return container

    def _inject(self, config: dict[str, Any], request: ContainerRequest) -> dict[str, Any]:
        """The configuration with the requested device nodes and the edits of the requested CDI devices."""
        if request.nodes:
            config = _with_nodes(config, request)
        if not request.cdi_devices:
            return config
        from drakkar.injection.cache import CdiCache  # the parser is not needed by clusters without devices

        directories = tuple(request.cdi_dirs)
        cache = self._caches.get(directories)
        if cache is None:
            cache = self._caches[directories] = CdiCache(directories, auto_refresh=False)
        cache.refresh()
        try:
            injected: dict[str, Any] = cache.inject(config, list(request.cdi_devices))
        except DrakkarError as error:
            raise ContainerError(
                f"CDI device injection failed: {error.message}",
                reason="CreateContainerError",
                subject=", ".join(request.cdi_devices),
                expected=error.expected,
                next_step=error.next_step,
            ) from error
        return injected

    def _supervise(self, container: Container, supervisor: int, ended: asyncio.Future[int] | None = None) -> None:
        """Watch the supervisor from now on: its end is the container's end."""
        container.supervisor = supervisor
        container.end = asyncio.get_running_loop().create_future()
        container.tasks.append(asyncio.create_task(self._await_end(container, ended)))

    async def _await_end(self, container: Container, ended: asyncio.Future[int] | None) -> None:
        code: int | None
        if ended is not None:
            code = await asyncio.shield(ended)
        else:
            await process_end(container.supervisor)
            code = None
        recorded = _read_exit(container.bundle)
        code = recorded if recorded is not None else code
        self._ended(container, code)

    def _ended(self, container: Container, code: int | None) -> None:
        if container.log is not None:
            container.log.finish()
        for descriptor in {container.stdin, container.terminal} - {-1}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        container.stdin = container.terminal = -1
        end = Exit(137 if code is None else code, self.clock.now(), known=code is not None)
        container.record = replace(container.record, exit=end)
        self._save(container)
        if container.end is not None and not container.end.done():
            container.end.set_result(end)

    def _save(self, container: Container) -> None:
        record = container.record
        with contextlib.suppress(OSError):
            _write_json(
                record.bundle / "record.json",
                {
                    "id": record.id,
                    "image": container.image.name,
                    "log": str(container.log_path),
                    "pid": record.pid,
                    "pidStart": start_ticks(record.pid) if record.pid and record.exit is None else 0,
                    "supervisor": container.supervisor,
                    "supervisorStart": start_ticks(container.supervisor) if container.supervisor else 0,
                    "startedAt": record.started_at.timestamp() if record.started_at else None,
                    "exit": [record.exit.code, record.exit.finished_at.timestamp()] if record.exit else None,
                    "limitations": [[item.edit, item.instead] for item in container.limitations],
                },
            )

    def _load(self, bundle: Path) -> Container | None:
        """A container that an earlier process wrote; None if it never started or cannot be read."""
        try:
            document = json.loads((bundle / "record.json").read_bytes())
            config = json.loads((bundle / "config.json").read_bytes())
            if document["startedAt"] is None:
                return None
            image = self.images.find(document["image"])
            ended = document["exit"]
            record = ContainerRecord(
                document["id"],
                config.get("annotations") or {},
                bundle,
                image.id,
                document["pid"] if alive(document["pid"], document["pidStart"]) else 0,
                datetime.fromtimestamp(document["startedAt"], UTC),
                Exit(ended[0], datetime.fromtimestamp(ended[1], UTC)) if ended else None,
            )
            limitations = [Limitation(edit, instead) for edit, instead in document["limitations"]]
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
        container = Container(record, config, image, Path(document["log"]), limitations)
        if alive(document["supervisor"], document["supervisorStart"]):
            container.supervisor = document["supervisor"]
        return container


def new_environment(entries: Sequence[str]) -> dict[str, str]:
    """An OCI `env` list as a mapping; the last entry of a name wins."""
    return dict(entry.partition("=")[::2] for entry in entries)


def _read_exit(bundle: Path) -> int | None:
    try:
        return int((bundle / "exit").read_text())
    except (OSError, ValueError):
        return None


def _write_json(path: Path, document: dict[str, Any]) -> None:
    replace_file(path, json.dumps(document, separators=(",", ":")))


def _with_nodes(config: dict[str, Any], request: ContainerRequest) -> dict[str, Any]:
    """The configuration with nodes that a device plugin named; they are edits like any other."""
    from drakkar.injection import edit
    from drakkar.injection.host import lstat_node
    from drakkar.injection.model import ContainerEdits, DeviceNode

    nodes = [
        DeviceNode(path=node.container, host_path=node.host, permissions=node.permissions) for node in request.nodes
    ]
    try:
        return edit.apply(config, [ContainerEdits(device_nodes=tuple(nodes))], lstat_node).config
    except DrakkarError as error:
        raise ContainerError(
            f"failed to add a device node: {error.message}", reason="CreateContainerError", subject=request.name
        ) from error
