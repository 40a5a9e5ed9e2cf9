"""Checks of single values that many kinds share: numbers, ports, percentages, resource lists, label selectors."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from drakkar.api import metadata, shared
from drakkar.api.fields import FieldError, forbidden, invalid, not_supported, required
from drakkar.kube import names
from drakkar.kube.quantity import Quantity
from drakkar.kube.selectors import LabelSelector, SelectorError

__all__ = [
    "PROTOCOLS",
    "check_address",
    "check_label_selector",
    "check_non_negative",
    "check_percentage",
    "check_port",
    "check_port_name",
    "check_port_or_name",
    "check_preemption_policy",
    "check_quantity",
    "check_quota_resource",
    "check_resource_name",
    "is_label_or_annotation",
    "selector_matches",
]

Json = Mapping[str, Any]
Found = list[FieldError]
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
NEGATIVE: Final = "must be greater than or equal to 0"
_PORT_NAME: Final = re.compile("[-a-z0-9]+", re.ASCII)
_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['.+'\]")
_PERCENT: Final = re.compile("[0-9]+%", re.ASCII)
_INTEGER_RESOURCES: Final = ("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps")
_STANDARD: Final = frozenset(
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "storage",
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
    ]
)
_HUGE_PAGES: Final = ("hugepages-", "requests.hugepages-")
_CONTAINER: Final = frozenset(("cpu", "memory", "ephemeral-storage"))


def check_non_negative(obj: Json, name: str, path: str) -> Found:
    """A number of an object that must not be below zero; absent is fine."""
    value = obj.get(name)
    if value is None or value >= 0:
        return []
    return [invalid(f"{path}.{name}", value, NEGATIVE, origin="minimum")]


def check_address(text: str, path: str) -> Found:
    """An IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return [invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    return []


def is_label_or_annotation(field: str) -> bool:
    """Whether a field path names one label or annotation of a pod."""
    return _SUBSCRIPT.fullmatch(field) is not None


def check_port(value: int, path: str) -> Found:
    """A port number."""
    return [] if 1 <= value <= 65535 else [invalid(path, value, "must be between 1 and 65535, inclusive")]


def check_port_name(name: str, path: str) -> Found:
    """A name of a port (IANA service name)."""
    complaints: list[str] = []
    if len(name) > 15:
        complaints.append("must be no more than 15 characters")
    if not _PORT_NAME.fullmatch(name):
        complaints.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        complaints.append("must contain at least one letter (a-z)")
    if "--" in name:
        complaints.append("must not contain consecutive hyphens")
    if name and "-" in (name[0], name[-1]):
        complaints.append("must not begin or end with a hyphen")
    return [invalid(path, name, text) for text in complaints]


def check_port_or_name(value: Any, path: str) -> Found:
    """A port by number or name."""
    return check_port_name(value, path) if isinstance(value, str) else check_port(value or 0, path)


def check_percentage(value: Any, path: str) -> Found:
    """A number or a percentage, not negative."""
    if isinstance(value, str):
        if _PERCENT.fullmatch(value):
            return []
        words = "a valid percent string must be a numeric string followed by an ending '%'"
        return [invalid(path, value, names.regex_complaint(words, "[0-9]+%", "1%", "93%"))]
    return [] if (value or 0) >= 0 else [invalid(path, value, NEGATIVE, origin="minimum")]


def number_of(value: Any) -> int:
    """The number in an int-or-percentage, 0 if there is none."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return int(value or 0)


def check_at_most_100_percent(value: Any, path: str) -> Found:
    """A percentage of at most 100; plain numbers pass."""
    if isinstance(value, str) and number_of(value) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def check_quantity(name: str, value: str, path: str) -> Found:
    """An amount of a resource: not negative, whole for resources that come in pieces."""
    found: Found = []
    quantity = Quantity.from_json(value)
    if quantity.sign < 0:
        found.append(invalid(path, value, NEGATIVE))
    if (name in _INTEGER_RESOURCES or is_extended(name)) and quantity.milli_value() % 1000:
        found.append(invalid(path, value, "must be an integer"))
    return found


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one: domain-qualified and not Kubernetes' own."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not names.label_key(f"requests.{name}")


def check_resource_name(name: str, path: str) -> Found:
    """A resource name anywhere: a standard one, or domain-qualified."""
    found = [invalid(path, name, text) for text in names.label_key(name)]
    if not found and "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        found.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return found


def check_quota_resource(name: str, path: str) -> Found:
    """A resource name in a quota."""
    found = check_resource_name(name, path)
    if "/" not in name and (name not in _STANDARD or name == "storage") and not name.startswith(_HUGE_PAGES):
        found.append(invalid(path, name, "must be a standard resource for quota"))
    return found


def check_container_resource(name: str, path: str) -> Found:
    """A resource name in a container."""
    found = check_resource_name(name, path)
    if "/" not in name:
        if name not in _CONTAINER and not name.startswith("hugepages-"):
            found.append(invalid(path, name, "must be a standard resource for containers"))
    elif "kubernetes.io/" not in name and not is_extended(name):
        found.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return found


def overcommits(name: str) -> bool:
    """Whether requests of a resource may be below its limits."""
    return ("/" not in name or "kubernetes.io/" in name) and not name.startswith("hugepages-")


def check_preemption_policy(policy: str, path: str) -> Found:
    """Whether pods of a priority may make others go."""
    if not policy:
        return [required(path)]
    accepted = ("PreemptLowerPriority", "Never")
    return [] if policy in accepted else [not_supported(path, policy, accepted)]


def check_label_selector(selector: Json | None, path: str) -> Found:
    """A label selector: labels and requirements."""
    if selector is None:
        return []
    found = metadata.check_labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        found += _check_requirement(requirement, f"{path}.matchExpressions[{index}]")
    return found


def _check_requirement(requirement: Json, path: str) -> Found:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    found: Found = []
    if operator in ("In", "NotIn"):
        if not values:
            found.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(forbidden(f"{path}.values", detail))
    else:
        found.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    found += shared.check_label_key(requirement.get("key") or "", f"{path}.key")
    for index, value in enumerate(values):
        found += [invalid(f"{path}.values[{index}]", value, text) for text in names.label_value(value)]
    return found


def selector_matches(selector: Json, labels: Json) -> bool:
    """Whether a label selector matches labels; one that is not valid matches none."""
    try:
        return LabelSelector.from_object(selector).matches(labels)
    except SelectorError:
        return False
