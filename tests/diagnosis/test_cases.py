"""Every recorded incident reaches its verdict from the bundle alone, as a whole and by its subject."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from drakkar.diagnosis import render
from drakkar.diagnosis.explain import TargetError, examine, explain
from drakkar.diagnosis.verdict import cause_of
from drakkar.evidence.bundle import load
from tools.vectors import diagnosis

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"
BUNDLES = sorted(path.name for path in CASES.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_reaches_its_verdict(name: str) -> None:
    assert diagnosis.check(CASES / name) == []


@pytest.mark.parametrize("name", BUNDLES)
def test_the_subject_asked_for_reaches_the_same_cause(name: str) -> None:
    wanted = yaml.safe_load((CASES / name / "expect.yaml").read_text())
    kind, _, rest = wanted["subject"].partition("/")
    try:
        verdict = explain(load(CASES / name), f"{kind.lower()}/{rest}")
    except TargetError:
        assert (CASES / name / "manifests").is_dir(), "only what is not applied yet is no target"
        return
    assert (verdict.cause, verdict.boundary) == (wanted["cause"], wanted["boundary"])


@pytest.mark.parametrize("name", BUNDLES)
def test_every_workload_of_a_bundle_can_be_explained(name: str) -> None:
    snapshot = load(CASES / name)
    for obj in snapshot.objects:
        if obj["kind"] in ("Pod", "ResourceClaim", "Node", "Deployment", "StatefulSet", "DaemonSet", "Job"):
            place = "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"])))
            verdict = explain(snapshot, f"{obj['kind'].lower()}/{place}")
            assert verdict.sentence
            assert cause_of(verdict.cause)
            assert render.text(verdict).startswith(verdict.sentence.split()[0])


def test_the_comparison_notices_a_wrong_answer(tmp_path: Path) -> None:
    bundle = tmp_path / "case"
    bundle.mkdir()
    (bundle / "objects.yaml").write_text((CASES / "x-healthy" / "objects.yaml").read_text())
    (bundle / "expect.yaml").write_text(
        "cause: claim-missing\nboundary: allocation\nsubject: Pod/a/b\nevidence: [xyz]\n"
    )
    assert [text.partition(":")[0] for text in diagnosis.check(bundle)] == ["cause", "boundary", "subject", "evidence"]


def test_an_empty_cluster_is_healthy() -> None:
    from drakkar.evidence.snapshot import Snapshot

    assert examine(Snapshot()).healthy
