"""What is wrong with Endpoints: the addresses behind a service as they were before EndpointSlices."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from drakkar.api.fields import FieldError, invalid, not_supported, required
from drakkar.cluster.machinery.validation import values
from drakkar.kube import names

__all__ = ["check_endpoints"]

Json = Mapping[str, Any]
Found = list[FieldError]


def check_endpoints(obj: Json) -> Found:
    """Endpoints, new or changed."""
    found: Found = []
    for index, subset in enumerate(obj.get("subsets") or ()):
        path = f"subsets[{index}]"
        kinds = ("addresses", "notReadyAddresses")
        if not any(subset.get(kind) for kind in kinds):
            found.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for kind in kinds:
            for place, address in enumerate(subset.get(kind) or ()):
                found += _address(address, f"{path}.{kind}[{place}]")
        ports = subset.get("ports") or ()
        for place, port in enumerate(ports):
            found += _port(port, f"{path}.ports[{place}]", named=len(ports) > 1)
    return found


def _address(address: Json, path: str) -> Found:
    text, name, node = (address.get(part) or "" for part in ("ip", "hostname", "nodeName"))
    unreadable = values.check_address(text, f"{path}.ip")
    found = [*unreadable]
    if name:
        found += [invalid(f"{path}.hostname", name, why) for why in names.dns_label(name)]
    if node:
        found += [invalid(f"{path}.nodeName", node, why) for why in names.dns_subdomain(node)]
    if unreadable:  # upstream reads it twice, and says so twice
        return [*found, invalid(f"{path}.ip", text, "must be a valid IP address")]
    return found + _special(text, f"{path}.ip")


def _special(text: str, path: str) -> Found:
    """Addresses that reach the server's own host or many hosts may not be endpoints."""
    ip = ipaddress.ip_address(text)
    found: Found = []
    for holds, words in (
        (ip.is_unspecified, f"may not be unspecified ({text})"),
        (ip.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (ip.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (_is_local_multicast(ip), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ):
        if holds:
            found.append(invalid(path, text, words))
    return found


def _is_local_multicast(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ip in ipaddress.ip_network("224.0.0.0/24") or ip in ipaddress.ip_network("ff02::/16")


def _port(port: Json, path: str, *, named: bool) -> Found:
    name, protocol = port.get("name") or "", port.get("protocol") or ""
    found: Found = []
    if named and not name:
        found.append(required(f"{path}.name"))
    elif name:
        found += [invalid(f"{path}.name", name, why) for why in names.dns_label(name)]
    found += values.check_port(port.get("port") or 0, f"{path}.port")
    if not protocol:
        found.append(required(f"{path}.protocol"))
    elif protocol not in values.PROTOCOLS:
        found.append(not_supported(f"{path}.protocol", protocol, values.PROTOCOLS))
    return found
