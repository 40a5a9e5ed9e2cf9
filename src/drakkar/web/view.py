"""What the board shows, as a value made of one snapshot: numbers, nodes with their devices, waiting pods, claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from drakkar.diagnosis.pending import findings_of_pending_pods
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, uid_of
from drakkar.fleet.devices import Fleet, FleetDevice
from drakkar.fleet.holdings import Holding
from drakkar.fleet.workloads import claim_state, pending_pods, stated_cause

__all__ = ["MARKS", "BoardView", "ClaimRow", "DeviceCell", "NodeCard", "PendingRow", "view"]

MARKS: Final = {
    "held": "a claim holds it",
    "free": "free",
    "tainted": "refused by its taints",
    "stranded": "cannot be had although nobody holds it",
    "lost": "its driver says it is gone, or a claim holds it and no slice has it",
}
_NODES: Final = 256
_ROWS: Final = 200
_EXAMINED: Final = 32  # different waiting pods; a tenth of a second each on a thousand nodes


class DeviceCell(NamedTuple):
    """A device as a square: `mark` is a key of `MARKS`, `held` also where the mark says something worse."""

    name: str
    mark: str
    held: bool
    text: str


@dataclass(frozen=True, slots=True)
class NodeCard:
    """A node with its devices; `problem` is why nothing new goes there."""

    name: str
    problem: str
    products: str
    cells: tuple[DeviceCell, ...]


class PendingRow(NamedTuple):
    """A pod that waits, with the finding about it."""

    pod: str
    boundary: str
    cause: str
    sentence: str
    next_step: str


class ClaimRow(NamedTuple):
    """A claim with what it holds and for whom."""

    claim: str
    state: str
    devices: str
    users: str
    since: str


@dataclass(frozen=True, slots=True)
class BoardView:
    """Everything on the page. What was left out for its size is counted in `hidden`, by heading.

    `total` is the number of published devices; `counts` sums up to it, except for lost ones, which are counted again.
    """

    total: int
    counts: Mapping[str, int]
    claims_by_state: Mapping[str, int]
    nodes: tuple[NodeCard, ...]
    pending: tuple[PendingRow, ...]
    claims: tuple[ClaimRow, ...]
    hidden: Mapping[str, int]
    unread: tuple[str, ...]
    version: str
    taken: datetime | None


def view(snapshot: Snapshot) -> BoardView:
    """The board of a snapshot."""
    fleet = Fleet(snapshot)
    nodes, waiting, claims = _nodes(fleet), _pending(snapshot), _claims(fleet)
    counts = dict.fromkeys(MARKS, 0)
    for device in fleet.devices:
        counts[device.state] += 1
    counts["lost"] = sum(cell.mark == "lost" for card in nodes for cell in card.cells)
    states: dict[str, int] = {}
    for row in claims:
        states[row.state] = states.get(row.state, 0) + 1
    shown = (("nodes", nodes, _NODES), ("pending", waiting, _ROWS), ("claims", claims, _ROWS))
    return BoardView(
        len(fleet.devices),
        counts,
        states,
        tuple(nodes[:_NODES]),
        tuple(waiting[:_ROWS]),
        tuple(claims[:_ROWS]),
        {name: len(rows) - limit for name, rows, limit in shown if len(rows) > limit},
        snapshot.unread,
        snapshot.kubernetes_version,
        snapshot.captured_at,
    )


def _nodes(fleet: Fleet) -> list[NodeCard]:
    """Nodes with devices and those in trouble, the latter first; other nodes are no business of the board."""
    devices: dict[str, list[FleetDevice]] = {}
    for device in fleet.devices:
        devices.setdefault(device.node, []).append(device)
    published = {device.key for device in fleet.devices}
    gone: dict[str, list[Holding]] = {}
    for holding in fleet.holdings:
        if holding.device not in published:
            gone.setdefault(holding.node, []).append(holding)
    cards = []
    for name in dict.fromkeys((*devices, *gone)):
        mine = devices.get(name, [])
        cells = [_cell(device) for device in mine]
        cells += [
            DeviceCell(
                holding.device.device, "lost", True, f"{holding.device}\nno slice has it\nheld by {holding.claim}"
            )
            for holding in gone.get(name, ())
        ]
        cards.append(NodeCard(name or "any node", fleet.unreachable(name), _products(mine), tuple(cells)))
    return sorted(cards, key=lambda card: (not _troubled(card), card.name))


def _troubled(card: NodeCard) -> bool:
    return bool(card.problem) or any(cell.mark not in ("held", "free") for cell in card.cells)


def _cell(device: FleetDevice) -> DeviceCell:
    held = device.state == "held"
    mark = "lost" if device.lost else "tainted" if held and device.reasons else device.state
    lines = [str(device.key), device.product, device.uuid, *device.reasons]
    for holding in device.holdings:
        users = ", ".join(str(pod) for pod in holding.pods) or "nobody"
        lines.append(f"claim {holding.claim} for {users} since {holding.since or 'unknown'}")
    return DeviceCell(device.key.device, mark, held, "\n".join(line for line in lines if line))


def _products(devices: list[FleetDevice]) -> str:
    counts: dict[str, int] = {}
    for device in devices:
        name = device.product or device.kind or device.key.driver
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} × {name}" for name, count in counts.items())


def _pending(snapshot: Snapshot) -> list[PendingRow]:
    pods = pending_pods(snapshot)
    findings = findings_of_pending_pods(snapshot, limit=_EXAMINED) if pods else {}
    rows = []
    for pod in pods:
        name, finding = f"{namespace_of(pod)}/{name_of(pod)}", findings.get(uid_of(pod))
        if finding is None:
            rows.append(PendingRow(name, "", stated_cause(pod), "", f"drakkar explain pod/{name}"))
        else:
            rows.append(PendingRow(name, _boundary(finding), finding.cause, finding.sentence, finding.next_step))
    return rows


def _boundary(finding: Any) -> str:
    from drakkar.diagnosis.verdict import cause_of

    return finding.boundary or cause_of(finding.cause).boundary


def _claims(fleet: Fleet) -> list[ClaimRow]:
    held: dict[str, list[Holding]] = {}
    for holding in fleet.holdings:
        held.setdefault(holding.claim_uid, []).append(holding)
    rows = []
    for claim in fleet.snapshot.all("ResourceClaim"):
        mine = held.get(uid_of(claim), [])
        users = dict.fromkeys(str(pod) for holding in mine for pod in holding.pods)
        rows.append(
            ClaimRow(
                f"{namespace_of(claim)}/{name_of(claim)}",
                claim_state(claim),
                ", ".join(f"{holding.device.pool}/{holding.device.device}" for holding in mine),
                ", ".join(users),
                mine[0].since if mine else "",
            )
        )
    return sorted(rows)
