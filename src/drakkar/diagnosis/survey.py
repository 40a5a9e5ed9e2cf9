"""A whole cluster at a glance: one line per workload and per node, the worst first, and the verdict that explains most.

The findings are those of `explain`, gathered once. A workload is what people made (the topmost owner of its pods); its
line is the worst of its pods' findings, or what is wrong around them where their own objects do not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.diagnosis.causes import cause_of
from drakkar.diagnosis.explain import best_of, gather, rank, within_what_was_read
from drakkar.diagnosis.situation import Situation, owner_chain
from drakkar.diagnosis.verdict import HEALTHY, UNDECIDED, Finding, Verdict
from drakkar.evidence.snapshot import Snapshot, name_of, reference

__all__ = ["Entry", "Survey", "survey"]

Object = dict[str, Any]
_OPEN: Final = frozenset({HEALTHY, UNDECIDED, "unschedulable-other"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a workload, a node or something else, its finding, and how many of its pods are concerned."""

    subject: str
    finding: Finding
    pods: int = 0
    failing: int = 0

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.finding.cause == HEALTHY

    @property
    def boundary(self) -> str:
        """The boundary that failed."""
        return self.finding.boundary or cause_of(self.finding.cause).boundary

    def to_dict(self) -> dict[str, Any]:
        """The line as plain JSON; the evidence is that of a verdict."""
        counts = {"pods": self.pods, "failing": self.failing} if self.pods else {}
        if self.healthy:
            return {"subject": self.subject, **counts, "ok": True, "sentence": self.finding.sentence}
        verdict = Verdict(self.subject, self.finding).to_dict()
        for key in ("records", "unread", "target", "knownDefects"):
            del verdict[key]
        about = verdict.pop("subject")
        return {"subject": self.subject, **counts, "ok": False, **verdict, "about": about}


@dataclass(frozen=True, slots=True)
class Survey:
    """What a look at a whole snapshot says.

    Attributes:
        verdict: explains most of what is wrong, or says that nothing is.
        workloads: every workload that asks for devices, the worst first.
        nodes: every node that has devices or should have, the worst first.
        others: findings about neither: claims, domains, drivers, manifests, numbers.
    """

    verdict: Verdict
    workloads: tuple[Entry, ...] = ()
    nodes: tuple[Entry, ...] = ()
    others: tuple[Entry, ...] = ()
    unread: tuple[str, ...] = field(default=())

    @property
    def wrong(self) -> Iterator[Entry]:
        """Every line with something wrong, the worst first; no finding twice."""
        seen: set[tuple[str, str]] = set()
        entries = (*self.workloads, *self.nodes, *self.others)
        for entry in sorted((entry for entry in entries if not entry.healthy), key=lambda entry: rank(entry.finding)):
            key = (entry.finding.cause, entry.finding.subject)
            if key not in seen:
                seen.add(key)
                yield entry

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON: the verdict's own fields, and the lines."""
        return {
            **self.verdict.to_dict(),
            "workloads": [entry.to_dict() for entry in self.workloads],
            "nodes": [entry.to_dict() for entry in self.nodes],
            "others": [entry.to_dict() for entry in self.others],
        }


def survey(snapshot: Snapshot, *, namespace: str = "") -> Survey:
    """Looks at everything in a snapshot.

    Args:
        namespace: only workloads of this one; nodes and the rest are looked at all the same.
    """
    situation = Situation(snapshot)
    gathered = gather(situation)
    verdict = best_of(situation, gathered)
    around = _Around(gathered.wider)
    workloads: dict[str, list[tuple[Object, Finding]]] = {}
    for pod in situation.pods_with_claims:
        finding = gathered.pods[reference(pod)]
        if finding.cause in _OPEN:
            finding = around.worst(pod) or finding
        top = reference(list(owner_chain(snapshot, pod))[-1])
        workloads.setdefault(top, []).append((pod, finding))
    lines = [_workload(snapshot, subject, found) for subject, found in workloads.items() if _in(subject, namespace)]
    nodes = [_node(situation, around, node) for node in _nodes_of_interest(situation)]
    named = {entry.subject for entry in nodes}
    others = [
        Entry(finding.subject, finding)
        for finding in (*gathered.wider, *gathered.unused)
        if finding.subject not in named and finding.subject not in workloads
    ]
    return Survey(verdict, _sorted(lines), _sorted(nodes), _sorted(others), snapshot.unread)


class _Around:
    """Findings about nodes, drivers and the like by what they explain."""

    def __init__(self, wider: tuple[Finding, ...]) -> None:
        self.by_reference: dict[str, list[Finding]] = {}
        for finding in wider:
            for name in {finding.subject, *finding.affects}:
                self.by_reference.setdefault(name, []).append(finding)

    def about(self, subject: str) -> list[Finding]:
        """Findings whose subject it is."""
        return [finding for finding in self.by_reference.get(subject, ()) if finding.subject == subject]

    def worst(self, pod: Object) -> Finding | None:
        """What explains most of a pod's trouble: it is named, or its node is (and it does not run)."""
        found = list(self.by_reference.get(reference(pod), ()))
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Running", "Succeeded"):
            found += self.about(f"Node/{node}")
        return min(found, key=rank, default=None)


def _workload(snapshot: Snapshot, subject: str, found: list[tuple[Object, Finding]]) -> Entry:
    worst = min((finding for _, finding in found), key=rank)
    failing = sum(finding.cause != HEALTHY for _, finding in found)
    return Entry(subject, within_what_was_read(snapshot, worst), len(found), failing)


def _nodes_of_interest(situation: Situation) -> list[Object]:
    """Nodes with devices, that should have some, or that something was found about."""
    publishing = {published.node for published in situation.devices}
    gpu = {name_of(node) for node in situation.gpu_nodes}
    return [node for node in situation.snapshot.all("Node") if name_of(node) in publishing | gpu]


def _node(situation: Situation, around: _Around, node: Object) -> Entry:
    name, subject = name_of(node), reference(node)
    found = around.about(subject)
    if found:
        return Entry(subject, within_what_was_read(situation.snapshot, min(found, key=rank)))
    count, held = situation.devices_on(name)
    return Entry(subject, Finding(HEALTHY, subject, f"publishes {count} devices, {held} of them held by claims"))


def _in(subject: str, namespace: str) -> bool:
    return not namespace or subject.split("/")[1:2] == [namespace]


def _sorted(entries: list[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (rank(entry.finding)[:3], -entry.failing, entry.subject)))
