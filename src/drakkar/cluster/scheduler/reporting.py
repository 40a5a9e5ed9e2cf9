"""What users see of a failed attempt: Kubernetes' event and condition word for word, then our reasons.

Tools compare Kubernetes' sentence, which never says why devices could not be had. Our explanation therefore follows as
an event of its own, ten seconds later, if the pod still waits: short waits stay as quiet as in Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from drakkar.allocation import Refusal
from drakkar.errors import DrakkarError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock, rfc3339
from drakkar.kube.events import EventRecorder
from drakkar.kube.resources import PODS
from drakkar.scheduling.filters import Rejection
from drakkar.scheduling.pods import PodFacts

EXPLAIN_AFTER = 10.0
EXPLAINED = "DevicesNotAllocated"
_SHOWN = 3
_EXAMINED = 100
_log = logging.getLogger(__name__)


class Reporter:
    """Writes events and pod conditions in the background."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._explaining: set[str] = set()
        self._explained: dict[str, str] = {}

    def announce(self, pod: PodFacts, type: str, reason: str, message: str, action: str = "Scheduling") -> None:
        """An event about the pod."""
        self._recorder.record(_typed(pod), type, reason, message, action=action)

    def failed(self, pod: PodFacts, reason: str, message: str, explain: Callable[[], str] | None = None) -> None:
        """The pod could not be scheduled; `reason` is Unschedulable or SchedulerError.

        `explain` works out our own reasons; it is called only if the pod still waits ten seconds later.
        """
        self.announce(pod, "Warning", "FailedScheduling", message)
        if _condition(pod) != ("False", reason, message):
            self._start(self._set_condition(pod, reason, message))
        if explain is not None and pod.uid not in self._explaining:
            self._explaining.add(pod.uid)
            self._start(self._explain(pod, explain))

    def settled(self, uid: str) -> None:
        """The pod waits no more: nothing is left to explain."""
        self._explaining.discard(uid)
        self._explained.pop(uid, None)

    async def stop(self) -> None:
        """Drop what is still to be written."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _explain(self, pod: PodFacts, explain: Callable[[], str]) -> None:
        await self._clock.sleep(EXPLAIN_AFTER)
        if pod.uid not in self._explaining:
            return
        self._explaining.discard(pod.uid)
        explanation = explain()
        if explanation and self._explained.get(pod.uid) != explanation:
            self._explained[pod.uid] = explanation
            self.announce(pod, "Warning", EXPLAINED, explanation)

    async def _set_condition(self, pod: PodFacts, reason: str, message: str) -> None:
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "observedGeneration": pod.pod["metadata"].get("generation") or 1,
        }
        if _condition(pod)[0] != "False":
            condition["lastTransitionTime"] = rfc3339(self._clock.now())
        # New entries go to the end, as from Kubernetes' own patches.
        order = [one["type"] for one in (pod.pod.get("status") or {}).get("conditions") or ()]
        order += [] if "PodScheduled" in order else ["PodScheduled"]
        status = {"$setElementOrder/conditions": [{"type": one} for one in order], "conditions": [condition]}
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._client.patch(PODS, pod.name, patch, kind="strategic", namespace=pod.namespace, subresource="status")

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, work: Any) -> None:
        try:
            await work
        except DrakkarError as error:
            _log.info("pod status not written: %s", error)


def explanation_of(rejections: Iterable[Rejection]) -> str:
    """Our reasons, most frequent first: what each group of nodes lacks."""
    refusals = [one.detail for one in rejections if isinstance(one.detail, Refusal)]
    messages = Counter(one.message for one in refusals[:_EXAMINED])
    shown = [f"{count} node{'s' if count > 1 else ''}: {text}" for text, count in messages.most_common(_SHOWN)]
    if len(messages) > _SHOWN:
        shown.append(f"{len(messages) - _SHOWN} further reasons")
    if len(refusals) > _EXAMINED:
        shown.append(f"{len(refusals) - _EXAMINED} nodes not examined")
    return "; ".join(shown)


def _typed(pod: PodFacts) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod.pod["metadata"]}


def _condition(pod: PodFacts) -> tuple[str, str, str]:
    for one in (pod.pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled":
            return one.get("status") or "", one.get("reason") or "", one.get("message") or ""
    return "", "", ""
