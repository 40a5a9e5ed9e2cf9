"""The nodes of both copies: those of a recorded cluster, or some that have what the manifests ask for.

A node of the old copy counts devices as its device plugin did, a node of the new one has the same devices in a slice.
What is recorded from one side is translated to the other: labels and counts to devices, devices to counts.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drakkar.errors import DrakkarError
from drakkar.kube.paths import value_at
from drakkar.migration.converting.devices import DOMAIN, PREFIX, device_type, profile_of
from drakkar.migration.converting.labels import product_of
from drakkar.migration.documents import items_at
from drakkar.scheduling.node_affinity import NodeAffinity

__all__ = ["Demand", "FleetNode", "fleet_for", "recorded_fleet"]

Object = dict[str, Any]
_ROOM: Final = {
    "cpu": "1024",
    "memory": "16Ti",
    "ephemeral-storage": "100Ti",
    "pods": "1000",
    "hugepages-2Mi": "1Ti",
    "hugepages-1Gi": "1Ti",
}
_DEFAULT: Final = "NVIDIA H100 80GB HBM3"
_MANY: Final = 24


@dataclass(frozen=True)
class Demand:
    """What one pod template asks for, as far as a node has to have it."""

    spec: Mapping[str, Any]
    resources: Mapping[str, int]
    replicas: int


@dataclass(frozen=True)
class FleetNode:
    """One node with its devices, each as slices publish it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    devices: Sequence[Mapping[str, Any]]
    room: Mapping[str, str]
    single: bool = False

    def counts(self) -> dict[str, int]:
        """What its device plugin would say: devices by extended resource."""
        found: Counter[str] = Counter()
        for device in self.devices:
            resource = self.resource_of(device)
            if resource:
                found[resource] += 1
        return dict(found)

    def resource_of(self, device: Mapping[str, Any]) -> str:
        """The extended resource that a device is one of, "" for none."""
        attributes = device.get("attributes") or {}
        kind = value_at(attributes, ("type", "string"))
        if kind == "mig":
            if self.single:
                return f"{PREFIX}gpu"
            profile = str(value_at(attributes, ("profile", "string")))
            return f"{PREFIX}mig-{profile.replace('+', '.')}"
        return f"{PREFIX}gpu" if kind == "gpu" else ""

    def node(self, *, old: bool) -> Object:
        """The Node object of one copy."""
        amounts = {**self.room, **({name: str(count) for name, count in self.counts().items()} if old else {})}
        return {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.name, "labels": {**self.labels, "kubernetes.io/hostname": self.name}},
            "spec": {"taints": [dict(taint) for taint in self.taints]} if self.taints else {},
            "status": {
                "allocatable": amounts, "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "nodeInfo": {},
            },
        }  # fmt: skip

    def slice(self) -> Object | None:
        """The ResourceSlice of the new copy."""
        if not self.devices:
            return None
        spec = {
            "driver": DOMAIN, "nodeName": self.name,
            "devices": copy.deepcopy([dict(device) for device in self.devices]),
            "pool": {"name": self.name, "generation": 1, "resourceSliceCount": 1},
        }  # fmt: skip
        metadata = {"name": f"{self.name}-{DOMAIN}"}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


# -- recorded ------------------------------------------------------------------------------------------------


def recorded_fleet(objects: Iterable[Mapping[str, Any]]) -> list[FleetNode]:
    """The nodes of a recorded cluster that have GPUs, equal ones at most as often as matters."""
    objects = list(objects)
    devices = _published(objects)
    found: list[FleetNode] = []
    alike: Counter[str] = Counter()
    for node in objects:
        if node.get("kind") != "Node":
            continue
        name = str(value_at(node, ("metadata", "name")))
        labels = {str(k): str(v) for k, v in (value_at(node, ("metadata", "labels")) or {}).items()}
        taints = [
            t for t in items_at(node, "spec", "taints") if not str(t.get("key")).startswith("node.kubernetes.io/")
        ]
        own = devices.get(name) or list(_from_labels(name, labels, value_at(node, ("status", "allocatable")) or {}))
        shape = repr(
            (sorted((k, v) for k, v in labels.items() if name not in v), taints, [_shape(device) for device in own])
        )
        alike[shape] += 1
        if alike[shape] <= _MANY:
            single = "-MIG-" in labels.get(f"{PREFIX}gpu.product", "")
            found.append(FleetNode(name, labels, taints, own, _ROOM, single))
    return found


def _shape(device: Mapping[str, Any]) -> str:
    attributes = {
        key: value
        for key, value in (device.get("attributes") or {}).items()
        if "uuid" not in key.lower() and "pci" not in key
    }
    return repr(sorted(attributes.items(), key=lambda item: item[0]))


def _published(objects: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    newest: dict[str, int] = {}
    found: dict[str, list[Mapping[str, Any]]] = {}
    specs = [
        spec for obj in objects if obj.get("kind") == "ResourceSlice" and isinstance(spec := obj.get("spec"), dict)
    ]
    for spec in specs:
        if spec.get("driver") == DOMAIN and spec.get("nodeName"):
            generation = value_at(spec, ("pool", "generation")) or 0
            newest[spec["nodeName"]] = max(newest.get(spec["nodeName"], 0), generation)
    for spec in specs:
        node = spec.get("nodeName")
        if spec.get("driver") == DOMAIN and node and (value_at(spec, ("pool", "generation")) or 0) == newest[node]:
            found.setdefault(node, []).extend(
                {key: value for key, value in device.items() if key in ("name", "attributes", "capacity")}
                for device in items_at(spec, "devices")
            )
    return found


def _from_labels(node: str, labels: Mapping[str, str], allocatable: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Devices as their driver would publish them, of what the device plugin counted."""
    product, single = product_of(labels.get(f"{PREFIX}gpu.product", ""))
    for resource, amount in sorted(allocatable.items()):
        kind = device_type(str(resource))
        if kind is None or not str(amount).isdigit():
            continue
        profile = kind.profile or single
        for number in range(int(amount)):
            word = f"gpu-{number}" if not profile else f"mig-{profile.replace('.', '').replace('+', '-')}-{number}"
            yield _device(f"{word}", f"{node}/{resource}/{number}", _model(product), profile, labels)


# -- made up -------------------------------------------------------------------------------------------------


def fleet_for(demands: Sequence[Demand]) -> list[FleetNode]:
    """Nodes that have what the templates ask for, with room for a rollout, and one of another kind."""
    found: list[FleetNode] = []
    seen: set[str] = set()
    for demand in demands:
        for node in _nodes_for(demand, len(found)):
            key = repr((sorted(node.labels.items()), node.counts()))
            if key not in seen:
                found.append(node)
        seen |= {repr((sorted(node.labels.items()), node.counts())) for node in found}
    found.append(_made("other", "NVIDIA L4", Counter({f"{PREFIX}gpu": 4}), {}))
    return found


def _nodes_for(demand: Demand, number: int) -> Iterator[FleetNode]:
    per_pod = {name: count for name, count in demand.resources.items() if count}
    if not per_pod:
        return
    wanted = {
        name: max(8, count * 2) if profile_of(name) == "" else max(7, count * 2) for name, count in per_pod.items()
    }
    label = _single_label(demand.spec)
    product = product_of(label)[0] if label else _product_for(demand)
    extra = _other_labels(demand.spec) | ({f"{PREFIX}gpu.product": label} if label else {})
    pods = max(1, min(demand.replicas, _MANY)) * 2
    on_one = min(wanted[name] // per_pod[name] for name in per_pod)
    for index in range(min(_MANY, -(-pods // max(1, on_one)) + 1)):
        yield _made(f"node-{number + index}", product, Counter(wanted), extra)


def _product_for(demand: Demand) -> str:
    from drakkar.vendors.nvidia.models import gpu_model, gpu_model_names

    names = [_DEFAULT, *(gpu_model(name).productName for name in gpu_model_names())]
    affinity = NodeAffinity.parse(_gpu_part(demand.spec))
    for name in names:
        labels = _labels_of(name, Counter(demand.resources))
        if affinity.matches("node", labels | _other_labels(demand.spec) | {"kubernetes.io/hostname": "node"}):
            return name
    return _DEFAULT


def _single_label(spec: Mapping[str, Any]) -> str:
    """The product of nodes whose GPUs are all cut into one profile (strategy single), if the pod wants such."""
    key = f"{PREFIX}gpu.product"
    wanted = [value_at(spec, ("nodeSelector", key))]
    required = value_at(spec, ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"))
    for term in items_at(required, "nodeSelectorTerms"):
        wanted += [v for e in items_at(term, "matchExpressions") if e.get("key") == key for v in e.get("values") or ()]
    return next((str(value) for value in wanted if "-MIG-" in str(value)), "")


def _gpu_part(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"nodeSelector": spec.get("nodeSelector"), "affinity": spec.get("affinity")}


def _other_labels(spec: Mapping[str, Any]) -> dict[str, str]:
    """Labels that a pod wants and that devices do not tell."""
    found: dict[str, str] = {}
    ours = ("gpu.product", "gpu.memory", "gpu.family", "gpu.compute", "cuda.", "gpu.present")
    for key, value in (spec.get("nodeSelector") or {}).items():
        if not str(key).removeprefix(PREFIX).startswith(ours) or not str(key).startswith(PREFIX):
            found[str(key)] = str(value)
    required = value_at(spec, ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"))
    for term in items_at(required, "nodeSelectorTerms")[:1]:
        for entry in items_at(term, "matchExpressions"):
            key = str(entry.get("key"))
            if key.startswith(PREFIX) and key.removeprefix(PREFIX).startswith(ours):
                continue
            if entry.get("operator") in ("In", "Exists", "Gt", "Lt"):
                values = entry.get("values") or ["true"]
                step = {"Gt": 1, "Lt": -1}.get(str(entry.get("operator")), 0)
                found[key] = str(int(values[0]) + step) if step and str(values[0]).isdigit() else str(values[0])
    return found


def _made(name: str, product: str, counts: Mapping[str, int], extra: Mapping[str, str]) -> FleetNode:
    labels = _labels_of(product, counts) | dict(extra)
    single = "-MIG-" in labels.get(f"{PREFIX}gpu.product", "")
    devices = list(_from_labels(name, labels, {key: str(count) for key, count in counts.items()}))
    return FleetNode(name, labels, (), devices, _ROOM, single)


def _labels_of(product: str, counts: Mapping[str, int]) -> dict[str, str]:
    """What GPU feature discovery says of a node with this product."""
    model = _model(product_of(product)[0])
    major, _, minor = model.computeCapability.partition(".")
    return {
        f"{PREFIX}gpu.present": "true",
        f"{PREFIX}gpu.product": product.replace(" ", "-"),
        f"{PREFIX}gpu.memory": str(model.memoryMiB),
        f"{PREFIX}gpu.family": model.architecture.lower().replace(" ", "-"),
        f"{PREFIX}gpu.compute.major": major,
        f"{PREFIX}gpu.compute.minor": minor,
        f"{PREFIX}gpu.count": str(counts.get(f"{PREFIX}gpu", 0)),
        f"{PREFIX}cuda.driver.major": "580",
        f"{PREFIX}cuda.driver-version.major": "580",
        f"{PREFIX}cuda.driver-version.minor": "95",
        f"{PREFIX}cuda.driver-version.revision": "5",
        f"{PREFIX}cuda.driver-version.full": "580.95.05",
        f"{PREFIX}cuda.runtime.major": "13",
        f"{PREFIX}cuda.runtime-version.major": "13",
        f"{PREFIX}cuda.runtime-version.minor": "0",
        f"{PREFIX}cuda.runtime-version.full": "13.0",
    }


def _model(product: str) -> Any:
    from drakkar.vendors.nvidia.models import gpu_model, gpu_model_names

    for name in gpu_model_names():
        if gpu_model(name).productName.replace(" ", "-") == product.replace(" ", "-"):
            return gpu_model(name)
    raise DrakkarError(
        f"nothing is known of the GPU {product!r}",
        reason="UnknownProduct",
        subject=product,
        expected="a product that drakkar knows (drakkar models)",
        next_step="verify with --on cluster, where the DRA driver publishes it",
    )


def _device(name: str, seed: str, model: Any, profile: str, labels: Mapping[str, str]) -> Object:
    import uuid

    identity = uuid.uuid5(uuid.NAMESPACE_URL, seed)
    driver = labels.get(f"{PREFIX}cuda.driver-version.full", "580.95.05")
    attributes: Object = {
        "type": {"string": "mig" if profile else "gpu"},
        "uuid": {"string": f"{'MIG' if profile else 'GPU'}-{identity}"},
        "productName": {"string": model.productName},
        "brand": {"string": model.brand},
        "architecture": {"string": model.architecture},
        "cudaComputeCapability": {"version": f"{model.computeCapability}.0"},
        "driverVersion": {"version": ".".join(str(int(part)) for part in (*driver.split("."), "0", "0")[:3])},
        "cudaDriverVersion": {"version": f"{labels.get(f'{PREFIX}cuda.runtime-version.full', '13.0')}.0"},
    }
    memory = f"{labels.get(f'{PREFIX}gpu.memory') or model.memoryMiB}Mi"
    if profile:
        attributes["profile"] = {"string": profile}
        attributes["parentUUID"] = {"string": f"GPU-{identity}"}
        memory = f"{int(profile.partition('.')[2].partition('gb')[0]) * 1024}Mi"
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}}
