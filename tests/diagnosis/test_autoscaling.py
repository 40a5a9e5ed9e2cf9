"""What an autoscaler said of a waiting pod is part of the answer, and never in the place of the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drakkar.diagnosis.autoscaling import ScaleUp, reasons_of, scale_ups_of
from drakkar.diagnosis.explain import examine, explain
from drakkar.diagnosis.verdict import Verdict
from drakkar.evidence.snapshot import Snapshot
from tools.vectors._clusters import snapshot_of

POD = {"kind": "Pod", "namespace": "ml", "name": "p", "uid": "uid-p"}
STATUS = {"kind": "ConfigMap", "namespace": "kube-system", "name": "cluster-autoscaler-status", "uid": "s"}
FULL = {
    "nodes": {"n1": "t4"},
    "pods": [{"name": "a", "on": "n1", "devices": ["gpu-0"], "owner": "ReplicaSet/web"}],
    "waiting": [{"name": "p", "event": "0/1 nodes are available: 1 cannot allocate all claims."}],
}


def event(about: dict[str, str], reason: str, message: str, minute: int) -> dict[str, Any]:
    return {
        "kind": "Event", "metadata": {"name": f"e{minute}", "namespace": about["namespace"]}, "involvedObject": about,
        "reason": reason, "message": message, "lastTimestamp": f"2026-01-01T12:{minute:02}:00Z",
    }  # fmt: skip


def asked(*events: dict[str, Any], cluster: dict[str, Any] = FULL) -> Verdict:
    snapshot: Snapshot = snapshot_of(cluster)
    return explain(replace(snapshot, events=(*snapshot.events, *events)), "pod/p", namespace="ml")


TRIGGERED = event(POD, "TriggeredScaleUp", "pod triggered scale-up: [{h100 0->2 (max: 4)}]", 10)


def test_nodes_are_on_their_way() -> None:
    plain, found = asked(), asked(TRIGGERED)
    assert found.finding.cause == plain.finding.cause == "devices-in-use"
    assert found.finding.sentence == (
        f"{plain.finding.sentence}; an autoscaler adds nodes for it (h100 from 0 to 2 of at most 4)"
    )
    assert found.finding.next_step.startswith("wait until they are ready: kubectl get nodes --watch; or ")
    assert found.finding.evidence[-1].source == "event TriggeredScaleUp of Pod/ml/p"


def test_they_do_not_come() -> None:
    failure = event(STATUS, "ScaleUpFailed", "Failed adding 2 nodes to group h100 due to OutOfResource.STOCKOUT", 12)
    earlier = event(STATUS, "ScaleUpFailed", "an older one", 3)
    found = asked(TRIGGERED, failure, earlier).finding
    assert found.sentence.endswith(
        ", and that failed: Failed adding 2 nodes to group h100 due to OutOfResource.STOCKOUT"
    )
    assert found.evidence[-1].source == "event ScaleUpFailed of ConfigMap/kube-system/cluster-autoscaler-status"
    assert not any(one.text == "an older one" for one in found.evidence)
    assert "describe cm -n kube-system cluster-autoscaler-status" in found.next_step


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("max node group size reached", "raise the maximum"),
        ("in backoff after failed scale-up", "see why it failed"),
        ("cannot allocate all claims", "template slices"),
        ("node(s) had untolerated taint(s)", "tolerate the taints"),
        ("node(s) didn't match Pod's node affinity/selector", "labels"),
        ("Insufficient cpu", "larger machines"),
        ("not ready for scale-up", "health"),
        ("max cluster cpu limit reached", "limit of the whole cluster"),
    ],
)
def test_no_group_helps(reason: str, step: str) -> None:
    found = asked(event(POD, "NotTriggerScaleUp", f"pod didn't trigger scale-up: 2 {reason}", 10)).finding
    assert found.cause == "devices-in-use"
    assert found.sentence.endswith(f"; no group of the autoscaler helps: {reason} (2 groups)")
    assert step in found.next_step


def test_the_last_word_counts() -> None:
    refused = event(POD, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached", 11)
    assert "no group" in asked(TRIGGERED, refused).finding.sentence
    assert "adds nodes" in asked({**refused, "lastTimestamp": "2026-01-01T12:09:00Z"}, TRIGGERED).finding.sentence


def test_an_autoscaler_without_groups_and_words_that_are_none() -> None:
    found = asked(event(POD, "NotTriggerScaleUp", "pod didn't trigger scale-up: ", 10)).finding
    assert found.sentence.endswith("; an autoscaler has no group that could help")
    odd = asked(event(POD, "TriggeredScaleUp", "something else", 10)).finding
    assert odd.sentence.endswith("; an autoscaler adds nodes for it (something else)")


def test_it_is_told_where_everything_is_examined() -> None:
    snapshot = snapshot_of(FULL)
    found = examine(replace(snapshot, events=(*snapshot.events, TRIGGERED)))
    assert found.finding.subject == "Pod/ml/p" and "adds nodes" in found.finding.sentence


def test_a_pod_that_has_its_node_waits_for_none() -> None:
    running = {**FULL, "waiting": [], "pods": [{"name": "p", "on": "n1", "devices": ["gpu-0"]}]}
    snapshot = snapshot_of(running)
    about = {**POD, "uid": "uid-ml-p"}
    found = explain(replace(snapshot, events=({**TRIGGERED, "involvedObject": about},)), "pod/p", namespace="ml")
    assert "autoscaler" not in found.finding.sentence


def test_messages_are_taken_apart() -> None:
    message = "pod triggered scale-up: [{https://x/pool-a 1->3 (max: 4)} {pool-b 0->1 (max: 9)}]"
    assert scale_ups_of(message) == [ScaleUp("https://x/pool-a", 1, 3, 4), ScaleUp("pool-b", 0, 1, 9)]
    message = "pod didn't trigger scale-up: 2 cannot allocate all claims, 1 node(s) had untolerated taint(s), 3 x, y"
    assert reasons_of(message) == [
        (2, "cannot allocate all claims"), (1, "node(s) had untolerated taint(s)"), (3, "x, y"),
    ]  # fmt: skip
    assert reasons_of("pod didn't trigger scale-up (it wouldn't fit if a new node is added): 1 Insufficient cpu") == [
        (1, "Insufficient cpu")
    ]
