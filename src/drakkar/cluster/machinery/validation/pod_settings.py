"""What is wrong with settings of a whole pod: its security context, name resolution, gates of readiness, system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, invalid, not_supported, required
from drakkar.cluster.machinery.validation import values
from drakkar.cluster.machinery.validation.internal_types import internal
from drakkar.kube import names

__all__ = ["check_dns", "check_late", "check_security"]

Json = Mapping[str, Any]
Found = list[FieldError]
_IDS: Final = "must be between 0 and 2147483647, inclusive"
_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH_LABEL: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH: Final = _SEARCH_LABEL + r"(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSTEMS: Final = ("linux", "windows")
_MOST_NAMESERVERS: Final = 3
_MOST_SEARCHES: Final = 32


def check_security(spec: Json, path: str) -> Found:
    """The host's name spaces, and the pod's security context: users, groups, kernel parameters, seccomp."""
    return _host(spec, path) + _context(spec.get("securityContext") or {}, f"{path}.securityContext")


def _host(spec: Json, path: str) -> Found:
    found: Found = []
    if spec.get("hostNetwork"):
        for outer, container in enumerate(spec.get("containers") or ()):
            for index, port in enumerate(container.get("ports") or ()):
                if port.get("hostPort") != port.get("containerPort"):
                    place = f"{path}.containers[{outer}].ports[{index}].hostPort"
                    told = "must match `containerPort` when `hostNetwork` is true"
                    found.append(invalid(place, port.get("hostPort") or 0, told))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        told = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(f"{path}.shareProcessNamespace", True, told))
    return found


def _context(context: Json, path: str) -> Found:
    found: Found = []
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        found += _check_id(context.get(name), f"{path}.{name}")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        found += _check_id(group, f"{path}.supplementalGroups[{index}]")
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        name, place = sysctl.get("name") or "", f"{path}.sysctls[{index}].name"
        if not name:
            found.append(required(place))
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            found.append(invalid(place, name, f"must have at most 253 characters and match regex ^{_SYSCTL}$"))
        elif name in seen:
            found.append(duplicate(place, name))
        seen.add(name)
    return found + _seccomp(context.get("seccompProfile"), f"{path}.seccompProfile")


def _check_id(number: int | None, path: str) -> Found:
    return [] if number is None or 0 <= number < 1 << 31 else [invalid(path, number, _IDS)]


def _seccomp(profile: Json | None, path: str) -> Found:
    if profile is None:
        return []
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    found: Found = []
    if not kind:
        found.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        found.append(not_supported(f"{path}.type", kind, _PROFILES))
    if kind == "Localhost":
        if not local:
            found.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
    elif local is not None:
        shown = internal(profile, "SeccompProfile")
        found.append(invalid(f"{path}.localhostProfile", shown, "can only be set when seccomp type is Localhost"))
    return found


def check_dns(spec: Json, path: str) -> Found:
    """Name resolution, and the conditions that readiness waits for."""
    config = spec.get("dnsConfig") or {}
    found: Found = []
    if spec.get("dnsPolicy") == "None":
        if spec.get("dnsConfig") is None:
            found.append(required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None"))
        elif not config.get("nameservers"):
            told = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            found.append(required(f"{path}.dnsConfig.nameservers", told))
    found += _dns_config(config, f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        found += [
            invalid(f"{path}.readinessGates[{index}].conditionType", kind, text) for text in names.label_key(kind)
        ]
    return found


def _dns_config(config: Json, path: str) -> Found:
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    found: Found = []
    if len(servers) > _MOST_NAMESERVERS:
        told = f"must not have more than {_MOST_NAMESERVERS} nameservers"
        found.append(invalid(f"{path}.nameservers", servers, told))
    for index, server in enumerate(servers):
        found += values.check_address(server, f"{path}.nameservers[{index}]")
    if len(searches) > _MOST_SEARCHES:
        told = f"must not have more than {_MOST_SEARCHES} search paths"
        found.append(invalid(f"{path}.searches", searches, told))
    for index, domain in enumerate(searches):
        found += [invalid(f"{path}.searches[{index}]", domain, text) for text in _search_complaints(domain)]
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            found.append(required(f"{path}.options[{index}]", "must not be empty"))
    return found


def _search_complaints(domain: str) -> list[str]:
    if domain == ".":
        return []
    plain = domain.removesuffix(".")
    if re.fullmatch(_SEARCH, plain):
        return []
    words = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must"
        " start and end with an alphanumeric character"
    )
    return [names.regex_complaint(words, _SEARCH, "example.com")]


def check_late(spec: Json, path: str) -> Found:
    """What is looked at last: aliases, host ports in the host's network, the system, nodes of gated pods."""
    found: Found = []
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        place = f"{path}.hostAliases[{index}]"
        found += values.check_address(alias.get("ip") or "", f"{place}.ip")
        for number, name in enumerate(alias.get("hostnames") or ()):
            found += [invalid(f"{place}.hostnames[{number}]", name, text) for text in names.dns_subdomain(name)]
    system = (spec.get("os") or {}).get("name")
    if spec.get("os") is not None:
        if not system:
            found.append(required(f"{path}.os.name"))
        elif system not in _SYSTEMS:
            found.append(not_supported(f"{path}.os", system, _SYSTEMS))
    return found
