"""What is wrong with the core kinds beside pods: maps, secrets, namespaces, nodes, services, events, ranges, quotas."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.api import metadata
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from drakkar.cluster.machinery.validation import (
    endpoints,
    limits,
    placement,
    pod_status,
    pod_subresources,
    pods,
    services,
    values,
    workloads,
)
from drakkar.kube import names
from drakkar.kube.quantity import Quantity

__all__ = ["CREATE", "UPDATE"]

Json = Mapping[str, Any]
Found = list[FieldError]
MAX_DATA: Final = 1024 * 1024


def _check_keys(entries: Json, path: str) -> Found:
    return [invalid(f"{path}[{key}]", key, text) for key in entries for text in names.config_map_key(key)]


def _config_map(obj: Json) -> Found:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    found = _check_keys(data, "data")
    found += [invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary]
    found += _check_keys(binary, "binaryData")
    size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
    return [*found, too_long("", MAX_DATA)] if size > MAX_DATA else found


def _decoded_size(value: str) -> int:
    return len(value) * 3 // 4 - value[-2:].count("=")


def _immutable_data(*parts: str) -> Callable[[Json, Json], Found]:
    def checked(new: Json, old: Json) -> Found:
        if not old.get("immutable"):
            return []
        detail = "field is immutable when `immutable` is set"
        found = [] if new.get("immutable") else [forbidden("immutable", detail)]
        return found + [forbidden(name, detail) for name in parts if (new.get(name) or {}) != (old.get(name) or {})]

    return checked


_NEEDED: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",), "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",), "kubernetes.io/tls": ("tls.crt", "tls.key"),
}  # fmt: skip


def _secret(obj: Json) -> Found:
    data, kind = obj.get("data") or {}, obj.get("type") or ""
    found = _check_keys(data, "data")
    if sum(map(_decoded_size, data.values())) > MAX_DATA:
        found.append(too_long("data", MAX_DATA))
    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not ((obj.get("metadata") or {}).get("annotations") or {}).get(name):
            found.append(required(f"metadata.annotations[{name}]"))
    if kind == "kubernetes.io/basic-auth" and "username" not in data and "password" not in data:
        found += [required(f"data[{key}]") for key in ("username", "password")]
    found += [required(f"data[{key}]") for key in _NEEDED.get(kind, ()) if key not in data]
    if kind in ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson") and not found:
        found += _check_json(data[_NEEDED[kind][0]], f"data[{_NEEDED[kind][0]}]")
    return found


def _check_json(encoded: str, path: str) -> Found:
    from drakkar.cluster.machinery import jsontext

    try:
        jsontext.parse(base64.b64decode(encoded))
    except jsontext.JsonError as error:
        return [invalid(path, "<secret contents redacted>", str(error))]
    return []


def _secret_update(new: Json, old: Json) -> Found:
    found = metadata.check_immutable(new.get("type", ""), old.get("type", ""), "type")
    return found + _immutable_data("data")(new, old) + _secret(new)


def _config_map_update(new: Json, old: Json) -> Found:
    return _immutable_data("data", "binaryData")(new, old) + _config_map(new)


def _namespace(obj: Json) -> Found:
    return _check_finalizers(obj, "spec.finalizers")


def _check_finalizers(obj: Json, path: str) -> Found:
    found: Found = []
    for index, name in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        place = path if not path.endswith("]") else f"{path}[{index}]"
        found += [invalid(place, name, text) for text in names.label_key(name)]
        if "/" not in name and name != "kubernetes":
            found.append(invalid(place, name, "name is neither a standard finalizer name nor is it fully qualified"))
    return found


def _namespace_status(new: Json, _: Json) -> Found:
    phase = (new.get("status") or {}).get("phase") or ""
    dying = bool((new.get("metadata") or {}).get("deletionTimestamp"))
    if not dying and phase != "Active":
        return [invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
    if dying and phase != "Terminating":
        return [invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")]
    return []


def _node(obj: Json) -> Found:
    return placement.check_taints((obj.get("spec") or {}).get("taints") or (), "metadata.taints") + _node_resources(obj)


def _node_resources(obj: Json) -> Found:
    status = obj.get("status") or {}
    return [
        error
        for part in ("capacity", "allocatable")
        for name, value in (status.get(part) or {}).items()
        for error in values.check_quantity(name, value, f"status.{part}.{name}")
    ]


def _node_update(new: Json, old: Json) -> Found:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    found = _node_resources(new)
    addresses: list[Any] = []
    for index, address in enumerate((new.get("status") or {}).get("addresses") or ()):
        if address in addresses:
            found.append(duplicate(f"status.addresses[{index}]", dict(address)))
        addresses.append(address)
    if before.get("podCIDRs") and before["podCIDRs"] != spec.get("podCIDRs"):
        detail = 'node updates may not change podCIDR except from "" to valid'
        found.append(forbidden("spec.podCIDRs", detail))
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        word = "modified" if spec.get("providerID") else "cleared"
        found.append(invalid("spec.providerID", None, f"field cannot be {word} once set"))
    return found + placement.check_taints(spec.get("taints") or (), "metadata.taints")


_ACCESS: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def _volume_claim(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    modes = spec.get("accessModes") or []
    found = [] if modes else [required("spec.accessModes", "at least 1 access mode is required")]
    found += values.check_label_selector(spec.get("selector"), "spec.selector")
    found += [not_supported("spec.accessModes", mode, _ACCESS) for mode in modes if mode not in _ACCESS]
    if "ReadWriteOncePod" in modes and any(mode in _ACCESS and mode != "ReadWriteOncePod" for mode in modes):
        found.append(forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes"))
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    place = "spec.resources[storage]"
    if storage is None:
        found.append(required(place))
    elif Quantity.from_json(storage).sign <= 0:
        found.append(invalid(place, storage, "must be greater than zero"))
    for name in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(name):
            found += [invalid(f"spec.{name}", spec[name], text) for text in names.dns_subdomain(spec[name])]
    mode = spec.get("volumeMode")
    if mode is not None and mode not in ("Block", "Filesystem"):
        found.append(not_supported("spec.volumeMode", mode, ("Block", "Filesystem")))
    return found


def _volume_claim_update(new: Json, old: Json) -> Found:
    found = _volume_claim(new)
    if _fixed_part(new) != _fixed_part(old):
        words = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound"
        found.append(forbidden("spec", f"{words} claims"))
    return found


def _fixed_part(claim: Json) -> Json:
    """What of a claim's spec cannot change; a volume may be chosen once, by the controller or whoever binds it."""
    spec = dict(claim.get("spec") or {})
    spec.pop("volumeAttributesClassName", None)
    spec.pop("volumeName", None)
    requests = {**((spec.get("resources") or {}).get("requests") or {})}
    requests.pop("storage", None)
    return {**spec, "resources": {**(spec.get("resources") or {}), "requests": requests}}


def _event(obj: Json) -> Found:
    namespace = (obj.get("metadata") or {}).get("namespace") or ""
    about = (obj.get("involvedObject") or {}).get("namespace") or ""
    found: Found = []
    wrong = invalid("involvedObject.namespace", about, "does not match event.namespace")
    if not obj.get("eventTime"):
        if (about and namespace != about) or (not about and namespace not in ("", "default")):
            found.append(wrong)
        return found
    if not about and namespace not in ("default", "kube-system"):
        found.append(wrong)
    component = obj.get("reportingComponent") or ""
    if not component:
        found.append(required("reportingComponent"))
    found += [invalid("reportingComponent", component, text) for text in names.label_key(component)]
    for name, limit in (("reportingInstance", 128), ("action", 128), ("reason", 128)):
        value = obj.get(name) or ""
        if not value:
            found.append(required(name))
        if len(value) > limit:
            found.append(invalid(name, "", f"can have at most {limit} characters"))
    if len(obj.get("message") or "") > 1024:
        found.append(invalid("message", "", "can have at most 1024 characters"))
    return found


def _replication_controller(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    found = [] if spec.get("selector") else [required("spec.selector")]
    shaped = {**spec, "selector": {"matchLabels": spec.get("selector") or {}}}
    found += workloads.check_selected_template(shaped, "spec.template", "ReplicationController")
    for name in ("replicas", "minReadySeconds"):
        found += values.check_non_negative(spec, name, "spec")
    return found


CREATE: Final[dict[str, Callable[[Json], Found]]] = {
    "ConfigMap": _config_map,
    "Endpoints": endpoints.check_endpoints,
    "Event": _event,
    "LimitRange": limits.check_limit_range,
    "Namespace": _namespace,
    "Node": _node,
    "Pod": pods.check_new_pod,
    "PodTemplate": lambda obj: pods.check_template(obj.get("template") or {}, "template"),
    "ReplicationController": _replication_controller,
    "ResourceQuota": limits.check_quota,
    "Secret": _secret,
    "PersistentVolumeClaim": _volume_claim,
    "Service": services.check_service,
}
UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("ConfigMap", ""): _config_map_update,
    ("Endpoints", ""): lambda new, _: endpoints.check_endpoints(new),
    ("Event", ""): lambda new, _: _event(new),
    ("LimitRange", ""): lambda new, _: limits.check_limit_range(new),
    ("Namespace", "finalize"): lambda new, _: _check_finalizers(new, "spec.finalizers"),
    ("Namespace", "status"): _namespace_status,
    ("Node", ""): _node_update,
    ("Node", "status"): _node_update,
    ("Pod", ""): pods.check_pod_update,
    ("Pod", "status"): pod_status.check_pod_status_update,
    ("Pod", "ephemeralcontainers"): pod_subresources.check_ephemeral_containers_update,
    ("Pod", "resize"): pod_subresources.check_resize,
    ("ReplicationController", ""): lambda new, _: _replication_controller(new),
    ("ResourceQuota", ""): limits.check_quota_update,
    ("ResourceQuota", "status"): limits.check_quota_status,
    ("PersistentVolumeClaim", ""): _volume_claim_update,
    ("Secret", ""): _secret_update,
    ("Service", ""): services.check_service_update,
}
