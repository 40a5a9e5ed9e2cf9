"""What driver upgrades, reloads and reboots leave behind: nodes that wait, pods that outlived a reload, stuck claims.

The driver manager's labels say where an upgrade stands; start times say who was there before the driver was.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from drakkar.diagnosis.situation import Situation, ready
from drakkar.diagnosis.verdict import Evidence, Finding
from drakkar.evidence.snapshot import event_time, message_of, name_of, namespace_of, parse_time, reference, uid_of

__all__ = ["findings"]

Object = dict[str, Any]

STATE_LABEL: Final = "nvidia.com/gpu-driver-upgrade-state"
_WAITING: Final = ("wait-for-jobs-required", "pod-deletion-required", "drain-required", "upgrade-failed")


def findings(situation: Situation) -> Iterator[Finding]:
    """What upgrades and reboots left behind."""
    yield from _upgrade_waits(situation)
    yield from _cannot_end(situation)
    yield from _admitted_too_early(situation)
    yield from _outlived_the_driver(situation)


def _upgrade_waits(situation: Situation) -> Iterator[Finding]:
    for node in situation.snapshot.all("Node"):
        state = (node["metadata"].get("labels") or {}).get(STATE_LABEL, "")
        if state not in _WAITING:
            continue
        name = name_of(node)
        holders = [pod for pod in situation.snapshot.pods_on(name) if _holds(situation, pod)]
        if not holders:
            continue
        names = ", ".join(f"{namespace_of(pod)}/{name_of(pod)}" for pod in holders)
        events = [e for e in situation.snapshot.events_of(node) if "upgrade" in message_of(e).lower()]
        yield Finding(
            "driver-upgrade-blocked",
            reference(node),
            f"the driver upgrade of {name} is at {state} and waits for pods that hold the driver: {names}",
            (
                Evidence(f"{STATE_LABEL}={state}", reference(node)),
                *(
                    Evidence(f"pod {namespace_of(p)}/{name_of(p)} holds devices of {name}", reference(p))
                    for p in holders
                ),
                *(Evidence(message_of(event), f"event of {reference(node)}") for event in events[-2:]),
            ),
            f"end {names}, or let the upgrade policy delete pods (podDeletion.force, drain.enable)",
        )


def _cannot_end(situation: Situation) -> Iterator[Finding]:
    """A terminating pod whose claims cannot be unprepared."""
    for pod in situation.snapshot.all("Pod"):
        if not pod["metadata"].get("deletionTimestamp"):
            continue
        held = _held_after_its_end(situation, pod)
        if not held and not _holds(situation, pod):
            continue
        node = (pod.get("spec") or {}).get("nodeName", "")
        capture = situation.snapshot.nodes.get(node)
        lines = capture.journal_lines("unprepare", name_of(pod)) if capture is not None else []
        events = [
            event
            for event in situation.snapshot.events_of(pod)
            if event.get("type", "Warning") == "Warning" and "nprepare" in message_of(event)
        ]
        if not lines and not events and not held:
            continue
        words = message_of(events[-1]) if events else lines[-1].strip() if lines else held
        yield Finding(
            "unprepare-blocked",
            reference(pod),
            f"pod {name_of(pod)} cannot end because node {node} cannot unprepare its claims: {words}",
            (
                Evidence(f"terminating since {pod['metadata']['deletionTimestamp']}", reference(pod)),
                *(
                    Evidence(message_of(e), f"event {e.get('reason')} of {reference(pod)}, {event_time(e)}")
                    for e in events[-1:]
                ),
                *(Evidence(line.strip(), f"{node} journal.txt") for line in lines[-1:]),
                *([Evidence(held, f"{node} dra_manager_state")] if held else ()),
            ),
            f"bring the driver on {node} back; the kubelet repeats unprepare by itself",
            affects=frozenset({f"Node/{node}"}),
        )


def _held_after_its_end(situation: Situation, pod: Object) -> str:
    """What the kubelet still holds for a pod that should have ended by now and whose containers have; "" if nothing."""
    snapshot = situation.snapshot
    capture = snapshot.nodes.get((pod.get("spec") or {}).get("nodeName", ""))
    due = parse_time(pod["metadata"].get("deletionTimestamp"))
    states = [status.get("state") or {} for status in (pod.get("status") or {}).get("containerStatuses") or ()]
    ended = bool(states) and all("terminated" in state for state in states)
    if capture is None or due is None or snapshot.captured_at is None or not ended:
        return ""
    if snapshot.captured_at - due < _UNPREPARE_TIME:
        return ""
    held = [claim.name for claim in capture.prepared_claims or () if uid_of(pod) in claim.pods]
    return f"its containers have ended, and the kubelet still holds {', '.join(held)} for it" if held else ""


_UNPREPARE_TIME: Final = timedelta(seconds=2)  # it takes a fraction of one where a driver answers


def _admitted_too_early(situation: Situation) -> Iterator[Finding]:
    """After a reboot pods were admitted before the plugin had registered, and failed for good."""
    for node in situation.snapshot.all("Node"):
        name = name_of(node)
        plugins = [pod for pod in situation.plugin_pods(name) if ready(pod)]
        registered = [moment for plugin in plugins if (moment := _last_start(plugin)) is not None]
        failed = [
            pod
            for pod in situation.snapshot.pods_on(name)
            if (pod.get("status") or {}).get("phase") == "Failed"
            and (pod.get("status") or {}).get("reason") in ("UnexpectedAdmissionError", "PrepareDynamicResourcesFailed")
        ]
        rebooted = [event for event in situation.snapshot.events_of(node) if event.get("reason") == "Rebooted"]
        if not registered or not failed or not rebooted:
            continue
        pod = failed[-1]
        yield Finding(
            "boot-ordering",
            reference(node),
            f"{name} rebooted and admitted pods before the driver's plugin had registered:"
            f" {', '.join(map(name_of, failed))}",
            (
                Evidence(message_of(rebooted[-1]), f"event Rebooted of {reference(node)}, {event_time(rebooted[-1])}"),
                Evidence((pod.get("status") or {}).get("message", ""), f"{reference(pod)} status.message"),
                Evidence(f"plugin ready since {max(registered).isoformat()}", reference(plugins[0])),
            ),
            f"delete the failed pods; keep workloads off {name} by a taint until the plugin is ready",
        )


def _outlived_the_driver(situation: Situation) -> Iterator[Finding]:
    """A pod that holds claims started before the driver it now runs on."""
    for driver in situation.snapshot.all("Pod"):
        if "nvidia-driver-daemonset" not in name_of(driver) or not ready(driver):
            continue
        node = (driver.get("spec") or {}).get("nodeName", "")
        loaded = _last_start(driver)
        for pod in situation.snapshot.pods_on(node):
            started = _last_start(pod)
            if loaded is None or started is None or not _holds(situation, pod) or started >= loaded:
                continue
            if ready(pod):
                continue
            yield Finding(
                "driver-reload-survivor",
                reference(pod),
                f"pod {name_of(pod)} started before the driver on {node} was loaded anew and must be recreated",
                (
                    Evidence(f"container started at {started.isoformat()}", reference(pod)),
                    Evidence(f"driver container started at {loaded.isoformat()}", reference(driver)),
                ),
                f"kubectl delete pod {name_of(pod)} -n {namespace_of(pod)}",
                "likely",
            )


def _holds(situation: Situation, pod: Object) -> bool:
    return any(use.allocation for use in situation.claims_of(pod))


def _last_start(pod: Object) -> datetime | None:
    moments = []
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        moment = parse_time(((status.get("state") or {}).get("running") or {}).get("startedAt"))
        if moment is not None:
            moments.append(moment)
    return max(moments, default=None)
