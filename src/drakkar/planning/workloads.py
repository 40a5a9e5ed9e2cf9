"""The pods that a workload makes, with the claims that are made for them.

Names are those the controllers would give, as far as they can be known: a StatefulSet numbers its pods, the others get
a number instead of random letters. A claim from a template belongs to its pod and has a name that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference
from drakkar.planning.manifests import pod_template
from drakkar.scheduling.filters import reject
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.surge import replicas_of

__all__ = ["MAX_PODS", "PlannedPod", "completed", "planned_pod", "pods_of", "size_of"]

Object = dict[str, Any]

MAX_PODS: Final = 20_000
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_DAEMON_TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"),
    )
)  # fmt: skip
_SELF_CHOSEN: Final = frozenset({"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity"})


@dataclass(frozen=True)
class PlannedPod:
    """A pod that would come to be.

    Attributes:
        owner: the workload that makes it, ``Kind/namespace/name``; the pod itself where it stands alone.
        claims: the claims that are made for it from templates.
        missing: why it could not even be tried: a template or a priority class that is not there.
    """

    facts: PodFacts
    owner: str
    claims: tuple[Object, ...] = ()
    missing: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.facts.namespace}/{self.facts.name}"


def pods_of(snapshot: Snapshot, obj: Object, nodes: Callable[[], Iterator[NodeState]]) -> list[PlannedPod]:
    """All pods of a workload. `nodes` are those that a DaemonSet may choose from.

    Raises `DrakkarError` for a workload of more pods than anybody can mean.
    """
    kind = obj["kind"]
    if kind == "DaemonSet":
        return _daemons(snapshot, obj, nodes)
    count = size_of(obj)
    if count > MAX_PODS:
        raise DrakkarError(
            f"{reference(obj)} would be {count} pods",
            reason="TooManyPods",
            subject=reference(obj),
            expected=f"at most {MAX_PODS}",
        )
    name = name_of(obj)
    names = [name] if kind == "Pod" else [f"{name}-{number}" for number in range(count)]
    return [planned_pod(snapshot, obj, each) for each in names]


def size_of(obj: Object) -> int:
    """How many pods a workload runs at once."""
    spec = obj.get("spec") or {}
    match obj["kind"]:
        case "Pod":
            return 1
        case "CronJob":
            return _at_once(spec["jobTemplate"]["spec"])
        case "Job":
            return _at_once(spec)
        case _:
            return replicas_of(obj)


def planned_pod(
    snapshot: Snapshot, obj: Object, name: str, *, labels: Mapping[str, str] | None = None, identity: str = "plan"
) -> PlannedPod:
    """One pod of a workload under a name of its own; `identity` keeps apart pods of one name, one after the other."""
    template, _ = pod_template(obj)
    namespace = namespace_of(obj)
    spec, problem = _with_priority(snapshot, template.get("spec") or {})
    uid = f"{identity}:{namespace}/{name}"
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "labels": {**((template.get("metadata") or {}).get("labels") or {}), **(labels or {})},
    }
    if obj["kind"] != "Pod":
        owner = {"kind": obj["kind"], "name": name_of(obj), "uid": f"plan:{reference(obj)}", "controller": True}
        metadata["ownerReferences"] = [owner]
    claims, statuses = [], []
    for entry in spec.get("resourceClaims") or ():
        template_name = entry.get("resourceClaimTemplateName")
        if not template_name:
            continue
        source = snapshot.get("ResourceClaimTemplate", template_name, namespace)
        if source is None:
            problem = problem or (
                f"pod {namespace}/{name} uses ResourceClaimTemplate {template_name}, which neither the manifests nor"
                f" namespace {namespace} have"
            )
            continue
        claim = _claim_from(source, f"{name}-{entry['name']}", namespace, metadata)
        claims.append(claim)
        statuses.append({"name": entry["name"], "resourceClaimName": name_of(claim)})
    for entry in spec.get("resourceClaims") or ():
        claim_name = entry.get("resourceClaimName")
        if claim_name and snapshot.get("ResourceClaim", claim_name, namespace) is None:
            problem = problem or (
                f"pod {namespace}/{name} uses ResourceClaim {claim_name}, which neither the manifests nor"
                f" namespace {namespace} have"
            )
    pod: Object = {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "schedulingGates": []},
        "status": {"phase": "Pending", "resourceClaimStatuses": statuses},
    }  # fmt: skip
    return PlannedPod(PodFacts(pod), reference(obj), tuple(claims), problem, tuple(_notes(snapshot, obj, spec)))


def completed(snapshot: Snapshot, facts: PodFacts) -> PlannedPod:
    """A pod that is there and waits, with the claims that are still to be made for it."""
    owners = (facts.pod.get("metadata") or {}).get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    kind, name = (owner.get("kind"), owner.get("name")) if owner is not None else ("Pod", facts.name)
    label = f"{kind}/{facts.namespace}/{name}"
    if all(entry.claim_name or entry.skipped for entry in facts.claims):
        return PlannedPod(facts, label)
    statuses = {one["name"]: one for one in (facts.pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    claims, problem = [], ""
    for entry in facts.spec.get("resourceClaims") or ():
        template_name = entry.get("resourceClaimTemplateName")
        if not template_name or entry["name"] in statuses:
            continue
        template = snapshot.get("ResourceClaimTemplate", template_name, facts.namespace)
        if template is None:
            problem = (
                f"pod {facts.namespace}/{facts.name} uses ResourceClaimTemplate {template_name}, which namespace"
                f" {facts.namespace} does not have"
            )
            continue
        claim = _claim_from(template, f"{facts.name}-{entry['name']}", facts.namespace, dict(facts.pod["metadata"]))
        claims.append(claim)
        statuses[entry["name"]] = {"name": entry["name"], "resourceClaimName": name_of(claim)}
    status = {**(facts.pod.get("status") or {}), "resourceClaimStatuses": list(statuses.values())}
    return PlannedPod(PodFacts({**facts.pod, "status": status}), label, tuple(claims), problem)


def _at_once(spec: Mapping[str, Any]) -> int:
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    return parallelism if spec.get("completions") is None else min(parallelism, int(spec["completions"]))


def _daemons(snapshot: Snapshot, obj: Object, nodes: Callable[[], Iterator[NodeState]]) -> list[PlannedPod]:
    """One pod per node that the DaemonSet is for: labels and taints decide, room does not."""
    template, _ = pod_template(obj)
    spec = template.get("spec") or {}
    tolerations = [*(spec.get("tolerations") or ()), *_DAEMON_TOLERATIONS]
    found = []
    for number, node in enumerate(nodes()):
        field_of_name = {"key": "metadata.name", "operator": "In", "values": [node.name]}
        affinity = dict(spec.get("affinity") or {})
        own = dict(affinity.get("nodeAffinity") or {})
        rule = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = (own.get(rule) or {}).get("nodeSelectorTerms") or [{}]
        own[rule] = {
            "nodeSelectorTerms": [
                {**term, "matchFields": [*(term.get("matchFields") or ()), field_of_name]} for term in terms
            ]
        }
        pinned = {**spec, "tolerations": tolerations, "affinity": {**affinity, "nodeAffinity": own}}
        of_node = {**obj, "spec": {**obj["spec"], "template": {**template, "spec": pinned}}}
        pod = planned_pod(snapshot, of_node, f"{name_of(obj)}-{number}")
        rejection = reject(pod.facts, node)
        if rejection is None or rejection.plugin not in _SELF_CHOSEN:
            found.append(pod)
    return found


def _with_priority(snapshot: Snapshot, spec: Object) -> tuple[Object, str]:
    """The spec with the number behind its priority class, as admission fills it in; what is wrong with the class."""
    name = spec.get("priorityClassName")
    if name in _BUILT_IN:
        return {**spec, "priority": _BUILT_IN[name]}, ""
    known = {name_of(obj): obj for obj in snapshot.all("PriorityClass")}
    if name:
        found = known.get(name)
        if found is None:
            return spec, f"there is no PriorityClass {name}" if known else ""
    else:
        found = next((obj for obj in known.values() if obj.get("globalDefault") is True), None)
    if found is None or spec.get("priority") is not None:
        return spec, ""
    policy = found.get("preemptionPolicy")
    return {**spec, "priority": found["value"], **({"preemptionPolicy": policy} if policy else {})}, ""


def _claim_from(template: Object, name: str, namespace: str, pod: Object) -> Object:
    inner = template["spec"]
    metadata = inner.get("metadata") or {}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"], "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            **{part: metadata[part] for part in ("labels", "annotations") if metadata.get(part)},
            "name": name,
            "namespace": namespace,
            "uid": f"{pod['uid']}/{name}",
            "ownerReferences": [owner],
        },
        "spec": inner.get("spec") or {},
        "status": {},
    }


def _notes(snapshot: Snapshot, obj: Object, spec: Object) -> Iterator[str]:
    gates = [gate.get("name") or "" for gate in spec.get("schedulingGates") or ()]
    if gates:
        yield f"{reference(obj)} waits behind scheduling gate {', '.join(gates)}; it is judged as if the gate were open"
    if (obj.get("spec") or {}).get("suspend") is True:
        yield f"{reference(obj)} is suspended; it is judged as if it ran"
    name = spec.get("priorityClassName")
    if name and name not in _BUILT_IN and not snapshot.all("PriorityClass"):
        yield f"the priority of class {name} is not known, so 0 is taken"
    namespaces = {name_of(one) for one in snapshot.all("Namespace")}
    if namespaces and namespace_of(obj) not in namespaces:
        yield f"namespace {namespace_of(obj)} does not exist yet"
