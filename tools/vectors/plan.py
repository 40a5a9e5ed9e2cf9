"""Planning cases: a cluster in a few words, a question, and the sentence a user should read (cases/plan/README.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.kube.quantity import Quantity
from drakkar.planning.capacity import capacity_of
from drakkar.planning.plan import plan, scene_of, workload_of
from drakkar.planning.render import capacity_text, plan_text, rollout_text
from drakkar.planning.rollout import rollout_of
from tools.vectors import Outcome, difference, outcomes
from tools.vectors._clusters import manifests_of, snapshot_of

DEFAULT = "cases/plan"


def run(folder: Path) -> Iterator[Outcome]:
    """Every YAML file of the folder."""
    return outcomes(folder, check)


def check(case: dict[str, Any]) -> Iterator[str]:
    """What differs from what the case expects."""
    expect = case["expect"]
    try:
        fits, sentence, text = answer(case)
    except DrakkarError as error:
        yield from difference("error", expect.get("error"), error.message)
        return
    yield from difference("error", expect.get("error"), None)
    yield from difference("fits", expect["fits"], fits)
    yield from difference("sentence", expect["sentence"], sentence)
    flat = " ".join(text.split())
    for line in expect.get("says") or ():
        if " ".join(line.split()) not in flat:
            yield f"says: wanted {line!r}, got {text!r}"
    for line in expect.get("never") or ():
        if line in flat:
            yield f"never: {line!r} is in {text!r}"


def answer(case: dict[str, Any]) -> tuple[bool, str, str]:
    """Whether it fits, the sentence, and the whole text."""
    ask = case.get("ask") or {}
    scene = scene_of(
        snapshot_of(case["cluster"]),
        manifests_of(case),
        namespace="ml",
        with_nodes=ask.get("with", ()),
        without=ask.get("without", ()),
    )
    if "rollout" in ask:
        workload = workload_of(scene, ask["rollout"], "ml")
        limits = {"surge": str(ask.get("surge", "")), "unavailable": str(ask.get("unavailable", ""))}
        rollout = rollout_of(scene.cluster, workload, **limits)
        return rollout.ends, rollout.sentence, rollout_text(rollout)
    if "capacity" in ask:
        shares = {name: Quantity.parse(amount) for name, amount in (ask["capacity"] or {}).items()}
        capacity = capacity_of(scene.cluster, shares)
        rows = [f"{row.class_name} {row.kind}: {'unlimited' if row.unlimited else row.fits}" for row in capacity.rows]
        return True, "; ".join(rows), capacity_text(capacity)
    found = plan(scene)
    return found.fits, found.sentence, plan_text(found)
