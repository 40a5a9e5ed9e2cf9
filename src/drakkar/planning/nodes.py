"""Nodes that are not there: of a model that can be simulated, or like one that the cluster has.

Such a node has the labels, the room and the slices that the real machine with its driver would have; it is empty and
carries no taints of its own, except that a node like another one has that one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drakkar.drivers.catalog import family_of, models
from drakkar.drivers.machine_nodes import machine_node
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot, name_of
from drakkar.scheduling.node_copies import copied_node

__all__ = ["added_nodes"]

Object = dict[str, Any]

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
            like = snapshot.get("Node", name)
            if like is not None:
                own = [
                    piece
                    for piece in snapshot.all("ResourceSlice")
                    if (piece.get("spec") or {}).get("nodeName") == name
                ]
                found += copied_node(like, own, new)
                continue
            _known_model(name, snapshot, word)
            found += machine_node(name, new, partitions=_partitioned(snapshot) if partitions is None else partitions)
            for device_class in family_of(name).device_classes():
                if name_of(device_class) not in classes:
                    classes.add(name_of(device_class))
                    found.append(device_class)
    return found


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
