"""Who owns what: devices that two hand out, claims that hold devices for nobody, and who may see every device.

Findings here are no causes of a failure; they are what an administrator should know before there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from drakkar.api.identities import DeviceKey
from drakkar.diagnosis import lifecycle, workloads
from drakkar.diagnosis.funnel import requests_of
from drakkar.diagnosis.rights import ADMIN_LABEL, Holder, admin_namespaces, holders
from drakkar.diagnosis.situation import Situation
from drakkar.diagnosis.verdict import Evidence
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, parse_time, reference, uid_of

__all__ = ["Audit", "Notice", "audit"]

Object = dict[str, Any]
_SHOWN: Final = 6
# Extended resources that other allocators of GPUs offer: the device is shared or handed out behind the claims' back.
_FOREIGN_RESOURCES: Final = {
    "nvidia.com/gpumem": "HAMi", "nvidia.com/gpucores": "HAMi", "nvidia.com/gpumem-percentage": "HAMi",
    "volcano.sh/vgpu-number": "Volcano", "volcano.sh/vgpu-memory": "Volcano",
    "aliyun.com/gpu-mem": "the gpushare plugin", "aliyun.com/gpu-count": "the gpushare plugin",
    "tencent.com/vcuda-core": "GPU Manager", "tencent.com/vcuda-memory": "GPU Manager",
    "amd.com/gpu": "AMD's device plugin", "gpu.intel.com/i915": "Intel's device plugin",
    "gpu.intel.com/xe": "Intel's device plugin",
}  # fmt: skip
_HARDWARE_NAMES: Final = ("uuid", "pciBusID", "resource.kubernetes.io/pciBusID")


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to know: `level` is warning (act) or note (know)."""

    code: str
    level: str
    subject: str
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    next_step: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "code": self.code,
            "level": self.level,
            "subject": self.subject,
            "sentence": self.sentence,
            "evidence": [item.to_dict() for item in self.evidence],
            "nextStep": self.next_step,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found: notices, warnings first, and who has which right over devices."""

    notices: tuple[Notice, ...]
    holders: tuple[Holder, ...]
    unread: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[Notice]:
        """What to act upon."""
        return [notice for notice in self.notices if notice.level == "warning"]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "notices": [notice.to_dict() for notice in self.notices],
            "rights": [holder.to_dict() for holder in self.holders],
            "unread": list(self.unread),
        }


def audit(snapshot: Snapshot) -> Audit:
    """Looks at owners, rights and leftovers of a snapshot."""
    situation = Situation(snapshot)
    rights = holders(snapshot)
    notices = [
        *_two_allocators(situation),
        *_published_twice(situation),
        *_foreign(situation),
        *_unused(situation),
        *_orphans(situation),
        *_admin_claims(situation),
        *_admin_creators(snapshot, rights),
        *_outsiders(rights),
    ]
    notices.sort(key=lambda notice: (notice.level != "warning", notice.code, notice.subject))
    return Audit(tuple(notices), tuple(rights), snapshot.unread)


def _two_allocators(situation: Situation) -> Iterator[Notice]:
    for finding in lifecycle.two_allocators(situation):
        yield Notice(
            "two-allocators", "warning", finding.subject, finding.sentence, finding.evidence, finding.next_step
        )


def _published_twice(situation: Situation) -> Iterator[Notice]:
    """One piece of hardware in the slices of two drivers: each may give it away."""
    seen: dict[tuple[str, str, str], tuple[DeviceKey, str]] = {}
    told: set[tuple[str, ...]] = set()
    for published in situation.devices:
        attributes = published.device.get("attributes") or {}
        for name in _HARDWARE_NAMES:
            value = (attributes.get(name) or {}).get("string")
            if not value or published.device.get("consumesCounters"):
                continue
            place = (published.node, name.rpartition("/")[2], str(value).lower())
            first = seen.setdefault(place, (published.key, published.slice_name))
            pair = (published.node, *sorted((first[0].driver, published.key.driver)))
            if first[0].driver != published.key.driver and pair not in told:
                told.add(pair)
                yield Notice(
                    "published-twice",
                    "warning",
                    f"Node/{published.node}",
                    f"{first[0].driver} and {published.key.driver} both publish {value} of {published.node}",
                    (
                        Evidence(f"{first[0]} has {name} {value}", f"ResourceSlice/{first[1]}"),
                        Evidence(f"{published.key} has {name} {value}", f"ResourceSlice/{published.slice_name}"),
                    ),
                    "let one driver have the device",
                )


def _foreign(situation: Situation) -> Iterator[Notice]:
    """Resources of other allocators on nodes that also have slices."""
    publishing = {published.node for published in situation.devices}
    for node in situation.snapshot.all("Node"):
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        for name, allocator in _FOREIGN_RESOURCES.items():
            if str(allocatable.get(name, "0")) == "0":
                continue
            both = name_of(node) in publishing
            yield Notice(
                "foreign-allocator",
                "warning" if both else "note",
                reference(node),
                f"{allocator} offers {name}: {allocatable[name]} on {name_of(node)}"
                + (", which also has ResourceSlices" if both else ""),
                (Evidence(f"{name}: {allocatable[name]}", f"{reference(node)} status.allocatable"),),
                "let one of them hand out the GPUs of a node" if both else "",
            )


def _unused(situation: Situation) -> Iterator[Notice]:
    for claim in situation.snapshot.all("ResourceClaim"):
        held = _held(claim)
        if held and workloads.forgotten(situation, claim):
            since = _since(claim)
            yield Notice(
                "claim-for-nobody",
                "warning",
                reference(claim),
                f"holds {_some(held)}{f' since {since}' if since else ''}, and no pod uses it",
                (
                    Evidence(
                        "reservedFor is empty and no pod names the claim", f"{reference(claim)} status.reservedFor"
                    ),
                ),
                f"ask its owner; kubectl delete resourceclaim {name_of(claim)} -n {namespace_of(claim)}",
            )


def _orphans(situation: Situation) -> Iterator[Notice]:
    """Claims whose pod is gone: nothing deletes them if the controller or the garbage collector missed it."""
    if situation.snapshot.why_unread("pods"):
        return
    known = {uid_of(pod) for pod in situation.snapshot.all("Pod")}
    for claim in situation.snapshot.all("ResourceClaim"):
        owners = [o for o in claim["metadata"].get("ownerReferences") or () if o.get("kind") == "Pod"]
        entries = [e for e in (claim.get("status") or {}).get("reservedFor") or () if e.get("resource") == "pods"]
        gone = [o for o in owners if o.get("uid") not in known]
        stale = [e for e in entries if e.get("uid") not in known]
        if not gone and not (entries and len(stale) == len(entries)):
            continue
        held = _held(claim)
        names = ", ".join(dict.fromkeys(f"{each.get('name')} ({each.get('uid')})" for each in (*gone, *stale)))
        deleted = claim["metadata"].get("deletionTimestamp")
        finalizers = ", ".join(claim["metadata"].get("finalizers") or ())
        yield Notice(
            "pod-long-gone",
            "warning" if held else "note",
            reference(claim),
            f"belongs to pod {names}, which is gone"
            + (f", and still holds {_some(held)}" if held else "")
            + (f"; it is being deleted since {deleted} and waits for {finalizers}" if deleted and finalizers else ""),
            (Evidence(f"no pod has UID {', '.join(str(e.get('uid')) for e in (*gone, *stale))}", reference(claim)),),
            "are the kubelet of its node and the resource claim controller up? they release it",
        )


def _admin_claims(situation: Situation) -> Iterator[Notice]:
    permitted = set(admin_namespaces(situation.snapshot))
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        for obj in situation.snapshot.all(kind):
            spec = obj.get("spec") or {}
            devices = (spec if kind == "ResourceClaim" else spec.get("spec") or {}).get("devices") or {}
            asking = [request.name for request in requests_of(devices) if request.admin]
            if not asking:
                continue
            users = situation.users_of(obj) if kind == "ResourceClaim" else ""
            unlabelled = namespace_of(obj) not in permitted
            unused = kind == "ResourceClaim" and users == "no pod"
            yield Notice(
                "admin-claim",
                "warning" if unlabelled or unused else "note",
                reference(obj),
                f"asks for admin access ({', '.join(asking)})"
                + (f", used by {users}" if users else "")
                + (f"; its namespace no longer has the label {ADMIN_LABEL}=true" if unlabelled else ""),
                (Evidence("adminAccess: true", f"{reference(obj)} request {asking[0]}"),),
                "delete it if nobody monitors with it" if unused else "",
            )


def _admin_creators(snapshot: Snapshot, rights: list[Holder]) -> Iterator[Notice]:
    """Who can see every device: by creating a claim where it is permitted, or by permitting it."""
    for namespace in admin_namespaces(snapshot):
        able = [
            holder
            for holder in rights
            if holder.right.code in ("create-claims", "create-templates")
            and holder.namespace in ("", namespace)
            and not holder.by_design
        ]
        names = list(dict.fromkeys(holder.who for holder in able))
        yield Notice(
            "admin-access-namespace",
            "warning" if any("system:authenticated" in name or "serviceaccounts" in name for name in names) else "note",
            f"Namespace/{namespace}",
            f"permits admin access; claims there may be created by {_some(names) if names else 'administrators only'}",
            (
                Evidence(f"{ADMIN_LABEL}=true", f"Namespace/{namespace} metadata.labels"),
                *(Evidence(f"{holder.who} {holder.right.meaning}", holder.through) for holder in able[:_SHOWN]),
            ),
            "keep this to the namespace of the monitoring stack",
        )
    both = {
        holder.who
        for holder in rights
        if holder.right.code == "label-namespaces" and not holder.by_design and not holder.names
    }
    creators = {holder.who for holder in rights if holder.right.code == "create-claims" and not holder.by_design}
    for who in sorted(both):
        through = next(h.through for h in rights if h.who == who and h.right.code == "label-namespaces")
        yield Notice(
            "may-permit-admin-access",
            "warning" if who in creators else "note",
            who,
            "may put the admin-access label on a namespace"
            + (" and create claims there: it can see every device" if who in creators else ""),
            (Evidence(f"{who} may change namespaces", through),),
            "forbid the label to them with an admission policy, or take the right away",
        )


def _outsiders(rights: list[Holder]) -> Iterator[Notice]:
    """Who decides over devices beside Kubernetes and the drivers' own service accounts."""
    for code, sentence in _DECIDING.items():
        for holder in rights:
            if holder.right.code != code or holder.by_design:
                continue
            account = holder.who.startswith("ServiceAccount ")
            yield Notice(
                code,
                "note" if account else "warning",
                holder.who,
                sentence + ("; a driver needs that" if account and code == "write-slices" else ""),
                (Evidence(f"{holder.who} {holder.right.meaning}", holder.through),),
                "" if account else "people should not need this right; use a role without it",
            )


_DECIDING: Final = {
    "write-slices": "may write ResourceSlices, and so say which devices exist",
    "write-claim-status": "may write the status of claims, and so give devices away",
    "write-claim-binding": "may allocate claims, and so give devices away",
}


def _held(claim: Object) -> list[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [
        str(DeviceKey(result.get("driver", ""), result.get("pool", ""), result.get("device", "")))
        for result in results
        if result.get("adminAccess") is not True
    ]


def _since(claim: Object) -> str:
    stamp = ((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp")
    return str(stamp) if parse_time(stamp) else ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
