"""Addresses and ports of services: what the service registry allocates when a service is written.

Nothing routes to these addresses here; they exist because clients, tables and environment variables show them. One
family (IPv4), a /16 for addresses and the usual range for node ports; what is taken is read from the stored services.
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.api.fields import FieldError, invalid_status
from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Call

Value = dict[str, Any]

NETWORK: Final = "10.96.0.0/16"
NODE_PORTS: Final = range(30000, 32768)
_FIRST: Final = 257
"""10.96.1.1: the addresses below are for services that ask for a fixed one, as in Kubernetes (KEP-3070)."""
_SIZE: Final = 1 << 16
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")


def allocate(call: Call, operation: str, obj: Value, old: Value | None) -> Value:
    """Give the service what it has no address or port for yet; raises `StatusError` 422."""
    del operation
    spec = {**(obj.get("spec") or {})}
    before = (old or {}).get("spec") or {}
    if spec.get("type") == "ExternalName":
        if before and before.get("clusterIP") == spec.get("clusterIP"):
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                spec.pop(name, None)
        return {**obj, "spec": spec}
    _set_address(call, obj, spec, before)
    # Who has neither an address nor a selector says nothing about families: it may use any.
    anywhere = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if anywhere else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if anywhere else "SingleStack")
    if spec.get("type") in _WITH_NODE_PORTS and spec.get("allocateLoadBalancerNodePorts") is not False:
        _set_node_ports(call, obj, spec, before)
    elif before.get("type") in _WITH_NODE_PORTS:
        spec["ports"] = [_without_node_port(port, before) for port in spec.get("ports") or ()]
    _set_health_port(call, obj, spec, before)
    return {**obj, "spec": spec}


def _set_health_port(call: Call, obj: Value, spec: Value, before: Value) -> None:
    """A port for balancers to ask a node whether it has pods of the service."""
    if spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local":
        if not spec.get("healthCheckNodePort"):
            taken = _taken_ports(call, obj) | {port.get("nodePort") for port in spec.get("ports") or ()}
            free = next((one for one in NODE_PORTS if one not in taken), None)
            spec["healthCheckNodePort"] = before.get("healthCheckNodePort") or free
    elif before.get("healthCheckNodePort") == spec.get("healthCheckNodePort"):
        spec.pop("healthCheckNodePort", None)


def _taken_ports(call: Call, obj: Value) -> set[int | None]:
    others = _others(call, obj)
    taken = {port.get("nodePort") for other in others for port in other.get("ports") or ()}
    return taken | {other.get("healthCheckNodePort") for other in others}


def _set_address(call: Call, obj: Value, spec: Value, before: Value) -> None:
    wanted = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
    if not wanted:
        wanted = before.get("clusterIP") or _free_address(call, obj)
    elif wanted not in ("None", before.get("clusterIP")):
        _check_address(call, obj, wanted)
    given = spec.get("clusterIPs") or []  # what contradicts itself is for validation to judge
    spec["clusterIP"] = wanted
    if before or not given or (given[0] == wanted and (wanted != "None" or len(given) == 1)):
        spec["clusterIPs"] = [wanted]


def _others(call: Call, obj: Value) -> list[Value]:
    name, namespace = obj["metadata"].get("name"), call.info.namespace
    found = [stored.value for stored in call.server.store.collection("services").objects()]
    found += call.server.admission.promised
    return [
        one["spec"] for one in found if (one["metadata"]["name"], one["metadata"]["namespace"]) != (name, namespace)
    ]


def _free_address(call: Call, obj: Value) -> str:
    taken = {spec.get("clusterIP") for spec in _others(call, obj)}
    for number in range(_FIRST, _SIZE - 1):
        text = f"10.96.{number >> 8}.{number & 255}"
        if text not in taken:
            return text
    raise statuses.internal("failed to allocate a serviceIP: range is full")


def _check_address(call: Call, obj: Value, wanted: str) -> None:
    import ipaddress

    from drakkar.cluster.machinery.validation.values import check_address

    why = ""
    for problem in check_address(wanted, "spec.clusterIPs[0]"):
        _refuse(obj, problem)
    if ipaddress.ip_address(wanted) not in ipaddress.ip_network(NETWORK):
        why = f"failed to allocate IP {wanted}: the provided network does not match the current range {NETWORK}"
    elif any(spec.get("clusterIP") == wanted for spec in _others(call, obj)):
        why = f"failed to allocate IP {wanted}: provided IP is already allocated"
    if why:
        _refuse(obj, FieldError("FieldValueInvalid", "spec.clusterIPs", why, [wanted]))


def _set_node_ports(call: Call, obj: Value, spec: Value, before: Value) -> None:
    kept = {_port_key(port): port.get("nodePort") for port in before.get("ports") or ()}
    taken = _taken_ports(call, obj)
    ports = []
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("nodePort") or kept.get(_port_key(port))
        if not number:
            number = next((one for one in NODE_PORTS if one not in taken), None)
            if number is None:
                raise statuses.internal("failed to allocate a nodePort: range is full")
        elif number in taken:
            detail = "provided port is already allocated"
            _refuse(obj, FieldError("FieldValueInvalid", f"spec.ports[{index}].nodePort", detail, number))
        elif number not in NODE_PORTS:
            detail = (
                f"provided port is not in the valid range. The range of valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            )
            _refuse(obj, FieldError("FieldValueInvalid", f"spec.ports[{index}].nodePort", detail, number))
        taken.add(number)
        ports.append({**port, "nodePort": number})
    if ports:
        spec["ports"] = ports


def _without_node_port(port: Value, before: Value) -> Value:
    """A node port that was allocated goes with the type; one that the client just set stays for validation to judge."""
    kept = {one.get("nodePort") for one in before.get("ports") or ()}
    return {key: part for key, part in port.items() if key != "nodePort" or part not in kept}


def _port_key(port: Value) -> tuple[Any, Any]:
    return port.get("protocol", "TCP"), port.get("port")


def _refuse(obj: Value, error: FieldError) -> None:
    raise statuses.StatusError(invalid_status("", "Service", obj["metadata"].get("name", ""), [error]))
