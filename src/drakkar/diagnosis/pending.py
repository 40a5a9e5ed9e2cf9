"""Why each pending pod waits: the finding about its own objects, for lists of many (board, metrics).

`explain` of one pod also looks at what is wrong around it; for a list the first failing boundary of each pod is enough,
and one `Situation` serves all of them. Pods that wait often wait in hundreds, all asking for the same: those that no
node has been chosen for and that differ in name only are examined once, and the others point to the one that was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from drakkar.diagnosis import workloads
from drakkar.diagnosis.funnel import requests_of
from drakkar.diagnosis.situation import ClaimUse, Situation
from drakkar.diagnosis.verdict import Finding
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference, uid_of

__all__ = ["as_twin", "findings_of_pending_pods", "what_it_wants"]

Object = dict[str, Any]
_PLACING = ("nodeSelector", "affinity", "tolerations", "schedulingGates", "topologySpreadConstraints", "schedulerName")


def findings_of_pending_pods(snapshot: Snapshot, *, limit: int = 0) -> dict[str, Finding]:
    """By pod UID: the finding about each pending pod that asks for devices.

    At most `limit` pods are examined (0: as many as there are); those left out are not in the answer.
    """
    situation = Situation(snapshot)
    found: dict[str, Finding] = {}
    examined: dict[bytes, tuple[Object, Finding]] = {}
    count = 0
    for pod in situation.pods_with_claims:
        if (pod.get("status") or {}).get("phase", "Pending") != "Pending":
            continue
        alike = what_it_wants(situation, pod)
        if alike in examined:
            found[uid_of(pod)] = as_twin(pod, *examined[alike])
        elif not limit or count < limit:
            count += 1
            finding = workloads.pod_finding(situation, pod)
            found[uid_of(pod)] = finding
            if alike:
                examined[alike] = (pod, finding)
    return found


def what_it_wants(situation: Situation, pod: Object) -> bytes:
    """Equal for pods that wait for the same reason; empty where a pod must be looked at by itself.

    That is the case for pods on a node, and for pods with claims that exist under a name of their own: somebody else
    may use them.
    """
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return b""
    uses = situation.claims_of(pod)
    if any(use.entry.get("resourceClaimName") or use.allocation for use in uses):
        return b""
    reasons = sorted({event.get("reason") or "" for event in situation.snapshot.events_of(pod)})
    wanted = [
        "" if _anywhere(uses, reasons) else namespace_of(pod),
        [[use.template_name, use.template is None, use.claim is None, use.devices] for use in uses],
        [spec.get(field) for field in _PLACING],
        [container.get("resources") for container in spec.get("containers") or ()],
        reasons,
        [condition.get("message") for condition in (pod.get("status") or {}).get("conditions") or ()],
    ]
    return msgspec.json.encode(wanted, order="deterministic")


def _anywhere(uses: list[ClaimUse], reasons: list[str]) -> bool:
    """Whether the namespace is no part of the reason: everything named exists, and only the scheduler has spoken."""
    if set(reasons) - {"FailedScheduling"}:
        return False
    return all(
        (use.claim is not None or use.template is not None)
        and not any(request.admin for request in requests_of(use.devices))
        for use in uses
    )


def as_twin(pod: Object, other: Object, finding: Finding) -> Finding:
    """The finding about a pod's twin, said of the pod."""
    if finding.subject != reference(other):
        return finding  # it is about something else, and that for both
    return replace(finding, subject=reference(pod), sentence=f"as pod {name_of(other)}: {finding.sentence}")
