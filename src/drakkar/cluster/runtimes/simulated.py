"""Containers without processes: they start, run and end on the cluster's clock, as data says (`behaviours`).

Everything up to the process is real: the bundle is written, CDI edits are applied to it and refused where they would
be. That makes days of a fleet cheap, and the same twice. What would need a process (exec) is refused, and probes are
answered from the data.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from drakkar.cluster.behaviours import Behaviour, Rule, behaviour_of
from drakkar.cluster.runtimes.bundles import BundleRuntime, Container
from drakkar.cluster.runtimes.commands import Course, course
from drakkar.cluster.runtimes.images import ImageStore
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRequest, ExecRequest, Limitation
from drakkar.cluster.streams import ExecSession
from drakkar.kube.chance import Chance
from drakkar.kube.clock import Clock

__all__ = ["SimulatedRuntime"]

_POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
_POD_NAME: Final = "io.kubernetes.pod.name"
_NOTHING_RUNS: Final = Limitation("process", "simulated: nothing runs, its course is data")
_SIGNALLED: Final = 128


@dataclass(slots=True)
class _Life:
    """One container's: what was said of it, whose it is, and the signal that ended it."""

    behaviour: Behaviour
    about: tuple[str, ...]
    ready_after: float = 0.0
    stopped: asyncio.Future[int] | None = None
    stopping: asyncio.Task[None] | None = None


class SimulatedRuntime(BundleRuntime):
    """Runs nothing. `rules` say how containers behave, `chance` draws from what they say."""

    name = "simulated"

    def __init__(
        self,
        root: Path,
        *,
        images: ImageStore | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        rules: Sequence[Rule] = (),
    ) -> None:
        super().__init__(root, images=images, clock=clock)
        self._chance = chance or Chance()
        self._rules = tuple(rules)
        self._lives: dict[str, _Life] = {}

    @property
    def version(self) -> str:
        return "1.0"

    async def exec(self, container_id: str, request: ExecRequest) -> ExecSession:
        container = self._running(container_id)
        raise ContainerError(
            "the container is simulated: no command runs in it",
            reason="BadRequest",
            subject=container.record.annotations.get(_POD_NAME, container_id),
            next_step="start the cluster with --runtime process (or runc) for containers that run",
        )

    def probed(self, container_id: str, kind: str) -> bool | None:
        container, life = self._containers.get(container_id), self._lives.get(container_id)
        if container is None or life is None or kind not in ("startup", "readiness"):
            return True
        began = container.record.started_at
        return began is not None and self.clock.now() >= began + timedelta(seconds=life.ready_after)

    # BundleRuntime

    async def _prepare(self, container: Container, request: ContainerRequest) -> None:
        annotations = request.annotations
        namespace, pod = annotations.get(_POD_NAMESPACE, ""), annotations.get(_POD_NAME, "")
        try:
            said = behaviour_of(self._rules, namespace, request.pod_labels, request.pod_annotations, request.name)
        except ValueError as error:
            raise ContainerError(str(error), reason="CreateContainerError", subject=request.name) from None
        container.limitations.append(_NOTHING_RUNS)
        self._lives[request.id] = _Life(said, (namespace, pod, request.name))

    async def _run(self, container: Container) -> None:
        life, loop = self._lives[container.record.id], asyncio.get_running_loop()
        said = life.behaviour
        if said.start_delay is not None:
            await self.clock.sleep(said.start_delay.draw(self._chance, "start", *life.about))
        if said.ready_after is not None:
            life.ready_after = said.ready_after.draw(self._chance, "ready", *life.about)
        container.end, life.stopped = loop.create_future(), loop.create_future()
        living = self._live(container, life, life.stopped, self._course(container, life))
        container.tasks.append(loop.create_task(living, name=f"simulated {life.about[-1]}"))

    def _course(self, container: Container, life: _Life) -> Course:
        """What it will do: as the command says, unless a behaviour says otherwise."""
        said = life.behaviour
        told = course(container.config["process"]["args"]) or Course(math.inf, 0)
        seconds = told.seconds
        code = said.code(self._chance, "code", *life.about)
        if said.runs is not None:
            seconds = said.runs.draw(self._chance, "runs", *life.about)
        elif code is not None and seconds == math.inf:
            seconds = 0.0  # whoever says how it ends wants it to end
        return Course(seconds, told.code if code is None else code, told.output)

    async def _live(self, container: Container, life: _Life, stopped: asyncio.Future[int], ahead: Course) -> None:
        living = asyncio.ensure_future(self._pass(container, ahead))
        try:
            await asyncio.wait((living, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            living.cancel()
        self._ended(container, stopped.result() if stopped.done() else ahead.code)
        if life.stopping is not None:
            life.stopping.cancel()

    async def _pass(self, container: Container, ahead: Course) -> None:
        now = 0.0
        for moment, text in ahead.output:
            if moment > ahead.seconds:
                break
            if moment > now:
                await self.clock.sleep(moment - now)
                now = moment
            if container.log is not None:
                container.log.write(text)
        if ahead.seconds == math.inf:
            await asyncio.get_running_loop().create_future()
        if ahead.seconds > now:
            await self.clock.sleep(ahead.seconds - now)

    def _signal(self, container: Container, number: int) -> None:
        life = self._lives.get(container.record.id)
        if life is None or life.stopped is None or life.stopped.done():
            return
        delay = life.behaviour.stop_delay if number != 9 else None
        if delay is None:
            life.stopped.set_result(_SIGNALLED + number)
        elif life.stopping is None:
            seconds = delay.draw(self._chance, "stop", *life.about)
            life.stopping = asyncio.ensure_future(self._stop_later(life.stopped, seconds, number))

    async def _stop_later(self, stopped: asyncio.Future[int], seconds: float, number: int) -> None:
        await self.clock.sleep(seconds)
        if not stopped.done():
            stopped.set_result(_SIGNALLED + number)

    def _save(self, container: Container) -> None:
        """Nothing survives the end of this process, so nothing is written down for the next one."""

    async def _adopt(self, container: Container) -> None:
        raise NotImplementedError  # bundles without a record are removed, not adopted

    async def _release(self, bundle: Path) -> None:
        """There is no root file system."""

    async def _remove(self, bundle: Path) -> None:
        life = self._lives.pop(bundle.name, None)
        if life is not None and life.stopping is not None:
            life.stopping.cancel()
        await super()._remove(bundle)
