"""Incidents made live on one shared cluster, each diagnosed by boundary, cause and subject."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from drakkar.cluster.faults import FAULTS
from tools.vectors import incidents

CASES = Path(__file__).parents[2] / "cases" / "incidents"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))


@pytest.fixture(scope="module")
def stage() -> Iterator[incidents.Stage]:
    with incidents.Stage() as stage:
        yield stage


@pytest.mark.slow
@pytest.mark.xdist_group("incidents")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", NAMES)
def test_an_incident_is_diagnosed(stage: incidents.Stage, name: str) -> None:
    assert stage.play(name, yaml.safe_load((CASES / f"{name}.yaml").read_text())) == []


def test_there_are_enough_of_them_and_every_fault_is_used() -> None:
    texts = {name: (CASES / f"{name}.yaml").read_text() for name in NAMES}
    causes = {yaml.safe_load(text)["expect"]["cause"] for text in texts.values()}
    assert len(NAMES) >= 60
    assert len(causes) >= 35
    used = {word for text in texts.values() for word in text.split()}
    assert not set(FAULTS) - used - {"gpu-recovered", "kubelet-restarted", "driver-reloaded", "node-rebooted"}


def test_a_wrong_expectation_is_noticed(stage: incidents.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "PATIENCE", 1.0)
    incident = yaml.safe_load((CASES / "claim-missing.yaml").read_text())
    incident["expect"] = {"cause": "healthy", "boundary": "any", "subject": "Pod/a/b", "evidence": ["xyz"],
                          "never": ["claim-missing"]}  # fmt: skip
    found = [text.partition(":")[0] for text in stage.play("wrong", incident)]
    assert found == ["cause", "boundary", "subject", "evidence", "never"]
