"""Nodes that are not there: of a model that can be simulated, or like one that the cluster has.

Such a node has the labels, the room and the slices that the real machine with its driver would have; it is empty and
carries no taints of its own, except that a node like another one has that one's.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from drakkar.drivers.catalog import family_of, models
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, name_of
from drakkar.inventory.slices import Pool, slice_contents, slice_spec

__all__ = ["added_nodes", "machine_node"]

Object = dict[str, Any]

_RESERVED: Final = 100 << 20  # bytes that a kubelet keeps for eviction
_MOST: Final = 5000


def added_nodes(snapshot: Snapshot, words: Sequence[str], *, partitions: bool | None = None) -> list[Object]:
    """Nodes with their slices, and the classes that their driver needs where the cluster has none of that name.

    Args:
        words: ``MODEL`` or ``MODEL:COUNT``; in place of a model the name of a node to copy.
        partitions: whether drivers publish every partition there could be; by default as those of the cluster do.

    Raises:
        DrakkarError: neither a model nor a node has the name, or the count is none.
    """
    known = {name_of(obj) for obj in snapshot.all("Node")}
    classes = {name_of(obj) for obj in snapshot.all("DeviceClass")}
    found: list[Object] = []
    for word in words:
        name, colon, count = word.partition(":")
        if colon and not (count.isascii() and count.isdecimal() and 0 < int(count) <= _MOST):
            raise DrakkarError(
                f"{count!r} is no number of nodes",
                reason="InvalidNode",
                subject=f"--with-node {word}",
                expected=f"MODEL, MODEL:COUNT or NODE:COUNT, at most {_MOST}",
            )
        for _ in range(int(count) if colon else 1):
            new = next(each for number in range(1 << 20) if (each := f"new-{name}-{number}") not in known)
            known.add(new)
            if snapshot.get("Node", name) is not None:
                found += _like(snapshot, name, new)
                continue
            _known_model(name, snapshot, word)
            found += machine_node(name, new, partitions=_partitioned(snapshot) if partitions is None else partitions)
            for device_class in family_of(name).device_classes():
                if name_of(device_class) not in classes:
                    classes.add(name_of(device_class))
                    found.append(device_class)
    return found


def machine_node(model: str, name: str, *, partitions: bool = False) -> list[Object]:
    """A node of a model and its slices. Raises `DrakkarError` for a model that does not exist."""
    family = family_of(model)
    with tempfile.TemporaryDirectory(prefix="drakkar-plan-") as folder:
        machine = family.build(model, name, Path(folder))
        if family.pools is None:
            raise DrakkarError(f"what model {model!r} publishes is not known", reason="UnknownModel", subject=model)
        pools = family.pools(machine, name, partitions)
        about = machine.node_description
    allocatable = {
        "cpu": str(about.cpu),
        "memory": f"{max(0, about.memory - _RESERVED) // 1024}Ki",
        "pods": str(about.pods or 110),
        "ephemeral-storage": "1Ti",
    }
    labels = {**about.labels, "kubernetes.io/hostname": name}
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"plan:{name}", "labels": labels},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return [node, *(piece for pool in pools for piece in _slices(pool))]


def _slices(pool: Pool) -> Iterator[Object]:
    contents = slice_contents(pool)
    for number, content in enumerate(contents):
        name = f"{pool.node_name}-{pool.driver}-{number}"
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name, "uid": f"plan:{name}"},
            "spec": slice_spec(pool, content, generation=1, count=len(contents)),
        }


def _partitioned(snapshot: Snapshot) -> bool:
    """Whether drivers of this cluster publish partitions that share counters."""
    return any((piece.get("spec") or {}).get("sharedCounters") for piece in snapshot.all("ResourceSlice"))


def _known_model(name: str, snapshot: Snapshot, word: str) -> None:
    if name in models():
        return
    import difflib

    nodes = [name_of(obj) for obj in snapshot.all("Node")]
    near = difflib.get_close_matches(name, [*models(), *nodes], 1)
    raise DrakkarError(
        f"{name!r} is neither a node model nor a node of the cluster"
        + (f"; did you mean {near[0]!r}?" if near else ""),
        reason="UnknownModel",
        subject=f"--with-node {word}",
        expected="a node's name, or one of " + ", ".join(models()),
    )


def _like(snapshot: Snapshot, name: str, new: str) -> Iterator[Object]:
    """A copy of a node, and of the slices that are its own."""
    node = copy.deepcopy(snapshot.get("Node", name) or {})
    node["metadata"] = {**node["metadata"], "name": new, "uid": f"plan:{new}"}
    labels = node["metadata"].get("labels") or {}
    node["metadata"]["labels"] = {key: new if value == name else value for key, value in labels.items()}
    (node.get("spec") or {}).pop("unschedulable", None)
    yield node
    for number, piece in enumerate(snapshot.all("ResourceSlice")):
        spec = piece.get("spec") or {}
        if spec.get("nodeName") != name:
            continue
        pool = spec.get("pool") or {}
        other_pool = str(pool.get("name") or "").replace(name, new) if name in str(pool.get("name")) else new
        own = {**spec, "nodeName": new, "pool": {**pool, "name": other_pool}}
        yield {**piece, "metadata": {"name": f"{new}-{number}", "uid": f"plan:{new}-{number}"}, "spec": own}
