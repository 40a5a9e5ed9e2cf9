"""Rows of the core group: nodes, namespaces, services, events, maps, secrets, volumes, quotas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from drakkar.cluster.machinery.tables.ages import UNKNOWN, since
from drakkar.cluster.machinery.tables.words import NONE, age, joined, label_text, name, spec, status

__all__ = ["CELLS"]

Json = Mapping[str, Any]
_ROLE: Final = "node-role.kubernetes.io/"


def _node(obj: Json, now: datetime) -> list[Any]:
    current = status(obj)
    words = [
        "Ready" if condition.get("status") == "True" else "NotReady"
        for condition in current.get("conditions") or ()
        if condition.get("type") == "Ready"
    ][-1:] or ["Unknown"]
    if spec(obj).get("unschedulable"):
        words.append("SchedulingDisabled")
    info = current.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name(obj),
        ",".join(words),
        joined(_roles((obj.get("metadata") or {}).get("labels") or {})),
        age(obj, now),
        info.get("kubeletVersion") or "",
        _address(current, "InternalIP"),
        _address(current, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _roles(labels: Json) -> list[str]:
    found = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    found.add(labels.get("kubernetes.io/role") or "")
    return sorted(found - {""})


def _address(current: Json, kind: str) -> str:
    addresses = current.get("addresses") or ()
    return next((str(item["address"]) for item in addresses if item.get("type") == kind), NONE)


def _namespace(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), status(obj).get("phase") or "", age(obj, now)]


def _config_map(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(obj, now)]


def _secret(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), obj.get("type") or "", len(obj.get("data") or {}), age(obj, now)]


def _only_age(obj: Json, now: datetime) -> list[Any]:
    return [name(obj), age(obj, now)]


def _service(obj: Json, now: datetime) -> list[Any]:
    inner = spec(obj)
    internal = (inner.get("clusterIPs") or [NONE])[0]
    ports = [_port(port) for port in inner.get("ports") or ()]
    return [
        name(obj), inner.get("type") or "", internal, _external(obj), joined(ports), age(obj, now),
        label_text(inner.get("selector")),
    ]  # fmt: skip


def _port(port: Json) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port') or 0}{node}/{port.get('protocol') or ''}"


def _external(obj: Json) -> str:
    inner = spec(obj)
    kind, addresses = inner.get("type"), list(inner.get("externalIPs") or ())
    if kind in ("ClusterIP", "NodePort"):
        return joined(addresses)
    if kind == "LoadBalancer":
        ingress = (status(obj).get("loadBalancer") or {}).get("ingress") or ()
        found = sorted({item.get("ip") or item.get("hostname") or "" for item in ingress} - {""})
        return ",".join([*found, *addresses]) or "<pending>"
    return str(inner.get("externalName") or "") if kind == "ExternalName" else UNKNOWN


def _event(obj: Json, now: datetime) -> list[Any]:
    first = since(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = since(obj.get("lastTimestamp"), now) if obj.get("lastTimestamp") else first
    count, series = obj.get("count") or 0, obj.get("series")
    if series is not None:
        last, count = since(series.get("lastObservedTime"), now), series.get("count") or 0
    about, source = obj.get("involvedObject") or obj.get("regarding") or {}, obj.get("source") or {}
    target = (about.get("kind") or "").lower()
    if about.get("name"):
        target += f"/{about['name']}"
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type") or "",
        obj.get("reason") or "",
        target,
        about.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        first,
        count or 1,
        name(obj),
    ]


def _quota(obj: Json, now: datetime) -> list[Any]:
    current = status(obj)
    hard, used = current.get("hard") or {}, current.get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        target = limits if resource.startswith("limits.") else requests
        target.append(f"{resource}: {used.get(resource, '0')}/{hard[resource]}")
    return [name(obj), ", ".join(requests), ", ".join(limits), age(obj, now)]


def _endpoints(obj: Json, now: datetime) -> list[Any]:
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        hosts = [address.get("ip") or "" for address in subset.get("addresses") or ()]
        ports = [port.get("port") or 0 for port in subset.get("ports") or ()]
        found += [f"{host}:{port}" for port in ports for host in hosts] if ports else hosts
    return [name(obj), _few(found), age(obj, now)]


def _few(items: list[str]) -> str:
    """At most three items, and how many more there are."""
    return joined(items) if len(items) <= 3 else f"{','.join(items[:3])} + {len(items) - 3} more..."


def _endpoint_slice(obj: Json, now: datetime) -> list[Any]:
    ports = ["*" if port.get("port") is None else str(port["port"]) for port in obj.get("ports") or ()]
    hosts = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        name(obj), obj.get("addressType") or "", _few(ports) if ports else "<unset>",
        _few(hosts) if hosts else "<unset>", age(obj, now),
    ]  # fmt: skip


_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Any) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _phase(obj: Json) -> str:
    deleted = (obj.get("metadata") or {}).get("deletionTimestamp")
    return "Terminating" if deleted else str(status(obj).get("phase") or "")


def _volume_claim(obj: Json, now: datetime) -> list[Any]:
    inner, current = spec(obj), status(obj)
    bound = inner.get("volumeName") or ""
    return [
        name(obj),
        _phase(obj),
        bound,
        (current.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(current.get("accessModes")) if bound else "",
        inner.get("storageClassName") or "",
        inner.get("volumeAttributesClassName") or "<unset>",
        age(obj, now),
        inner.get("volumeMode") or "<unset>",
    ]


def _volume(obj: Json, now: datetime) -> list[Any]:
    inner = spec(obj)
    claim = inner.get("claimRef")
    return [
        name(obj),
        (inner.get("capacity") or {}).get("storage", "0"),
        _modes(inner.get("accessModes")),
        inner.get("persistentVolumeReclaimPolicy") or "",
        _phase(obj),
        f"{claim.get('namespace') or ''}/{claim.get('name') or ''}" if claim else "",
        inner.get("storageClassName") or "",
        inner.get("volumeAttributesClassName") or "<unset>",
        status(obj).get("reason") or "",
        age(obj, now),
        inner.get("volumeMode") or "<unset>",
    ]


CELLS: Final = {
    "ConfigMap": _config_map,
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "Event": _event,
    "Namespace": _namespace,
    "Node": _node,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _volume_claim,
    "ResourceQuota": _quota,
    "Secret": _secret,
    "Service": _service,
    "ServiceAccount": _only_age,
}
