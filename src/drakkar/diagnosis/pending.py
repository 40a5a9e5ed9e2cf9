"""Why each pending pod waits: the finding about its own objects, for lists of many (board, metrics).

`explain` of one pod also looks at what is wrong around it; for a list the first failing boundary of each pod is enough,
and one `Situation` serves all of them.
"""

from __future__ import annotations

from drakkar.diagnosis import workloads
from drakkar.diagnosis.situation import Situation
from drakkar.diagnosis.verdict import Finding
from drakkar.evidence.snapshot import Snapshot, uid_of

__all__ = ["findings_of_pending_pods"]


def findings_of_pending_pods(snapshot: Snapshot, *, limit: int = 0) -> dict[str, Finding]:
    """By pod UID: the finding about each pending pod that asks for devices; the first `limit` pods, or all (0)."""
    situation = Situation(snapshot)
    pods = [pod for pod in situation.pods_with_claims if (pod.get("status") or {}).get("phase", "Pending") == "Pending"]
    return {uid_of(pod): workloads.pod_finding(situation, pod) for pod in (pods[:limit] if limit else pods)}
