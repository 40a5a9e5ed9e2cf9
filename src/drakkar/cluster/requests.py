"""The nodes that a user asks for, as words; this is read before anything heavy, since a wrong word is told at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drakkar.errors import DrakkarError


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A node to be: its name, the model of its machine, and the labels and taints it registers with.

    With `partitions` its drivers publish every partition there could be.
    """

    name: str
    model: str
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    partitions: bool = False


def parse_nodes(words: Sequence[str]) -> list[NodeRequest]:
    """``dgx-h100`` or ``a100-40gb:2``; nodes are numbered per model, `a100-40gb-0` and on. Raises `DrakkarError`."""
    counts: dict[str, int] = {}
    requests = []
    for word in words:
        model, colon, count = word.partition(":")
        if colon and not (count.isascii() and count.isdecimal() and 0 < int(count) <= 5000):
            raise DrakkarError(
                f"{count!r} is no number of nodes",
                reason="InvalidNode",
                subject=f"--node {word}",
                expected="MODEL or MODEL:COUNT, at most 5000",
            )
        for _ in range(int(count) if colon else 1):
            number = counts.get(model, 0)
            counts[model] = number + 1
            requests.append(NodeRequest(f"{model}-{number}", model))
    return requests


def merge_nodes(remembered: Sequence[NodeRequest], asked: Sequence[NodeRequest]) -> list[NodeRequest]:
    """The nodes a cluster has when it comes back: those it had, and those asked for now that are new.

    Labels and taints asked for now take the place of those remembered.
    """
    known = {request.name: request for request in remembered}
    for request in asked:
        before = known.setdefault(request.name, request)
        if before.model != request.model:
            raise DrakkarError(
                f"node {request.name} is a {before.model} in this data folder",
                reason="OtherModel",
                subject=f"--node {request.model}",
            )
        if request.labels or request.taints:
            known[request.name] = request
    return list(known.values())
