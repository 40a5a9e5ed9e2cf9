"""Defaults of the core group: namespaces, nodes, services, secrets, volumes, ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from drakkar.cluster.machinery.defaulting.filling import each, filled, part
from drakkar.cluster.machinery.defaulting.pods import pod, template

__all__ = ["DEFAULTS"]

Json = dict[str, Any]


def _namespace(obj: Json) -> Json:
    name = (obj.get("metadata") or {}).get("name")
    if name:
        obj = part(
            obj,
            "metadata",
            lambda meta: part(
                meta, "labels", lambda labels: {**labels, "kubernetes.io/metadata.name": name}, create=True
            ),
        )
    return part(obj, "status", lambda status: filled(status, {"phase": "Active"}), create=True)


def _node(obj: Json) -> Json:
    def status(value: Json) -> Json:
        capacity = value.get("capacity")
        return filled(value, {"allocatable": capacity}) if capacity else value

    return part(obj, "status", status)


def _secret(obj: Json) -> Json:
    strings = obj.get("stringData")
    if strings:
        import base64

        data = {**(obj.get("data") or {})}
        data.update({name: base64.b64encode(value.encode()).decode() for name, value in strings.items()})
        obj = {**{name: value for name, value in obj.items() if name != "stringData"}, "data": data}
    return filled(obj, {"type": "Opaque"})


_EXTERNAL: Final = ("NodePort", "LoadBalancer")


def _service(obj: Json) -> Json:
    return part(obj, "spec", _service_spec, create=True)


def _service_spec(spec: Json) -> Json:
    spec = filled(spec, {"sessionAffinity": "None", "type": "ClusterIP"})
    if spec["sessionAffinity"] == "None":
        spec = {name: value for name, value in spec.items() if name != "sessionAffinityConfig"}
    elif spec["sessionAffinity"] == "ClientIP":
        seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
        if seconds is None:
            spec = {**spec, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}
    spec = each(spec, "ports", _service_port)
    if spec["type"] in _EXTERNAL or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        spec = filled(spec, {"externalTrafficPolicy": "Cluster"})
    if spec["type"] in (*_EXTERNAL, "ClusterIP"):
        spec = filled(spec, {"internalTrafficPolicy": "Cluster"})
    if spec["type"] == "LoadBalancer":
        spec = filled(spec, {"allocateLoadBalancerNodePorts": True})
    return spec


def _service_port(port: Json) -> Json:
    port = filled(port, {"protocol": "TCP"})
    return port if port.get("targetPort") else {**port, "targetPort": port.get("port")}


def _endpoints(obj: Json) -> Json:
    return each(obj, "subsets", lambda subset: each(subset, "ports", lambda port: filled(port, {"protocol": "TCP"})))


def _limit_range(obj: Json) -> Json:
    return part(obj, "spec", lambda spec: each(spec, "limits", _limit))


def _limit(item: Json) -> Json:
    if item.get("type") != "Container":
        return item
    defaults = filled(item.get("default") or {}, item.get("max") or {})
    requests = filled(filled(item.get("defaultRequest") or {}, defaults), item.get("min") or {})
    return {
        **item,
        **({"default": defaults} if defaults else {}),
        **({"defaultRequest": requests} if requests else {}),
    }


def _volume(obj: Json) -> Json:
    obj = part(obj, "status", lambda status: filled(status, {"phase": "Pending"}), create=True)
    values = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
    return part(obj, "spec", lambda spec: filled(spec, values))


def _volume_claim(obj: Json) -> Json:
    obj = part(obj, "status", lambda status: filled(status, {"phase": "Pending"}), create=True)
    return part(obj, "spec", lambda spec: filled(spec, {"volumeMode": "Filesystem"}))


def _replication_controller(obj: Json) -> Json:
    obj = part(obj, "spec", lambda spec: part(filled(spec, {"replicas": 1}), "template", template))
    labels = (((obj.get("spec") or {}).get("template") or {}).get("metadata") or {}).get("labels")
    if not labels:
        return obj
    obj = part(obj, "spec", lambda spec: spec if spec.get("selector") else {**spec, "selector": labels})
    return part(obj, "metadata", lambda meta: meta if meta.get("labels") else {**meta, "labels": labels})


DEFAULTS: Final[dict[str, Callable[[Json], Json]]] = {
    "Endpoints": _endpoints,
    "LimitRange": _limit_range,
    "Namespace": _namespace,
    "Node": _node,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _volume_claim,
    "Pod": pod,
    "PodTemplate": lambda obj: part(obj, "template", template),
    "ReplicationController": _replication_controller,
    "Secret": _secret,
    "Service": _service,
}
