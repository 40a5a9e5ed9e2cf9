"""What must go before a driver may be removed: pods that hold its devices, claims that are still allocated.

Without the driver the kubelet cannot unprepare, and a pod with a claim cannot end; without the classes a pod that waits
will wait for ever. So consumers go first, and what makes them again goes before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from drakkar.evidence.records import pods_of_claim
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of
from drakkar.migration.preflight.nodes import DRIVER

Object = dict[str, Any]

_FINISHED: Final = ("Succeeded", "Failed")

#: How to end what makes pods again, by kind.
_END: Final = {
    "Deployment": "kubectl scale -n {namespace} deployment/{name} --replicas=0",
    "StatefulSet": "kubectl scale -n {namespace} statefulset/{name} --replicas=0",
    "ReplicaSet": "kubectl scale -n {namespace} replicaset/{name} --replicas=0",
    "DaemonSet": "kubectl delete -n {namespace} daemonset/{name}",
    "Job": "kubectl delete -n {namespace} job/{name}",
    "CronJob": 'kubectl patch -n {namespace} cronjob/{name} -p \'{{"spec":{{"suspend":true}}}}\'',
    "Pod": "kubectl delete -n {namespace} pod/{name}",
    "ResourceClaim": "kubectl delete -n {namespace} resourceclaim/{name}",
}


@dataclass(frozen=True, slots=True)
class Blocker:
    """One object that must go: `why` names the devices, `command` ends it."""

    kind: str
    namespace: str
    name: str
    node: str
    why: str
    command: str

    def to_dict(self) -> dict[str, Any]:
        """The blocker as plain JSON."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "node": self.node,
            "why": self.why,
            "command": self.command,
        }


def blockers(snapshot: Snapshot, driver: str = DRIVER) -> list[Blocker]:
    """What holds devices of `driver`, in the order in which it must go: makers of pods, pods, claims."""
    held = {
        (namespace_of(claim), name_of(claim)): devices
        for claim in snapshot.all("ResourceClaim")
        if (devices := _devices(claim, driver))
    }
    makers: dict[tuple[str, str, str], Blocker] = {}
    pods: list[Blocker] = []
    claims: list[Blocker] = []
    for (namespace, name), devices in held.items():
        claim = snapshot.get("ResourceClaim", name, namespace)
        assert claim is not None
        users = [pod for pod in pods_of_claim(snapshot, claim) if _lives(pod)]
        for pod in users:
            node = (pod.get("spec") or {}).get("nodeName", "")
            why = f"holds {', '.join(devices)} by claim {name}"
            pods.append(_blocker(pod, node, why))
            maker = _maker(snapshot, pod)
            if maker is not None:
                key = (maker["kind"], namespace_of(maker), name_of(maker))
                makers.setdefault(key, _blocker(maker, "", "makes pods with claims again"))
        generated = any(owner.get("kind") == "Pod" for owner in claim["metadata"].get("ownerReferences") or ())
        if not (generated and users):  # it goes with its pod
            claims.append(_blocker(claim, "", f"is allocated {', '.join(devices)}"))
    return [*makers.values(), *_without_twice(pods), *claims]


def waiting(snapshot: Snapshot, driver: str = DRIVER) -> list[Object]:
    """Pods that are not on a node yet and would wait for ever: they ask for classes of the driver's devices."""
    classes = {
        name_of(one)
        for one in snapshot.all("DeviceClass")
        if any(
            driver in ((s.get("cel") or {}).get("expression") or "")
            for s in (one.get("spec") or {}).get("selectors") or ()
        )
    }
    found = []
    for pod in snapshot.all("Pod"):
        spec = pod.get("spec") or {}
        if spec.get("nodeName") or not _lives(pod):
            continue
        if any(_asks(snapshot, pod, entry, classes) for entry in spec.get("resourceClaims") or ()):
            found.append(pod)
    return found


def _asks(snapshot: Snapshot, pod: Object, entry: Object, classes: set[str]) -> bool:
    namespace = namespace_of(pod)
    template = snapshot.get("ResourceClaimTemplate", entry.get("resourceClaimTemplateName") or "", namespace)
    claim = snapshot.get("ResourceClaim", entry.get("resourceClaimName") or "", namespace)
    spec = ((template or {}).get("spec") or {}).get("spec") or (claim or {}).get("spec") or {}
    for request in (spec.get("devices") or {}).get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if isinstance(one, dict) and one.get("deviceClassName") in classes:
                return True
    return False


def _devices(claim: Object, driver: str) -> list[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [f"{one.get('pool')}/{one.get('device')}" for one in results if one.get("driver") == driver]


def _lives(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in _FINISHED


def _maker(snapshot: Snapshot, pod: Object) -> Object | None:
    """The outermost controller that the snapshot knows: a Deployment rather than its ReplicaSet."""
    found, current = None, pod
    for _ in range(4):
        owner = next((one for one in current["metadata"].get("ownerReferences") or () if one.get("controller")), None)
        if owner is None:
            break
        known = snapshot.by_uid(owner.get("uid", ""))
        if known is None:
            metadata = {"name": owner.get("name", ""), "namespace": namespace_of(pod)}
            return {"kind": owner.get("kind", ""), "metadata": metadata}
        found = current = known
    return found


def _blocker(obj: Object, node: str, why: str) -> Blocker:
    kind, namespace, name = str(obj.get("kind", "")), namespace_of(obj), name_of(obj)
    form = _END.get(kind, "end what owns it: " + kind.lower() + "/{name} in {namespace}")
    return Blocker(kind, namespace, name, node, why, form.format(namespace=namespace, name=name))


def _without_twice(pods: list[Blocker]) -> Iterator[Blocker]:
    """A pod with several claims is one blocker, with all its reasons."""
    merged: dict[tuple[str, str], Blocker] = {}
    for one in pods:
        key = (one.namespace, one.name)
        before = merged.get(key)
        why = one.why if before is None else f"{before.why}, {one.why.removeprefix('holds ')}"
        merged[key] = Blocker(one.kind, one.namespace, one.name, one.node, why, one.command)
    yield from merged.values()
