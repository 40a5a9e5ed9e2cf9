"""A snapshot with the relations a detector asks for: a pod's claims, a claim's holders, devices, nodes, drivers.

Everything is worked out once, when first asked for, from the recorded objects alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from drakkar.allocation import ClusterState
from drakkar.api.identities import DeviceKey
from drakkar.diagnosis.selectors import Selectors
from drakkar.errors import DrakkarError
from drakkar.evidence.records import pods_of_claim
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference, uid_of
from drakkar.scheduling.extended_resources import ClassNames
from drakkar.scheduling.filters import Rejection, reject
from drakkar.scheduling.node_affinity import NodeSelector
from drakkar.scheduling.nodes import NodeState
from drakkar.scheduling.pods import PodFacts

__all__ = ["GPU_DRIVER", "ClaimUse", "Published", "Situation", "condition", "ready"]

Object = dict[str, Any]
T = TypeVar("T")

GPU_DRIVER: Final = "gpu.nvidia.com"
_GPU_LABELS: Final = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")


class Published(NamedTuple):
    """A device in the newest generation of its pool, with the slice that publishes it."""

    key: DeviceKey
    device: Object
    node: str
    slice_name: str

    @property
    def taints(self) -> list[Object]:
        return list(self.device.get("taints") or ())


@dataclass(frozen=True)
class ClaimUse:
    """One entry of a pod's ``spec.resourceClaims``: which claim it means, and the objects as far as they exist."""

    entry: Object
    claim_name: str
    template_name: str
    claim: Object | None
    template: Object | None
    implied: Object | None = None  # what an extended resource asks for while its claim does not exist

    @property
    def allocation(self) -> Object | None:
        return ((self.claim or {}).get("status") or {}).get("allocation")

    @property
    def devices(self) -> Object:
        """``spec.devices`` of the claim, or what its template would give."""
        if self.claim is not None:
            return (self.claim.get("spec") or {}).get("devices") or {}
        if self.implied is not None:
            return self.implied
        inner = ((self.template or {}).get("spec") or {}).get("spec") or {}
        return inner.get("devices") or {}


class Situation:
    """A snapshot and what follows from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._once: dict[Any, Any] = {}

    def once(self, key: Any, work: Callable[[], T]) -> T:
        """What `work` gave when it was first asked for under that key."""
        if key not in self._once:
            self._once[key] = work()
        found: T = self._once[key]
        return found

    def claims_of(self, pod: Object) -> list[ClaimUse]:
        """What the pod asks for, entry by entry."""
        namespace = namespace_of(pod)
        status = pod.get("status") or {}
        names = {
            entry.get("name"): entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()
        }
        uses = []
        for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
            claim_name = entry.get("resourceClaimName") or names.get(entry.get("name")) or ""
            template_name = entry.get("resourceClaimTemplateName") or ""
            claim = self.snapshot.get("ResourceClaim", claim_name, namespace) if claim_name else None
            if claim is None and template_name:
                claim = self._generated_claim(pod, entry.get("name", ""))
                claim_name = claim_name or (name_of(claim) if claim else "")
            template = self.snapshot.get("ResourceClaimTemplate", template_name, namespace) if template_name else None
            uses.append(ClaimUse(entry, claim_name, template_name, claim, template))
        extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
        if extended:
            claim = self.snapshot.get("ResourceClaim", extended, namespace)
            uses.append(ClaimUse({"name": extended}, extended, "", claim, None))
        elif implied := self._extended_requests(pod):
            label = ", ".join(request["name"] for request in implied)
            uses.append(ClaimUse({"name": label}, "", "", None, None, {"requests": implied}))
        return uses

    def _extended_requests(self, pod: Object) -> list[Object]:
        """Requests for extended resources that a DeviceClass stands behind and no node offers by itself (KEP-5004)."""
        found: list[Object] = []
        for container in (pod.get("spec") or {}).get("containers") or ():
            for name, count in ((container.get("resources") or {}).get("limits") or {}).items():
                class_name = self._classes_by_resource.get(name)
                if class_name is not None and name not in self._offered_resources and str(count).isdigit():
                    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": int(count)}
                    found.append({"name": name, "exactly": exactly})
        return found

    @cached_property
    def _classes_by_resource(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for device_class in self.snapshot.all("DeviceClass"):
            name = name_of(device_class)
            names[f"deviceclass.resource.kubernetes.io/{name}"] = name
            explicit = (device_class.get("spec") or {}).get("extendedResourceName")
            if explicit:
                names[explicit] = name
        return names

    @cached_property
    def _offered_resources(self) -> frozenset[str]:
        allocatable = [(node.get("status") or {}).get("allocatable") or {} for node in self.snapshot.all("Node")]
        return frozenset(name for offered in allocatable for name, value in offered.items() if str(value) != "0")

    @cached_property
    def pods_with_claims(self) -> list[Object]:
        """Pods that ask for devices through claims."""
        return [pod for pod in self.snapshot.all("Pod") if self.claims_of(pod)]

    @cached_property
    def devices(self) -> list[Published]:
        """Every device of the newest generation of each pool, in the order of slices."""
        newest: dict[tuple[str, str], int] = {}
        for _, driver, pool, generation in self._slices():
            newest[driver, pool] = max(newest.get((driver, pool), 0), generation)
        found = []
        for piece, driver, pool, generation in self._slices():
            if generation != newest[driver, pool]:
                continue
            spec = piece["spec"]
            for device in spec.get("devices") or ():
                key = DeviceKey(driver, pool, device.get("name", ""))
                node = device.get("nodeName") or spec.get("nodeName") or ""
                found.append(Published(key, device, node, name_of(piece)))
        return found

    def devices_on(self, node: str) -> tuple[int, int]:
        """How many devices of a node are published, and how many of those are held."""
        return self._devices_by_node.get(node, (0, 0))

    @cached_property
    def _devices_by_node(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for published in self.devices:
            count, held = found.get(published.node, (0, 0))
            found[published.node] = (count + 1, held + (published.key in self.holders))
        return found

    @cached_property
    def selectors(self) -> Selectors:
        """Answers of selectors about these devices."""
        return Selectors()

    @cached_property
    def allocator(self) -> ClusterState:
        """The state of the cluster as the allocator sees it."""
        state = ClusterState()
        for kind, take in (
            ("ResourceSlice", state.upsert_slice),
            ("DeviceClass", state.upsert_class),
            ("DeviceTaintRule", state.upsert_taint_rule),
            ("ResourceClaim", state.upsert_claim),
        ):
            for obj in self.snapshot.all(kind):
                try:
                    take(obj)
                except DrakkarError:
                    continue  # a damaged object of a bundle is not there
        return state

    @cached_property
    def holders(self) -> dict[DeviceKey, list[Object]]:
        """Claims that hold each device (admin access aside)."""
        held: dict[DeviceKey, list[Object]] = {}
        for claim in self.snapshot.all("ResourceClaim"):
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                if result.get("adminAccess") is not True:
                    key = DeviceKey(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
                    held.setdefault(key, []).append(claim)
        return held

    def users_of(self, claim: Object) -> str:
        """Who uses a claim, for people: its pods, or that nobody does."""
        entries = (claim.get("status") or {}).get("reservedFor") or ()
        names = [f"{entry.get('resource', 'pods').rstrip('s')} {entry.get('name', '')}" for entry in entries]
        if names:
            return ", ".join(names)
        pods = [name_of(pod) for pod in pods_of_claim(self.snapshot, claim)]
        return ", ".join(f"pod {name}" for name in pods) or "no pod"

    @cached_property
    def gpu_nodes(self) -> list[Object]:
        """Nodes whose labels say that they have NVIDIA GPUs, or whose capture shows some."""
        found = []
        for node in self.snapshot.all("Node"):
            labels = node["metadata"].get("labels") or {}
            capture = self.snapshot.nodes.get(name_of(node))
            if any(labels.get(label) == "true" for label in _GPU_LABELS) or (capture is not None and capture.gpus):
                found.append(node)
        return found

    def slices_of(self, node: str, driver: str) -> list[Object]:
        """Slices of a driver for one node."""
        return self._slices_by_node.get((node, driver), [])

    @cached_property
    def _slices_by_node(self) -> dict[tuple[str, str], list[Object]]:
        found: dict[tuple[str, str], list[Object]] = {}
        for piece, driver, _, _ in self._slices():
            found.setdefault(((piece.get("spec") or {}).get("nodeName") or "", driver), []).append(piece)
        return found

    @cached_property
    def plugin_sets(self) -> list[Object]:
        """DaemonSets that run a DRA driver's node plugin."""
        return [
            daemon
            for daemon in self.snapshot.all("DaemonSet")
            if _is_plugin((daemon.get("spec") or {}).get("template") or {})
        ]

    def plugin_pods(self, node: str = "") -> list[Object]:
        """Node plugin pods of DRA drivers, on one node or on all."""
        plugins = self._plugins_by_node
        return plugins.get(node, []) if node else [pod for pods in plugins.values() for pod in pods]

    @cached_property
    def _plugins_by_node(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for pod in self.snapshot.all("Pod"):
            if _is_plugin(pod):
                found.setdefault((pod.get("spec") or {}).get("nodeName") or "", []).append(pod)
        return found

    def refusals(self, pod: Object) -> dict[str, str]:
        """By node: why the node itself (labels, taints, room) would refuse the pod, "" where it would not."""
        return {
            name: ", ".join(rejection.reasons) if rejection else "" for name, rejection in self.rejections(pod).items()
        }

    def rejections(self, pod: Object) -> dict[str, Rejection | None]:
        """By node: the refusal of the node itself, None where it would take the pod."""
        facts = PodFacts({**pod, "spec": {**(pod.get("spec") or {}), "nodeName": ""}})
        backed = self._class_names.backed(facts.requests)  # what classes provide is no matter of the node's own room
        return {state.name: reject(facts, state, backed) for state in self.node_states.values()}

    @cached_property
    def _class_names(self) -> ClassNames:
        return ClassNames(self.snapshot.all("DeviceClass"))

    def selects(self, selector: Object, node: Object) -> bool:
        """Whether the node selector of an allocation takes a node; one that cannot be read takes none."""
        try:
            labels = (node.get("metadata") or {}).get("labels") or {}
            return NodeSelector.parse(selector).matches(name_of(node), labels)
        except DrakkarError:
            return False

    @cached_property
    def node_states(self) -> Mapping[str, NodeState]:
        """Nodes with the pods on them, as a scheduler counts."""
        states = {}
        for node in self.snapshot.all("Node"):
            state = NodeState(name_of(node))
            state.update(node)
            states[state.name] = state
        for pod in self.snapshot.all("Pod"):
            facts = PodFacts(pod)
            if facts.node_name in states and not facts.finished:
                states[facts.node_name].add(facts)
        return states

    def _slices(self) -> Iterator[tuple[Object, str, str, int]]:
        for piece in self.snapshot.all("ResourceSlice"):
            spec = piece.get("spec") or {}
            pool = spec.get("pool") or {}
            yield piece, spec.get("driver", ""), pool.get("name", ""), pool.get("generation") or 0

    def _generated_claim(self, pod: Object, entry: str) -> Object | None:
        annotation = "resource.kubernetes.io/pod-claim-name"
        for claim in self.snapshot.owned_by(pod, "ResourceClaim"):
            if (claim["metadata"].get("annotations") or {}).get(annotation) == entry:
                return claim
        return None


def ready(obj: Object) -> bool:
    """Whether a pod or node says that it is ready."""
    return (condition(obj, "Ready") or {}).get("status") == "True"


def condition(obj: Object, kind: str) -> Object | None:
    """The status condition of a type."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return dict(entry)
    return None


def owner_chain(snapshot: Snapshot, obj: Object) -> Iterator[Object]:
    """The object and its controllers upwards: pod, replica set, deployment."""
    seen: set[str] = set()
    current: Object | None = obj
    while current is not None and uid_of(current) not in seen:
        yield current
        seen.add(uid_of(current))
        owners = current["metadata"].get("ownerReferences") or ()
        current = next((snapshot.by_uid(owner.get("uid", "")) for owner in owners if owner.get("controller")), None)


def affected(snapshot: Snapshot, pod: Object) -> frozenset[str]:
    """References of everything that a finding about a pod explains: the pod, its owners and its claims."""
    found = {reference(owner) for owner in owner_chain(snapshot, pod)}
    for use in Situation(snapshot).claims_of(pod):
        if use.claim is not None:
            found.add(reference(use.claim))
    return frozenset(found)


def _is_plugin(pod: Object) -> bool:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return any("kubelet-plugin" in str(value) for value in labels.values())
