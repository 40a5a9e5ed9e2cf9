"""What is wrong with services."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.api import metadata
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from drakkar.cluster.machinery.validation import values
from drakkar.cluster.machinery.validation.internal_types import internal
from drakkar.kube import names

__all__ = ["check_service", "check_service_update"]

Json = Mapping[str, Any]
Found = list[FieldError]
_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES: Final = ("ClientIP", "None")
_FAMILIES: Final = ("IPv4", "IPv6")
_FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC: Final = ("Cluster", "Local")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
_ONLY_BALANCERS: Final = "may only be used when `type` is 'LoadBalancer'"
_LONGEST_AFFINITY: Final = 86400


def check_service(obj: Json) -> Found:
    """A service, new or changed."""
    spec = obj.get("spec") or {}
    kind, ports = spec.get("type") or "", spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    found: Found = []
    if not ports and not headless and kind != "ExternalName":
        found.append(required("spec.ports"))
    if headless and kind in ("LoadBalancer", "NodePort"):
        found.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        found += _check_external_name(spec)
    seen: set[str] = set()
    for index, port in enumerate(ports):
        found += _check_port(port, f"spec.ports[{index}]", named=len(ports) > 1, seen=seen)
    found += metadata.check_labels(spec.get("selector"), "spec.selector")
    found += _check_affinity(spec)
    if kind != "ExternalName":
        found += _check_addresses(spec)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        found += values.check_address(address, f"spec.externalIPs[{index}]")
    if kind not in _TYPES:
        found.append(not_supported("spec.type", kind, _TYPES) if kind else required("spec.type"))
    found += _check_ports_together(ports, clusterwide=kind == "ClusterIP")
    return found + _check_balancer(spec, kind) + _check_traffic(spec, kind)


def check_service_update(new: Json, old: Json) -> Found:
    """A changed service: its address stays."""
    found: Found = []
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("clusterIP") and before["clusterIP"] != spec.get("clusterIP") and spec.get("type") != "ExternalName":
        found.append(invalid("spec.clusterIPs[0]", [spec.get("clusterIP")], "may not change once set"))
    return found + check_service(new)


def _check_external_name(spec: Json) -> Found:
    found = [
        forbidden(f"spec.{name}", "may not be set for ExternalName services")
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(name)
    ]
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        return [*found, required("spec.externalName")]
    return found + [invalid("spec.externalName", name, text) for text in names.dns_subdomain(name)]


def _check_port(port: Json, path: str, *, named: bool, seen: set[str]) -> Found:
    name = port.get("name") or ""
    found: Found = []
    if named and not name:
        found.append(required(f"{path}.name"))
    elif name:
        found += [invalid(f"{path}.name", name, text) for text in names.dns_label(name)]
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
    found += values.check_port(port.get("port") or 0, f"{path}.port")
    if port.get("protocol") not in values.PROTOCOLS:
        found.append(not_supported(f"{path}.protocol", port.get("protocol") or "", values.PROTOCOLS))
    found += values.check_port_or_name(port.get("targetPort"), f"{path}.targetPort")
    protocol = port.get("appProtocol")
    if protocol is not None:
        found += [invalid(f"{path}.appProtocol", protocol, text) for text in names.label_key(protocol)]
    return found


def _check_affinity(spec: Json) -> Found:
    affinity, config, path = (
        spec.get("sessionAffinity"),
        spec.get("sessionAffinityConfig"),
        "spec.sessionAffinityConfig",
    )
    if affinity not in _AFFINITIES:
        return [not_supported("spec.sessionAffinity", affinity, _AFFINITIES)]
    if affinity == "None":
        if config is None:
            return []
        return [forbidden(path, "must not be set when session affinity is None")]
    for name in ("", "clientIP", "timeoutSeconds"):
        if name:
            path, config = f"{path}.{name}", (config or {}).get(name)
        if config is None:
            return [required(path, "when session affinity type is ClientIP")]
    seconds = int(config or 0)
    if 0 < seconds <= _LONGEST_AFFINITY:
        return []
    return [invalid(path, seconds, f"must be greater than 0 and less than {_LONGEST_AFFINITY}")]


def _check_addresses(spec: Json) -> Found:
    """Addresses inside the cluster, and the families they are of."""
    first, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    found: Found = []
    if first and addresses and addresses[0] != first:
        found.append(invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    families = spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        place = f"spec.ipFamilies[{index}]"
        if family not in _FAMILIES:
            found.append(not_supported(place, family, _FAMILIES))
        if family in families[:index]:
            found.append(duplicate(place, family))
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in _FAMILY_POLICIES:
        found.append(not_supported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES))
    for index, address in enumerate(addresses):
        if index or address != "None":
            found += values.check_address(address, f"spec.clusterIPs[{index}]")
        elif len(addresses) > 1:
            found.append(invalid("spec.clusterIPs", addresses, "'None' must be the first and only value"))
    if len(addresses) > 2:
        found.append(invalid("spec.clusterIPs", addresses, "may only hold up to 2 values"))
    return found


def _check_ports_together(ports: Sequence[Json], *, clusterwide: bool) -> Found:
    found: Found = []
    if clusterwide:
        found += [
            forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
            for index, port in enumerate(ports)
            if port.get("nodePort")
        ]
    for name in ("nodePort", "port"):
        seen: set[tuple[Any, Any]] = set()
        for index, port in enumerate(ports):
            protocol, number = port.get("protocol"), port.get(name) or 0
            if name == "nodePort" and not number:
                continue
            if (protocol, number) in seen and name == "nodePort":
                found.append(duplicate(f"spec.ports[{index}].nodePort", number))
            elif (protocol, number) in seen:
                shown = internal({"protocol": protocol, "port": number}, "ServicePort")
                found.append(duplicate(f"spec.ports[{index}]", shown))
            seen.add((protocol, number))
    return found


def _check_balancer(spec: Json, kind: str) -> Found:
    balanced = kind == "LoadBalancer"
    path, ranges = "spec.LoadBalancerSourceRanges", spec.get("loadBalancerSourceRanges") or []
    found = [forbidden(path, _ONLY_BALANCERS)] if ranges and not balanced else []
    for index, text in enumerate(ranges):
        if not _is_range(text.strip()):
            detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            found.append(invalid(f"{path}[{index}]", text.strip(), detail))
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        found.append(forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_BALANCERS))
    name = spec.get("loadBalancerClass")
    if name is not None and not balanced:
        found.append(forbidden("spec.loadBalancerClass", _ONLY_BALANCERS))
    elif name is not None:
        found += [invalid("spec.loadBalancerClass", name, text) for text in names.label_key(name)]
    return found


def _is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _check_traffic(spec: Json, kind: str) -> Found:
    """Where traffic from outside, from inside and between zones may go."""
    outside, health = spec.get("externalTrafficPolicy") or "", spec.get("healthCheckNodePort") or 0
    found: Found = []
    accessible = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if outside and not accessible:
        words = "may only be set for externally-accessible services"
        found.append(invalid("spec.externalTrafficPolicy", outside, words))
    elif outside and outside not in _TRAFFIC:
        found.append(not_supported("spec.externalTrafficPolicy", outside, _TRAFFIC))
    if health and not (kind == "LoadBalancer" and outside == "Local"):
        words = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        found.append(invalid("spec.healthCheckNodePort", health, words))
    elif health:
        found += values.check_port(health, "spec.healthCheckNodePort")
    for name, accepted in (("internalTrafficPolicy", _TRAFFIC), ("trafficDistribution", _DISTRIBUTIONS)):
        value = spec.get(name)
        if value is not None and value not in accepted:
            found.append(not_supported(f"spec.{name}", value, accepted))
    return found
