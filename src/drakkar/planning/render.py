"""A plan, a rollout or a capacity as text for a terminal: the answer first, then where, what is left, what helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from drakkar.planning.capacity import SIZES, Capacity, Row
from drakkar.planning.placing import Given, Outcome
from drakkar.planning.plan import Plan
from drakkar.planning.rollout import Rollout
from drakkar.planning.room import Room

__all__ = ["capacity_text", "plan_text", "rollout_text"]

_ROWS: Final = 40
_NODES: Final = 6
_DEVICES: Final = 8


def plan_text(plan: Plan) -> str:
    """The whole plan."""
    blocks = [[plan.sentence]]
    for rollout in plan.rollouts:
        blocks.append(list(_rollout(rollout))[2:])
    for title, outcomes in (("", plan.outcomes), ("displaced", plan.displaced), ("waiting", plan.waiting)):
        if outcomes:
            blocks.append(([f"{title}: {_count(outcomes)}"] if title else []) + list(_placed(outcomes)))
    refused = _distinct(outcome for outcome in plan.asked if not outcome.fits)
    blocks += [[first.why + (f" (and {len(more)} like it)" if more else "")] for first, *more in refused[1:]]
    for first, *_ in refused:
        if first.changes:
            blocks.append(["it would fit with one of", *(f"  {text} (node {node})" for node, text in first.changes)])
    if plan.rooms:
        blocks.append(list(_rooms(plan.rooms)))
        left = sum(bool(outcome.refused) for outcome in plan.asked if not outcome.fits) - len(plan.rooms)
        if left > 0:
            blocks[-1].append(f"  (for {left} more pod{'s' if left > 1 else ''} nobody's going was found to help)")
    elif plan.no_room:
        blocks.append([plan.no_room])
    if plan.asked and plan.after.rows:
        blocks.append(["left after", *_capacity(plan.after.rows, plan.before.rows)])
    blocks.append([f"note: {note}" for note in plan.notes] + [f"left out: {problem}" for problem in plan.problems])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def rollout_text(rollout: Rollout) -> str:
    """One rollout."""
    return "\n".join(_rollout(rollout)) + "\n"


def capacity_text(capacity: Capacity) -> str:
    """What fits, and where fragmentation takes some away."""
    lines = list(_capacity(capacity.rows)) if capacity.rows else ["no device of any class is published"]
    remarks = [row.remark for row in capacity.rows if row.remark]
    if remarks:
        lines += ["", *remarks]
    if capacity.problems:
        lines += ["", *(f"left out: {problem}" for problem in capacity.problems)]
    return "\n".join(lines) + "\n"


def _count(outcomes: Sequence[Outcome]) -> str:
    fit = sum(outcome.fits for outcome in outcomes)
    return f"{fit} of {len(outcomes)} find a node"


def _placed(outcomes: Sequence[Outcome]) -> Iterator[str]:
    rows = [["POD", "NODE", "DEVICES"]]
    for outcome in outcomes[:_ROWS]:
        devices = [_device(one, outcome.node) + _amounts(one.amounts) for one in outcome.devices]
        shown = ", ".join(devices[:_DEVICES]) + (
            f" and {len(devices) - _DEVICES} more" if len(devices) > _DEVICES else ""
        )
        rows.append([outcome.pod.name, outcome.node or "-", shown or "-"])
    yield from table(rows)
    if len(outcomes) > _ROWS:
        yield f"and {len(outcomes) - _ROWS} more pods"


def _device(given: Given, node: str) -> str:
    """The name alone where the pool is the node's: which driver it is of is the class' business."""
    _, pool, name = given.device.split("/", 2)
    return name if pool == node else given.device


def _amounts(amounts: Iterable[tuple[str, str]]) -> str:
    shown = ", ".join(f"{name} {amount}" for name, amount in amounts)
    return f" ({shown})" if shown else ""


def _distinct(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Pods that do not fit, those of one workload with the same reasons together."""
    ordered = sorted(outcomes, key=lambda one: (one.pod.owner, [reason.text for reason in one.reasons]))
    return [list(group) for _, group in groupby(ordered, key=lambda one: (one.pod.owner, one.reasons))]


def _rooms(rooms: Sequence[Room]) -> Iterator[str]:
    total = sum(room.size - room.ending for room in rooms)
    if total:
        yield f"to make room {total} would have to go:"
    else:
        yield "nobody has to go: what is needed will be free when these have ended"
    for room in rooms:
        for name in room.names:
            yield f"  {name}, from node {room.node}, for pod {room.for_pod}"
        if not room.smallest:
            yield "  (there may be a smaller set: not all were tried)"


def _rollout(rollout: Rollout) -> Iterator[str]:
    yield rollout.sentence
    yield ""
    yield f"maxSurge {rollout.surge}, maxUnavailable {rollout.unavailable}, {rollout.replicas} replicas"
    rows = [["STEP", "OLD", "NEW", "WAITING", ""]]
    for number, step in enumerate(rollout.steps, 1):
        if len(rollout.steps) > _ROWS and _ROWS // 2 < number < len(rollout.steps) - 2:
            continue
        rows.append([str(number), str(step.old), str(step.new), str(step.waiting), step.done])
    yield from table(rows)
    if rollout.why:
        yield ""
        yield rollout.why
    if not rollout.ends:
        yield ""
        if rollout.fixes:
            yield "it would end with one of"
            yield from (f"  {fix}" for fix in rollout.fixes)
        else:
            yield "no other strategy helps: the new pods fit on no node even without the old ones"


def _capacity(rows: Sequence[Row], before: Sequence[Row] = ()) -> Iterator[str]:
    earlier = {(row.class_name, row.kind): row for row in before}
    header = ["CLASS", "TYPE", "PRODUCT", "TOTAL", *(["BEFORE"] if before else []), "FIT"]
    lines = [[*header, *(f"×{size}" for size in SIZES if size > 1), "IF PACKED", "BY NODE"]]
    for row in rows:
        was = earlier.get((row.class_name, row.kind))
        type_ = f"{row.kind} (each {row.share})" if row.share else str(row.kind)
        lines.append(
            [
                row.class_name,
                type_,
                row.kind.product or "-",
                str(row.total),
                *([_number(was) if was is not None else "-"] if before else []),
                _number(row),
                *("-" if row.unlimited or row.share else str(row.pods(size)) for size in SIZES if size > 1),
                str(row.whole) if row.whole > row.fits else "-",
                _by_node(row),
            ]
        )
    yield from table(lines)


def _number(row: Row) -> str:
    return "unlimited" if row.unlimited else str(row.fits)


def _by_node(row: Row) -> str:
    if row.unlimited:
        return "-"
    some = [(name, count) for name, count in row.by_node.items() if count]
    shown = " ".join(f"{name}:{count}" for name, count in some[:_NODES])
    return (shown + (f" and {len(some) - _NODES} more" if len(some) > _NODES else "")) or "-"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as kubectl aligns them."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
