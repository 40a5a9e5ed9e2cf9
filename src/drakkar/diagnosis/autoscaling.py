"""What an autoscaler said of a pod that waits: that nodes are on their way, or why none of its groups helps.

The events of cluster-autoscaler are read (``TriggeredScaleUp``, ``NotTriggerScaleUp``, and on its status ConfigMap what
failed); what it says never replaces the cause, since a pod that waits for a node waits for devices all the same. It is
added to the finding, with what each of the autoscaler's reasons asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from drakkar.diagnosis.verdict import HEALTHY, Evidence, Finding
from drakkar.evidence.snapshot import Snapshot, event_time, message_of, reference

__all__ = ["ScaleUp", "reasons_of", "scale_ups_of", "with_autoscaler"]

Object = dict[str, Any]

_TRIGGERED: Final = "TriggeredScaleUp"
_NOT_TRIGGERED: Final = "NotTriggerScaleUp"
_FAILED: Final = ("ScaleUpFailed", "FailedToScaleUpGroup", "ScaleUpTimedOut")
_STATUS: Final = "cluster-autoscaler-status"
_INFO: Final = re.compile(r"\{(\S+) (\d+)->(\d+) \(max: (\d+)\)\}")
_REASON: Final = re.compile(r"(\d+) (.+?)(?=, \d+ |$)")
_MEANINGS: Final = (
    ("max node group size reached", "raise the maximum of the group"),
    ("in backoff after failed scale-up", "see why it failed: kubectl describe cm -n kube-system " + _STATUS),
    ("not ready for scale-up", "see the group's health: kubectl get cm -n kube-system " + _STATUS + " -o yaml"),
    ("cannot allocate all claims", "have a group whose new nodes have such devices, and a provider that says so before"
     " there is a node (template slices)"),
    ("untolerated taint", "tolerate the taints of the group's nodes"),
    ("didn't match Pod's node affinity", "have a group with the labels that the pod asks of its node"),
    ("Insufficient", "have a group of larger machines, or ask for less"),
    ("limit reached", "raise the limit of the whole cluster"),
)  # fmt: skip


class ScaleUp(NamedTuple):
    """One group that an autoscaler makes larger."""

    group: str
    before: int
    after: int
    maximum: int


def scale_ups_of(message: str) -> list[ScaleUp]:
    """The groups of a ``TriggeredScaleUp`` message: ``pod triggered scale-up: [{pool 0->2 (max: 4)}]``."""
    return [ScaleUp(name, int(old), int(new), int(most)) for name, old, new, most in _INFO.findall(message)]


def reasons_of(message: str) -> list[tuple[int, str]]:
    """The reasons of a ``NotTriggerScaleUp`` message, each with the number of groups that have it."""
    return [(int(count), text) for count, text in _REASON.findall(message.partition(": ")[2])]


def with_autoscaler(snapshot: Snapshot, pod: Object, finding: Finding) -> Finding:
    """The finding about a pod, with what an autoscaler said of it last; the same if none did, or if it has a node."""
    if finding.cause == HEALTHY or pod.get("kind") != "Pod" or (pod.get("spec") or {}).get("nodeName"):
        return finding
    said = snapshot.events_of(pod, _TRIGGERED, _NOT_TRIGGERED)
    if not said:
        return finding
    last = said[-1]
    source = f"event {last.get('reason')} of {reference(pod)}"
    failed = list(_failures(snapshot, since=event_time(last)))
    if last.get("reason") == _TRIGGERED:
        sentence, step = _provisioning(message_of(last), failed)
    else:
        sentence, step = _refused(message_of(last))
    evidence = [Evidence(message_of(last), source), *failed]
    return replace(
        finding,
        sentence=f"{finding.sentence}; {sentence}",
        evidence=(*finding.evidence, *evidence),
        next_step="; or ".join(filter(None, (step, finding.next_step))) if failed or step else finding.next_step,
    )


def _provisioning(message: str, failed: list[Evidence]) -> tuple[str, str]:
    found = scale_ups_of(message)
    groups = ", ".join(f"{one.group} from {one.before} to {one.after} of at most {one.maximum}" for one in found)
    text = f"an autoscaler adds nodes for it ({groups or message})"
    if failed:
        return f"{text}, and that failed: {failed[-1].text}", f"kubectl describe cm -n kube-system {_STATUS}"
    return text, "wait until they are ready: kubectl get nodes --watch"


def _refused(message: str) -> tuple[str, str]:
    found = reasons_of(message)
    if not found:
        return "an autoscaler has no group that could help", ""
    told = ", ".join(f"{text} ({count} group{'' if count == 1 else 's'})" for count, text in found)
    steps = dict.fromkeys(step for _, text in found for words, step in _MEANINGS if words in text)
    return f"no group of the autoscaler helps: {told}", "; or ".join(steps)


def _failures(snapshot: Snapshot, *, since: str) -> Iterator[Evidence]:
    """What failed after the pod was promised a node."""
    for event in sorted(snapshot.events, key=event_time):
        about = event.get("involvedObject") or event.get("regarding") or {}
        if about.get("name") == _STATUS and event.get("reason") in _FAILED and event_time(event) >= since:
            where = f"event {event.get('reason')} of ConfigMap/{about.get('namespace')}/{_STATUS}"
            yield Evidence(message_of(event), where)
