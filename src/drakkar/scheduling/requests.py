"""What a pod asks of a node, as integers.

Kubernetes compares resources as whole numbers: cpu in thousandths, everything else in units. Converting once when an
object arrives keeps quantity arithmetic out of the loop over nodes. The rules for init containers, sidecars and
pod-level resources are those of KEP-753 and KEP-2837 (`k8s.io/component-helpers/resource`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from drakkar.kube.quantity import Quantity

Amounts = dict[str, int]
"""Resource name to amount; cpu in thousandths, other resources in whole units."""

_POD_LEVEL = ("cpu", "memory")
_DEFAULT_CPU = 100
_DEFAULT_MEMORY = 200 * 1024 * 1024


@lru_cache(maxsize=4096)
def amount(resource: str, text: str | int | float) -> int:
    """The integer that stands for quantity `text` of `resource`, rounded up. Raises `QuantityError`."""
    quantity = Quantity.parse(text)
    return quantity.milli_value() if resource == "cpu" else quantity.value()


def amounts(listed: Mapping[str, Any] | None) -> Amounts:
    """A `v1.ResourceList` as integers."""
    return {name: amount(name, value) for name, value in (listed or {}).items()}


def pod_requests(spec: Mapping[str, Any]) -> Amounts:
    """What a pod of this spec requests in all, including sidecars, init containers and overhead."""
    total = _containers(spec, _requested)
    pod_level = amounts((spec.get("resources") or {}).get("requests"))
    for name, value in pod_level.items():
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            total[name] = value
    _add(total, amounts(spec.get("overhead")))
    return total


def pod_score_requests(spec: Mapping[str, Any]) -> tuple[int, int]:
    """cpu (thousandths) and memory (bytes) used for spreading load; containers that ask for nothing count a little."""
    total = _containers(spec, _requested_or_default)
    pod_level = amounts((spec.get("resources") or {}).get("requests"))
    overhead = amounts(spec.get("overhead"))
    return (
        pod_level.get("cpu", total.get("cpu", 0)) + overhead.get("cpu", 0),
        pod_level.get("memory", total.get("memory", 0)) + overhead.get("memory", 0),
    )


def is_extended(resource: str) -> bool:
    """Whether `resource` is an extended resource: a qualified name outside kubernetes.io, or a class' implicit name."""
    if resource.startswith("deviceclass.resource.kubernetes.io/"):
        return True
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def _requested(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    found = amounts(resources.get("requests"))
    for name, value in amounts(resources.get("limits")).items():
        found.setdefault(name, value)
    return found


def _requested_or_default(container: Mapping[str, Any]) -> Amounts:
    found = _requested(container)
    found.setdefault("cpu", _DEFAULT_CPU)
    found.setdefault("memory", _DEFAULT_MEMORY)
    return found


def _containers(spec: Mapping[str, Any], requested: Any) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, requested(container))
    sidecars: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or ():
        needed = requested(container)
        if container.get("restartPolicy") == "Always":
            _add(total, needed)
            _add(sidecars, needed)
            needed = dict(sidecars)
        else:
            _add(needed, sidecars)
        _raise_to(highest, needed)
    _raise_to(total, highest)
    return total


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Amounts, floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value
