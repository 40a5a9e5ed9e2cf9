"""EndpointSlices: which pods stand behind a service (`pkg/controller/endpointslice`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drakkar.cluster.controllers import pods
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object, key_of
from drakkar.cluster.controllers.owners import namespace_index, owner_reference
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import PODS, SERVICES, Resource

ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
SERVICE_NAME, MANAGED_BY = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
HEADLESS = "service.kubernetes.io/headless"
_MANAGER = "endpointslice-controller.k8s.io"
_PER_SLICE = 100


class EndpointSlices(Controller):
    """Keys are services."""

    name = "endpoint-slice-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._services = self.watch(SERVICES, self.enqueue)
        self._services.add_index("namespace", namespace_index)
        self._pods = self.watch(PODS, self._on_pod)
        self._pods.add_index("namespace", namespace_index)
        self._slices = self.watch(ENDPOINT_SLICES, self._on_slice)
        self._slices.add_index("service", _service_of)
        self._fresh: dict[str, Object] = {}

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if pod is None or (old is not None and new is not None and _seen(old) == _seen(new)):
            return
        for service in self._services.by_index("namespace", pod["metadata"]["namespace"]):
            if any(_selects(service, one) for one in (old, new) if one is not None):
                self.queue.add(key_of(service))

    def _on_slice(self, kind: str, old: Object | None, new: Object | None) -> None:
        piece = new or old
        if piece is None:
            return
        self._fresh.pop(piece["metadata"]["uid"], None)
        if kind != "MODIFIED" or (old or {}).get("endpoints") != (new or {}).get("endpoints"):
            for key in _service_of(piece):
                self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        service = self._services.get(*key)
        if service is None or not service["spec"].get("selector") or pods.is_deleting(service):
            return None  # what belongs to a service that is gone is collected with it
        members = [pod for pod in self._pods.by_index("namespace", key[0]) if _selects(service, pod)]
        present = {one["metadata"]["uid"]: one for one in self._slices.by_index("service", key)}
        present |= {uid: one for uid, one in self._fresh.items() if key in _service_of(one)}
        wanted = list(_groups(service, members))
        ordered = sorted(present.values(), key=lambda one: one["metadata"]["name"])
        for index, group in enumerate(wanted):
            if index < len(ordered):
                await self._update(ordered[index], service, group)
            else:
                await self._create(service, group)
        for extra in ordered[len(wanted) :]:
            await self._delete(extra)
        return None

    async def _create(self, service: Object, group: Object) -> None:
        metadata = service["metadata"]
        made = await self.client.create(
            ENDPOINT_SLICES,
            {
                "apiVersion": ENDPOINT_SLICES.api_version,
                "kind": ENDPOINT_SLICES.kind,
                "metadata": {
                    "generateName": metadata["name"] + "-",
                    "namespace": metadata["namespace"],
                    "labels": _labels(service),
                    "ownerReferences": [owner_reference(service, SERVICES)],
                },
                "addressType": "IPv4",
                **group,
            },
        )
        if self._slices.get(*key_of(made)) is None:
            self._fresh[made["metadata"]["uid"]] = made

    async def _update(self, piece: Object, service: Object, group: Object) -> None:
        labels = _labels(service)
        same = all((piece.get(name) or []) == group[name] for name in group)
        if same and piece["metadata"].get("labels") == labels:
            return
        await self.client.update(
            ENDPOINT_SLICES, {**piece, **group, "metadata": {**piece["metadata"], "labels": labels}}
        )

    async def _delete(self, piece: Object) -> None:
        namespace, name = key_of(piece)
        try:
            await self.client.delete(ENDPOINT_SLICES, name, namespace)
        except ApiError as error:
            if not error.not_found:
                raise


def _groups(service: Object, members: list[Object]) -> Iterator[Object]:
    """Endpoints and ports of each slice; one empty slice where there is nothing."""
    reachable = [pod for pod in members if (pod.get("status") or {}).get("podIP") and not pods.is_finished(pod)]
    by_ports: dict[str, tuple[list[Object], list[Object]]] = {}
    for pod in sorted(reachable, key=lambda one: one["metadata"]["name"]):
        ports = _ports(service, pod)
        by_ports.setdefault(str(ports), (ports, []))[1].append(_endpoint(service, pod))
    for ports, endpoints in by_ports.values():
        for start in range(0, len(endpoints), _PER_SLICE):
            yield {"endpoints": endpoints[start : start + _PER_SLICE], "ports": ports}
    if not by_ports:
        yield {"endpoints": [], "ports": []}


def _endpoint(service: Object, pod: Object) -> Object:
    metadata = pod["metadata"]
    going = pods.is_deleting(pod)
    serving = pods.is_ready(pod) or bool(service["spec"].get("publishNotReadyAddresses"))
    made: dict[str, Any] = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": serving and not going, "serving": serving, "terminating": going},
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
    if pod["spec"].get("nodeName"):
        made["nodeName"] = pod["spec"]["nodeName"]
    if pod["spec"].get("hostname") and pod["spec"].get("subdomain") == service["metadata"]["name"]:
        made["hostname"] = pod["spec"]["hostname"]
    return made


def _ports(service: Object, pod: Object) -> list[Object]:
    found = []
    for port in service["spec"].get("ports") or ():
        target = port.get("targetPort") or port["port"]
        if isinstance(target, str):
            number = _named_port(pod, target, port.get("protocol") or "TCP")
            if number is None:
                continue
            target = number
        found.append({"name": port.get("name") or "", "protocol": port.get("protocol") or "TCP", "port": target})
    return found


def _named_port(pod: Object, name: str, protocol: str) -> int | None:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name and (port.get("protocol") or "TCP") == protocol:
                number: int = port["containerPort"]
                return number
    return None


def _labels(service: Object) -> dict[str, str]:
    metadata = service["metadata"]
    labels = {**(metadata.get("labels") or {}), SERVICE_NAME: metadata["name"], MANAGED_BY: _MANAGER}
    if service["spec"].get("clusterIP") == "None":
        labels[HEADLESS] = ""
    return labels


def _service_of(piece: Object) -> list[Key]:
    labels = piece["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY) != _MANAGER or SERVICE_NAME not in labels:
        return []
    return [(piece["metadata"]["namespace"], labels[SERVICE_NAME])]


def _selects(service: Object, pod: Object) -> bool:
    selector: dict[str, str] = (service.get("spec") or {}).get("selector") or {}
    return bool(selector) and selector.items() <= (pod["metadata"].get("labels") or {}).items()


def _seen(pod: Object) -> tuple[Any, ...]:
    """What of a pod can change an endpoint."""
    return (
        pod["metadata"].get("labels"),
        pods.is_deleting(pod),
        pods.is_ready(pod),
        pods.is_finished(pod),
        (pod.get("status") or {}).get("podIP"),
        (pod.get("spec") or {}).get("nodeName"),
    )
