"""Findings about many pending pods at once."""

from __future__ import annotations

import pytest

from drakkar.diagnosis import workloads
from drakkar.diagnosis.pending import findings_of_pending_pods
from tests.diagnosis.world import BIG, claim, devices, pod, template, uid, world


def test_each_pending_pod_has_the_finding_about_itself() -> None:
    snapshot = world(
        claim("big", devices(BIG)), pod("a", claim_name="big"), pod("b", claim_name="missing"),
        claim("held", held="n1/gpu-0", users=("c",)), pod("c", claim_name="held", on="n1", phase="Running"),
        pod("no-devices"),
    )  # fmt: skip
    found = findings_of_pending_pods(snapshot)
    assert {key: finding.cause for key, finding in found.items()} == {
        uid("Pod", "a"): "selector-matches-nothing",
        uid("Pod", "b"): "claim-missing",
    }


def test_pods_that_ask_for_the_same_are_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    examined = []
    real = workloads.pod_finding
    monkeypatch.setattr(workloads, "pod_finding", lambda *args: examined.append(args[1]) or real(*args))
    pods = [pod(f"p{index}", template_name="t") for index in range(5)]
    other = pod("other", template_name="t", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    found = findings_of_pending_pods(world(template("t", devices(BIG)), *pods, other))
    assert [each["metadata"]["name"] for each in examined] == ["p0", "other"]
    assert len(found) == 6
    twin = found[uid("Pod", "p3")]
    assert (twin.subject, twin.cause) == ("Pod/ml/p3", found[uid("Pod", "p0")].cause)
    assert twin.sentence.startswith("as pod p0: ")


def test_a_limit_leaves_out_what_was_not_examined() -> None:
    pods = [pod(f"p{index}", claim_name=f"missing-{index}") for index in range(3)]
    assert list(findings_of_pending_pods(world(*pods), limit=2)) == [uid("Pod", "p0"), uid("Pod", "p1")]
