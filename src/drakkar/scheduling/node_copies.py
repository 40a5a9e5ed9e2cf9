"""A node that is not there, made from one that is known: what it would be called, and the slices it would have.

`plan --with-node NODE` asks for it, and an autoscaler for every node it thinks of adding. Whatever carries the known
node's name carries the new one's: the hostname label, the slices' node, the pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["copied_node"]

Object = dict[str, Any]


def copied_node(node: Mapping[str, Any], slices: Iterable[Mapping[str, Any]], name: str) -> Iterator[Object]:
    """The node with another name, schedulable, then its own slices; nothing handed in is changed."""
    metadata, before = node["metadata"], node["metadata"]["name"]
    labels = {key: name if value == before else value for key, value in (metadata.get("labels") or {}).items()}
    spec = {key: value for key, value in (node.get("spec") or {}).items() if key != "unschedulable"}
    yield {**node, "metadata": {**metadata, "name": name, "uid": f"plan:{name}", "labels": labels}, "spec": spec}
    for number, piece in enumerate(slices):
        pool = piece["spec"].get("pool") or {}
        known = str(pool.get("name") or "")
        other_pool = known.replace(before, name) if before in known else name
        own = {**piece["spec"], "nodeName": name, "pool": {**pool, "name": other_pool}}
        yield {**piece, "metadata": {"name": f"{name}-{number}", "uid": f"plan:{name}-{number}"}, "spec": own}
