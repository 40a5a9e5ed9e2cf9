"""When a new node counts: not when its kubelet says that it is ready, but when its drivers have published. Pure.

Otherwise the pods that a node was made for still fit nowhere while its driver starts, and another node would be asked
for (`processors/customresources` of cluster-autoscaler, which compares with the template's pools since 1.35).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from drakkar.cluster.autoscaler.options import NodeGroup
from drakkar.cluster.autoscaler.templates import is_startup_taint
from drakkar.cluster.controllers.pods import condition

__all__ = ["is_ready", "says_ready", "whole_pools"]

Object = Mapping[str, Any]


def is_ready(group: NodeGroup, node: Object, slices: Iterable[Object], wanted: Set[str]) -> bool:
    """Whether the node is Ready, has no startup taint, and every driver of `wanted` shows a whole pool in `slices`."""
    if not says_ready(node):
        return False
    if any(is_startup_taint(group, taint) for taint in (node.get("spec") or {}).get("taints") or ()):
        return False
    return not wanted or wanted <= whole_pools(slices)


def says_ready(node: Object) -> bool:
    """Whether the node's kubelet says that it is ready."""
    return (condition(node, "Ready") or {}).get("status") == "True"


def whole_pools(slices: Iterable[Object]) -> set[str]:
    """Drivers with a pool whose newest generation has all of its slices."""
    pools: dict[tuple[str, str], list[Object]] = {}
    for piece in slices:
        pools.setdefault((piece["spec"]["driver"], piece["spec"]["pool"]["name"]), []).append(piece["spec"]["pool"])
    found = set()
    for (driver, _), some in pools.items():
        newest = max(int(pool.get("generation") or 0) for pool in some)
        current = [pool for pool in some if int(pool.get("generation") or 0) == newest]
        if len(current) == int(current[0].get("resourceSliceCount") or 1):
            found.add(driver)
    return found
