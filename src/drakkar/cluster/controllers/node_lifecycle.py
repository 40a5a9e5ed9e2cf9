"""Nodes that stop reporting: conditions become Unknown, taints keep pods away and drive them off.

A node is alive while its lease is renewed or its status changes. After forty seconds of silence its conditions are set
to Unknown; taints follow the conditions at once (`pkg/controller/nodelifecycle`).
"""

from __future__ import annotations

from dataclasses import dataclass

from drakkar.cluster.controllers import conditions, pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object
from drakkar.kube.apierrors import ApiError
from drakkar.kube.clock import rfc3339
from drakkar.kube.resources import LEASES, NODES, PODS

GRACE = 40.0
PERIOD = 5.0
LEASE_NAMESPACE = "kube-node-lease"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_SILENT = "Kubelet stopped posting node status."
_NEVER = "Kubelet never posted node status."
_WATCHED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_TAINT_OF_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_OURS = {*_TAINT_OF_CONDITION.values(), _UNSCHEDULABLE}


@dataclass(slots=True)
class _Sign:
    """The last sign of life of a node: what it looked like and when we saw it."""

    seen: float
    lease: str = ""
    heartbeat: str = ""


class NodeLifecycle(Controller):
    """Watches heartbeats; keeps conditions and taints in line."""

    name = "node-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._recorder = context.recorder(self.name)
        self._signs: dict[str, _Sign] = {}
        self._nodes = self.watch(NODES, self._on_node)
        self._leases = self.watch(LEASES, self._on_lease)
        self._pods = context.informer(PODS)
        self._pods.add_index("node", lambda pod: [(pod.get("spec") or {}).get("nodeName") or ""])

    async def start(self) -> None:
        await super().start()
        self.spawn(self._tick())

    def _on_node(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            if old is not None:
                name = old["metadata"]["name"]
                self._signs.pop(name, None)
                self._announce(old, "RemovingNode", f"Removing Node {name} from Controller")
            return
        heartbeat = "".join(
            one.get("lastHeartbeatTime") or "" for one in (new.get("status") or {}).get("conditions") or ()
        )
        name = new["metadata"]["name"]
        if name not in self._signs:
            self._announce(new, "RegisteredNode", f"Registered Node {name} in Controller")
        self._saw(name, heartbeat=heartbeat)
        self.queue.add(("", name))

    def _announce(self, node: Object, reason: str, what: str) -> None:
        text = f"Node {node['metadata']['name']} event: {what}"
        self._recorder.record({**node, "apiVersion": "v1", "kind": "Node"}, "Normal", reason, text)

    def _on_lease(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is not None and new["metadata"].get("namespace") == LEASE_NAMESPACE:
            name = new["metadata"]["name"]
            if self._saw(name, lease=(new.get("spec") or {}).get("renewTime") or "") and self._is_silent(name):
                self.queue.add(("", name))

    def _saw(self, name: str, *, lease: str = "", heartbeat: str = "") -> bool:
        sign = self._signs.get(name)
        if sign is None:
            self._signs[name] = _Sign(self.clock.monotonic(), lease, heartbeat)
            return True
        if (lease and lease != sign.lease) or (heartbeat and heartbeat != sign.heartbeat):
            sign.seen = self.clock.monotonic()
            sign.lease, sign.heartbeat = lease or sign.lease, heartbeat or sign.heartbeat
            return True
        return False

    def _is_silent(self, name: str) -> bool:
        node = self._nodes.get(None, name)
        ready = pods.condition(node, "Ready") if node else None
        return ready is not None and ready.get("status") == "Unknown"

    async def _tick(self) -> None:
        while True:
            await self.clock.sleep(PERIOD)
            now = self.clock.monotonic()
            for name, sign in self._signs.items():
                if now - sign.seen > GRACE and not self._is_silent(name):
                    self.queue.add(("", name))

    async def reconcile(self, key: Key) -> float | None:
        node = self._nodes.get(None, key[1])
        sign = self._signs.get(key[1])
        if node is None or sign is None:
            return None
        try:
            if self.clock.monotonic() - sign.seen > GRACE:
                node = await self._mark_silent(node)
            await self._taint(node)
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    async def _mark_silent(self, node: Object) -> Object:
        status = node.get("status") or {}
        known = {one["type"]: one for one in status.get("conditions") or ()}
        stamp = rfc3339(self.clock.now())
        changed = []
        for type in _WATCHED:
            before = known.get(type)
            if before is not None and before.get("status") == "Unknown":
                continue
            made = {
                "type": type,
                "status": "Unknown",
                "reason": "NodeStatusUnknown" if before else "NodeStatusNeverUpdated",
                "message": _SILENT if before else _NEVER,
                "lastTransitionTime": stamp,
            }
            made["lastHeartbeatTime"] = (before or {}).get("lastHeartbeatTime") or node["metadata"]["creationTimestamp"]
            changed.append(made)
        if not changed:
            return node
        name = node["metadata"]["name"]
        patch = {"status": conditions.as_patch(status.get("conditions") or (), changed)}
        written = await self.client.patch(NODES, name, patch, kind="strategic", subresource="status")
        if any(one["type"] == "Ready" for one in changed) and (known.get("Ready") or {}).get("status") == "True":
            text = f"Node {name} status is now: NodeNotReady"
            self._recorder.record({**node, "apiVersion": "v1", "kind": "Node"}, "Normal", "NodeNotReady", text)
            await self._mark_pods_unready(name)
        return written

    async def _mark_pods_unready(self, node: str) -> None:
        stamp = rfc3339(self.clock.now())
        for pod in self._pods.by_index("node", node):
            if not pods.is_ready(pod):
                continue
            metadata = pod["metadata"]
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": stamp}
            try:
                await self.client.patch(
                    PODS, metadata["name"], {"status": {"conditions": [condition]}},
                    kind="strategic", namespace=metadata["namespace"], subresource="status",
                )  # fmt: skip
            except ApiError as error:
                if not error.not_found:
                    raise
            text = "Node is not ready"
            self._recorder.record({**pod, "apiVersion": "v1", "kind": "Pod"}, "Warning", "NodeNotReady", text)

    async def _taint(self, node: Object) -> None:
        """Bring the taints that stand for conditions in line with them."""
        spec = node.get("spec") or {}
        present = list(spec.get("taints") or ())
        wanted: list[tuple[str, str]] = []
        for one in (node.get("status") or {}).get("conditions") or ():
            key = _TAINT_OF_CONDITION.get((one.get("type") or "", one.get("status") or ""))
            if key is not None:
                wanted.append((key, "NoSchedule"))
                if key in (NOT_READY, UNREACHABLE):
                    wanted.append((key, "NoExecute"))
        if pods.condition(node, "Ready") is None:
            # Not reported yet: the taint that came with the node stays.
            wanted += [(one["key"], one["effect"]) for one in present if one["key"] == NOT_READY]
        if spec.get("unschedulable"):
            wanted.append((_UNSCHEDULABLE, "NoSchedule"))
        kept = [one for one in present if one["key"] not in _OURS or (one["key"], one["effect"]) in wanted]
        have = {(one["key"], one["effect"]) for one in kept}
        stamp = rfc3339(self.clock.now())
        added = [
            {"key": key, "effect": effect, "timeAdded": stamp} for key, effect in wanted if (key, effect) not in have
        ]
        if added or len(kept) != len(present):
            await self.client.update(NODES, {**node, "spec": {**spec, "taints": [*kept, *added]}})
