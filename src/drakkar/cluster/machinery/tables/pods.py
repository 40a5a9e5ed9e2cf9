"""The row of a pod: what state its containers add up to, in the one word that people know from kubectl."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from drakkar.cluster.machinery.tables.ages import since
from drakkar.cluster.machinery.tables.words import NONE, age, images, label_text, name, spec, status

__all__ = ["CELLS", "pod_state"]

Json = Mapping[str, Any]


class _State:
    """What the containers add up to."""

    def __init__(self, pod: Json) -> None:
        inner, current = spec(pod), status(pod)
        initial = {container.get("name"): container for container in inner.get("initContainers") or ()}
        self.sidecars = {key for key, container in initial.items() if container.get("restartPolicy") == "Always"}
        self.total = len(inner.get("containers") or ()) + len(self.sidecars)
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""
        self.reason: str = current.get("reason") or current.get("phase") or ""
        if any(
            condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
            for condition in current.get("conditions") or ()
        ):
            self.reason = "SchedulingGated"
        self._add(pod, len(initial))

    def _add(self, pod: Json, initial: int) -> None:
        current = status(pod)
        initializing, sidecar_restarts, sidecar_last = self._initialize(current, initial)
        if not initializing or _condition(current, "Initialized"):
            self.restarts, self.last_restart = sidecar_restarts, sidecar_last
            self._run(current)
        deleted = (pod.get("metadata") or {}).get("deletionTimestamp")
        if deleted and current.get("reason") == "NodeLost":
            self.reason = "Unknown"
        elif deleted and current.get("phase") not in ("Succeeded", "Failed"):
            self.reason = "Terminating"

    def _initialize(self, current: Json, initial: int) -> tuple[bool, int, str]:
        restarts, last = 0, ""
        for index, container in enumerate(current.get("initContainerStatuses") or ()):
            sidecar = container.get("name") in self.sidecars
            self._count(container)
            if sidecar:
                restarts += container.get("restartCount") or 0
                last = max(last, _ended(container))
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if terminated is not None and not terminated.get("exitCode"):
                continue
            if sidecar and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if terminated is not None:
                self.reason = f"Init:{_word(terminated)}"
            elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{index}/{initial}"
            return True, restarts, last
        return False, restarts, last

    def _count(self, container: Json) -> None:
        self.restarts += container.get("restartCount") or 0
        self.last_restart = max(self.last_restart, _ended(container))

    def _run(self, current: Json) -> None:
        running, error = False, ""
        for container in reversed(current.get("containerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            terminated = state.get("terminated")
            if (state.get("waiting") or {}).get("reason"):
                self.reason = state["waiting"]["reason"]
            elif terminated is not None:
                self.reason = _word(terminated)
                if terminated.get("exitCode"):
                    error = self.reason
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and _condition(current, "Ready"):
                self.reason = "Running"
            elif error:
                self.reason = error
            elif running:
                self.reason = "NotReady"


def _word(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


def _ended(container: Json) -> str:
    finished: str = (((container.get("lastState") or {}).get("terminated")) or {}).get("finishedAt") or ""
    return finished


def _condition(current: Json, kind: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == "True"
        for condition in current.get("conditions") or ()
    )


def pod_state(pod: Json) -> str:
    """The state word of a pod: Pending, Running, CrashLoopBackOff, Init:0/1, Completed, Terminating, …"""
    return _State(pod).reason


def _pod(pod: Json, now: datetime) -> list[Any]:
    state = _State(pod)
    restarts = str(state.restarts)
    if state.restarts and state.last_restart:
        restarts = f"{state.restarts} ({since(state.last_restart, now)} ago)"
    inner, current = spec(pod), status(pod)
    addresses = current.get("podIPs") or [{}]
    return [
        name(pod),
        f"{state.ready}/{state.total}",
        state.reason,
        restarts,
        age(pod, now),
        addresses[0].get("ip") or NONE,
        inner.get("nodeName") or NONE,
        current.get("nominatedNodeName") or NONE,
        _gates(inner, current),
    ]


def _gates(inner: Json, current: Json) -> str:
    gates = inner.get("readinessGates") or ()
    if not gates:
        return NONE
    return f"{sum(_condition(current, gate.get('conditionType') or '') for gate in gates)}/{len(gates)}"


def _template(obj: Json, _: datetime) -> list[Any]:
    template = obj.get("template") or {}
    return [name(obj), *images(template), label_text((template.get("metadata") or {}).get("labels"))]


CELLS: Final = {"Pod": _pod, "PodTemplate": _template}
