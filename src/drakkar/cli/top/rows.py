"""The rows of `drakkar top`, made of one snapshot: the same for the screen, the table and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from drakkar.diagnosis.pending import findings_of_pending_pods
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, uid_of
from drakkar.fleet.devices import Fleet, FleetDevice
from drakkar.fleet.tallies import tallies
from drakkar.fleet.workloads import pending_pods, stated_cause

__all__ = ["DeviceRow", "NodeRow", "TopView", "WaitingRow", "view"]

_EXAMINED = 32  # different waiting pods; a tenth of a second each on a thousand nodes


class NodeRow(NamedTuple):
    """The devices of one driver and kind on one node; `problem` is why nothing new goes there."""

    node: str
    kind: str
    total: int
    held: int
    tainted: int
    stranded: int
    free: int
    problem: str

    def cells(self) -> list[str]:
        """As columns of text."""
        return [self.node or "-", self.kind or "-", *map(str, self[2:7])]


class DeviceRow(NamedTuple):
    """One device, who has it and since when (RFC 3339, "" if nobody has it or nobody says)."""

    device: str
    node: str
    kind: str
    product: str
    state: str
    claim: str
    pods: str
    since: str
    uuid: str
    reasons: str

    def cells(self) -> list[str]:
        """As columns of text."""
        return [self.device, self.node or "-", self.kind or "-", self.state, self.claim or "-", self.pods or "-"]

    def details(self) -> str:
        """Everything about it."""
        lines = [
            f"{name:<8} {value}"
            for name, value in (
                ("device", self.device), ("node", self.node), ("product", self.product), ("type", self.kind),
                ("uuid", self.uuid), ("state", self.state), ("why", self.reasons), ("claim", self.claim),
                ("pods", self.pods), ("since", self.since),
            )
            if value
        ]  # fmt: skip
        return "\n".join(lines)


class WaitingRow(NamedTuple):
    """A pod that waits for devices, and why."""

    pod: str
    boundary: str
    cause: str
    sentence: str
    next_step: str

    def cells(self) -> list[str]:
        """As columns of text."""
        return [self.pod, self.cause, self.sentence]

    def details(self) -> str:
        """Everything about it."""
        lines = [self.pod, f"{self.cause} ({self.boundary or 'allocation'})", self.sentence]
        return "\n".join([*lines, *([f"next: {self.next_step}"] if self.next_step else [])])


@dataclass(frozen=True, slots=True)
class TopView:
    """All rows of one snapshot, when it was taken, and what could not be read."""

    nodes: tuple[NodeRow, ...]
    devices: tuple[DeviceRow, ...]
    pending: tuple[WaitingRow, ...]
    taken: str
    unread: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "taken": self.taken,
            "nodes": [row._asdict() for row in self.nodes],
            "devices": [row._asdict() for row in self.devices],
            "pending": [row._asdict() for row in self.pending],
            "unread": list(self.unread),
        }


def view(snapshot: Snapshot) -> TopView:
    """The rows of a snapshot, nodes in trouble and devices by node first."""
    fleet = Fleet(snapshot)
    taken = snapshot.captured_at.isoformat() if snapshot.captured_at else ""
    devices = sorted((_device(device) for device in fleet.devices), key=lambda row: (row.node, row.device))
    return TopView(tuple(_nodes(fleet)), tuple(devices), tuple(_waiting(snapshot)), taken, snapshot.unread)


def _nodes(fleet: Fleet) -> Iterator[NodeRow]:
    for tally in tallies(fleet, "node"):
        states = tally.states
        yield NodeRow(
            tally.group,
            tally.kind or tally.driver,
            tally.total,
            states["held"],
            states["tainted"],
            states["stranded"],
            tally.free,
            fleet.unreachable(tally.group) if tally.group else "",
        )


def _device(device: FleetDevice) -> DeviceRow:
    holdings = device.holdings
    pods = dict.fromkeys(str(pod) for holding in holdings for pod in holding.pods)
    return DeviceRow(
        device.key.device,
        device.node,
        device.kind,
        device.product,
        "lost" if device.lost else device.state,
        ", ".join(holding.claim for holding in holdings),
        ", ".join(pods) or ("nobody" if holdings else ""),
        min((holding.since for holding in holdings if holding.since), default=""),
        device.uuid,
        "; ".join(device.reasons),
    )


def _waiting(snapshot: Snapshot) -> Iterator[WaitingRow]:
    pods = pending_pods(snapshot)
    findings = findings_of_pending_pods(snapshot, limit=_EXAMINED) if pods else {}
    for pod in pods:
        name, finding = f"{namespace_of(pod)}/{name_of(pod)}", findings.get(uid_of(pod))
        if finding is None:
            yield WaitingRow(name, "", stated_cause(pod), "", f"drakkar explain pod/{name}")
        else:
            yield WaitingRow(name, finding.boundary, finding.cause, finding.sentence, finding.next_step)
