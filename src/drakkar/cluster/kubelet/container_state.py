"""What a kubelet knows of one container of a pod, across its restarts.

The three states are those of the API (waiting, running, terminated); `last` is the end of the run before. Values are
rendered to the API's JSON here and read back from it, because after a restart the pod's own status is what a kubelet
has of containers that its runtime lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from drakkar.kube.clock import parse_rfc3339, rfc3339

EPOCH: Final = "1970-01-01T00:00:00Z"


@dataclass(slots=True)
class Terminated:
    """The end of one run; `started_at` None if it never ran."""

    exit_code: int
    reason: str
    container_id: str
    started_at: datetime | None
    finished_at: datetime
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "containerID": self.container_id,
            "exitCode": self.exit_code,
            "finishedAt": rfc3339(self.finished_at),
            "reason": self.reason,
            "startedAt": rfc3339(self.started_at) if self.started_at else EPOCH,
        }
        if self.message:
            document["message"] = self.message
        return {key: value for key, value in document.items() if value != ""}


@dataclass(slots=True)
class ContainerState:
    """One container by name. `id` is the runtime's id of the current (or last) run, "" before the first."""

    name: str
    init: bool = False
    sidecar: bool = False
    ephemeral: bool = False
    id: str = ""
    container_id: str = ""
    image: str = ""
    image_id: str = ""
    restart_count: int = 0
    waiting_reason: str = "ContainerCreating"
    waiting_message: str = ""
    started_at: datetime | None = None
    running: bool = False
    terminated: Terminated | None = None
    last: Terminated | None = None
    started: bool = False
    ready: bool = False
    stopping: bool = False
    backed_off: bool = False

    @property
    def ran(self) -> bool:
        """Whether it runs now or has run before."""
        return self.running or self.terminated is not None or self.last is not None

    @property
    def succeeded(self) -> bool:
        return self.terminated is not None and self.terminated.exit_code == 0

    def wait(self, reason: str, message: str = "") -> None:
        """It is waiting to run (again): an earlier end becomes the last one."""
        if self.terminated is not None:
            self.last, self.terminated = self.terminated, None
        self.running = self.ready = self.started = False
        self.waiting_reason, self.waiting_message = reason, message

    def run(self, started_at: datetime) -> None:
        if self.terminated is not None:
            self.last, self.terminated = self.terminated, None
        self.running, self.started_at = True, started_at
        self.waiting_reason = self.waiting_message = ""
        self.backed_off = False

    def end(self, terminated: Terminated) -> None:
        self.running = self.ready = self.stopping = False
        self.started = False
        self.terminated = terminated

    def state_json(self) -> dict[str, Any]:
        """`state`: exactly one of waiting, running, terminated."""
        if self.running and self.started_at is not None:
            return {"running": {"startedAt": rfc3339(self.started_at)}}
        if self.terminated is not None:
            return {"terminated": self.terminated.to_json()}
        waiting = {"reason": self.waiting_reason}
        if self.waiting_message:
            waiting["message"] = self.waiting_message
        return {"waiting": waiting}


def restored(status: Mapping[str, Any], *, init: bool, sidecar: bool) -> ContainerState:
    """A container as the API last heard of it: count of restarts, ids and ends; a running one counts as running."""
    state = ContainerState(str(status["name"]), init, sidecar)
    state.container_id = status.get("containerID") or ""
    state.id = state.container_id.rpartition("://")[2]
    state.image, state.image_id = status.get("image") or "", status.get("imageID") or ""
    state.restart_count = int(status.get("restartCount") or 0)
    current = status.get("state") or {}
    state.last = _terminated((status.get("lastState") or {}).get("terminated"))
    state.terminated = _terminated(current.get("terminated"))
    running = current.get("running")
    if running is not None:
        state.running, state.started_at = True, _moment(running.get("startedAt"))
        state.waiting_reason = ""
    return state


def _terminated(document: Mapping[str, Any] | None) -> Terminated | None:
    if not document:
        return None
    started = _moment(document.get("startedAt"))
    finished = _moment(document.get("finishedAt"))
    if finished is None:
        return None
    return Terminated(
        int(document.get("exitCode") or 0),
        document.get("reason") or "",
        document.get("containerID") or "",
        started,
        finished,
        document.get("message") or "",
    )


def _moment(text: Any) -> datetime | None:
    try:
        return parse_rfc3339(text)
    except (TypeError, ValueError):
        return None
