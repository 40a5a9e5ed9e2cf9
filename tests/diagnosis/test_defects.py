"""The table of known defects, and the documentation made of the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drakkar.diagnosis.causes import causes
from drakkar.diagnosis.defects import Defect, affecting, defects, versions_in
from drakkar.diagnosis.explain import examine
from drakkar.evidence.bundle import load
from tests.diagnosis.world import node, pod, world
from tools import causes as pages

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"


def test_each_line_names_causes_that_exist_and_a_report_to_open() -> None:
    for defect in defects():
        assert defect.causes and set(defect.causes) <= set(causes()), defect
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", defect.reference), defect
        assert defect.affects("0.0.1") in (True, False)
        assert defect.advice.endswith(".") and defect.symptom.endswith(".")


@pytest.mark.parametrize(
    ("versions", "version", "affected"),
    [
        ("*", "anything", True),
        ("<0.12.0", "0.11.9", True),
        ("<0.12.0", "0.12.0", False),
        ("<=1.7.1", "1.7.1", True),
        (">=1.2.0 <1.3.0", "1.2.5", True),
        (">=1.2.0 <1.3.0", "1.3", False),
        ("<1.0.0", "latest", False),
    ],
)
def test_versions_are_compared_as_versions(versions: str, version: str, affected: bool) -> None:
    assert Defect("x", "x", versions, "", (), "", "").affects(version) is affected


def test_versions_are_read_from_nodes_and_images() -> None:
    machine = node("n1")
    machine["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.2"}
    exporter = pod("e", spec={"containers": [{"name": "e", "image": "r.io/k8s/dcgm-exporter:4.4.1-4.5.2-ubuntu22.04"}]})
    manager = pod(
        "m", spec={"initContainers": [{"name": "m", "image": "r.io:5000/k8s-driver-manager:v0.8.0@sha256:ab"}]}
    )
    found = dict(versions_in(world(machine, exporter, manager)))
    assert found["kubelet"] in ("1.36.2", "")
    assert found["r.io/k8s/dcgm-exporter"] == "4.5.2"
    assert found["r.io:5000/k8s-driver-manager"] == "0.8.0"


def test_a_defect_is_shown_where_its_component_is_in_an_affected_version() -> None:
    verdict = examine(load(CASES / "30-idle-gpus-missing"))
    assert [defect.reference for defect, _ in verdict.defects] == ["NVIDIA/dcgm-exporter#569"]
    assert verdict.to_dict()["knownDefects"][0]["version"] == verdict.defects[0][1]
    assert affecting(world(), "idle-gpus-missing") == ()


def test_the_documentation_is_what_the_data_says() -> None:
    there = {path.name: path.read_text() for path in pages.FOLDER.glob("*.md")}
    assert there == pages.pages(), "run python -m tools.causes"
