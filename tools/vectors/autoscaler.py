"""Autoscaler cases: a cluster and node groups in a few words, and what is done (cases/autoscaler/README.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from drakkar.cluster.autoscaler.drain_rules import Budgets, DrainRules
from drakkar.cluster.autoscaler.expanders import best_option
from drakkar.cluster.autoscaler.options import GROUP_LABEL, NodeGroup, Settings
from drakkar.cluster.autoscaler.pods import daemon_pods
from drakkar.cluster.autoscaler.scale_down import Candidate, ScaleDown
from drakkar.cluster.autoscaler.scale_up import GroupView, not_triggered, plan_scale_up, waiting_pods
from drakkar.cluster.autoscaler.templates import from_node, from_provider
from drakkar.cluster.fleet_fields import Field
from drakkar.cluster.fleet_groups import read_groups, read_settings
from drakkar.evidence.snapshot import Snapshot, name_of
from drakkar.planning.cluster import PlannedCluster
from drakkar.planning.workloads import completed
from drakkar.scheduling.pods import PodFacts
from tools.vectors import Outcome, difference, outcomes
from tools.vectors._clusters import snapshot_of

DEFAULT = "cases/autoscaler"

Object = dict[str, Any]


def run(folder: Path) -> Iterator[Outcome]:
    """Every YAML file of the folder."""
    return outcomes(folder, check)


def check(case: Object) -> Iterator[str]:
    """What differs from what the case expects."""
    groups = read_groups(Field("case", "groups", case["groups"]))
    settings = read_settings(Field("case", "autoscaler", case.get("autoscaler")))
    snapshot = snapshot_of(_expanded(case["cluster"]))
    cluster = PlannedCluster(snapshot, monotonic=lambda: 0.0)
    before = _shape(cluster)
    expect = case["expect"]
    got = _grown(case, cluster, snapshot, groups, settings)
    if "after" in case:
        got |= _shrunk(case, cluster, snapshot, groups, settings)
    for key, wanted in expect.items():
        yield from difference(key, wanted, got.get(key))
    yield from difference("the cluster afterwards", before, _shape(cluster))


def _expanded(cluster: Object) -> Object:
    """`group` of a node as its label, `times` of a waiting pod as so many pods."""
    nodes = {}
    for name, node in (cluster.get("nodes") or {}).items():
        node = {"model": node} if isinstance(node, str) else dict(node)
        if "group" in node:
            node["labels"] = {**(node.get("labels") or {}), GROUP_LABEL: node.pop("group")}
        nodes[name] = node
    waiting = [
        {**entry, "name": f"{entry['name']}-{number}"} if "times" in entry else entry
        for entry in cluster.get("waiting") or ()
        for number in range(entry.get("times", 1))
    ]
    return {**cluster, "nodes": nodes, "waiting": waiting}


def _shape(cluster: PlannedCluster) -> Object:
    return {
        "nodes": {state.name: sorted(state.pods) for state in cluster.view.existing()},
        "claims": {
            "/".join(key): (claim.get("status") or {}).get("allocation")
            for key, claim in sorted(cluster.claims.items())
        },
    }


def _members(snapshot: Snapshot, group: NodeGroup) -> list[Object]:
    return [
        node for node in snapshot.all("Node") if (node["metadata"].get("labels") or {}).get(GROUP_LABEL) == group.name
    ]


def _grown(
    case: Object, cluster: PlannedCluster, snapshot: Snapshot, groups: list[NodeGroup], settings: Settings
) -> Object:
    with cluster.trial():
        pods = []
        for facts in cluster.waiting:
            planned = completed(snapshot, facts)
            for claim in planned.claims:
                cluster.set_claim(claim)
            pods.append(_unschedulable(planned.facts))
        known = waiting_pods(
            pods,
            cutoff=settings.expendable_pods_priority_cutoff,
            now=0.0,
            since={},
            delay=settings.new_pod_scale_up_delay,
        )
        room = None
        if settings.max_nodes_total:
            room = max(0, settings.max_nodes_total - len(snapshot.all("Node")))
        plan = plan_scale_up(
            cluster,
            known,
            [_view(case, cluster, snapshot, group) for group in groups],
            choose=lambda options: best_option(
                options, settings.expander, priorities=settings.priorities, chance=Random(case.get("seed", 0))
            ),
            daemons=lambda node: daemon_pods(_daemons(snapshot), node),
            not_started=case.get("notStarted") or (),
            room=room,
        )
    refused: dict[str, str] = {}
    for pod, reasons in plan.refused:
        refused[pod.name] = not_triggered(reasons).removeprefix("pod didn't trigger scale-up: ")
    return {
        "scaleUp": plan.info if plan.option is not None else "none",
        "pods": sorted(pod.name for pod in plan.option.pods) if plan.option is not None else [],
        "count": len(plan.option.pods) if plan.option is not None else 0,
        "soon": sorted(pod.name for pod in plan.soon),
        "refused": refused,
        "limited": plan.limited,
    }


def _unschedulable(facts: PodFacts) -> PodFacts:
    """The pod as a scheduler leaves it, and with the label that pods of one workload have in common."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    stem, _, number = facts.name.rpartition("-")
    metadata = {**facts.pod["metadata"], "labels": {"app": stem if number.isdecimal() else facts.name}}
    status = {**(facts.pod.get("status") or {}), "conditions": [condition]}
    return PodFacts({**facts.pod, "metadata": metadata, "status": status})


def _view(case: Object, cluster: PlannedCluster, snapshot: Snapshot, group: NodeGroup) -> GroupView:
    said: Mapping[str, Any] = (case.get("state") or {}).get(group.name) or {}
    members = _members(snapshot, group)
    template = from_provider(group)
    if members:
        template = from_node(group, members[0], cluster.slices_of(name_of(members[0])))
    upcoming = said.get("upcoming", 0)
    return GroupView(group, len(members) + upcoming, template, upcoming, said.get("skipped", ""))


def _daemons(snapshot: Snapshot) -> Iterator[Object]:
    """DaemonSets as a server has them: a case need not name their UIDs."""
    for daemon in snapshot.all("DaemonSet"):
        yield {**daemon, "metadata": {"uid": name_of(daemon), **daemon["metadata"]}}


def _shrunk(
    case: Object, cluster: PlannedCluster, snapshot: Snapshot, groups: list[NodeGroup], settings: Settings
) -> Object:
    """Looks at the cluster at every time of `after` (seconds), then says what may go."""
    scale_down = ScaleDown(settings)
    going = case.get("going") or {}
    candidates = [
        Candidate(name_of(node), group, name_of(node) not in (case.get("unready") or ()))
        for group in groups
        for node in _members(snapshot, group)
        if name_of(node) not in going
    ]
    now = 0.0
    for now in case["after"]:
        rules = DrainRules(settings, Budgets(snapshot.all("PodDisruptionBudget")), datetime(2026, 1, 2, tzinfo=UTC))
        scale_down.update(cluster, candidates, rules, going=going, now=float(now))
    targets = {group.name: len(_members(snapshot, group)) for group in groups}
    leaving: dict[str, list[str]] = {}
    for name, group_name in going.items():
        leaving.setdefault(group_name, []).append(name)
    unneeded = [one.name for one in scale_down.unneeded]
    stays = dict(scale_down.unremovable)
    empty, drained = scale_down.removable(targets, leaving, draining=len(going), now=float(now))
    return {
        "unneeded": sorted(unneeded),
        "stays": stays,
        "empty": [one.name for one in empty],
        "drained": {one.name: sorted(pod.name for pod in one.pods) for one in drained},
        "utilization": {one.name: round(one.utilization.share, 4) for one in scale_down.unneeded},
    }
