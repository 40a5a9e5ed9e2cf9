"""`drakkar doctor` on everything: worst first, nothing that is wrong to say, and the forms that tools read."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner

from drakkar.cli.doctor import command
from drakkar.diagnosis import reports
from drakkar.diagnosis.causes import causes, page_of, page_text
from drakkar.diagnosis.explain import examine, rank
from drakkar.diagnosis.survey import survey
from drakkar.diagnosis.verdict import place_of
from drakkar.evidence.bundle import load
from tests.diagnosis.world import claim, node, piece, pod, world

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"
BUNDLES = sorted(path.name for path in CASES.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", BUNDLES)
def test_doctor_on_a_bundle_says_nothing_that_would_be_wrong(name: str) -> None:
    wanted = yaml.safe_load((CASES / name / "expect.yaml").read_text())
    never = set(wanted.get("never") or ())
    found = survey(load(CASES / name))
    assert (found.verdict.cause, found.verdict.subject) == (wanted["cause"], wanted["subject"])
    assert not {entry.finding.cause for entry in found.wrong} & never
    printed = CliRunner().invoke(command, [str(CASES / name)])
    assert printed.exit_code == (0 if wanted["cause"] == "healthy" else 1)
    assert not [code for code in never if code in printed.stdout]
    as_json = CliRunner().invoke(command, ["-o", "json", str(CASES / name)])
    answer = json.loads(as_json.stdout)
    assert (answer["cause"], answer["boundary"]) == (wanted["cause"], wanted["boundary"])
    assert not [code for code in never if code in as_json.stdout]


@pytest.mark.parametrize("name", BUNDLES)
def test_the_worst_comes_first_and_lines_keep_to_80_columns(name: str) -> None:
    found = survey(load(CASES / name))
    for entries in (found.workloads, found.nodes, found.others):
        ranks = [rank(entry.finding)[:3] for entry in entries]
        assert ranks == sorted(ranks)
    longest = max(reports.survey_text(found).splitlines(), key=len)
    assert len(longest) <= 80 or " " not in longest.strip()


@pytest.mark.parametrize("name", BUNDLES)
def test_reports_for_tools_are_well_formed_and_agree(name: str) -> None:
    found = survey(load(CASES / name))
    suites = ElementTree.fromstring(reports.junit(found, name))
    bad = suites.findall(".//failure") + suites.findall(".//error")
    lines = (*found.workloads, *found.nodes, *found.others)
    assert len(suites.findall(".//testcase")) == len(lines)
    assert len(bad) == sum(not entry.healthy for entry in lines)
    (run,) = reports.sarif(found, "1", name)["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert bool(run["results"]) is not found.verdict.healthy


def test_a_workload_speaks_for_its_pods_and_nodes_stand_beside_it() -> None:
    jobs = {"kind": "Job", "metadata": {"name": "j", "namespace": "ml", "uid": "j"}}
    mine = [{"kind": "Job", "name": "j", "uid": "j", "controller": True}]
    pods = [pod(f"j-{number}", claim_name="gone", ownerReferences=mine) for number in range(3)]
    well = (claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1", phase="Running"))
    found = survey(world(jobs, *pods, *well))
    assert [(entry.subject, entry.pods, entry.failing) for entry in found.workloads] == [
        ("Job/ml/j", 3, 3),
        ("Pod/ml/p", 1, 0),
    ]
    assert [entry.subject for entry in found.nodes] == ["Node/n1", "Node/n2"]
    assert found.nodes[0].finding.sentence == "publishes 1 devices, 1 of them held by claims"


def test_a_namespace_narrows_the_workloads() -> None:
    snapshot = world(pod("p", claim_name="gone"))
    assert [entry.subject for entry in survey(snapshot, namespace="ml").workloads] == ["Pod/ml/p"]
    assert survey(snapshot, namespace="other").workloads == ()


def test_a_hundred_pods_that_wait_for_the_same_are_examined_once_and_all_told() -> None:
    snapshot = world(claim("c", held="n1/gpu-0", users=("x",)), claim("d", held="n2/gpu-0", users=("y",)),
                     pod("x", claim_name="c", on="n1", phase="Running"),
                     pod("y", claim_name="d", on="n2", phase="Running"),
                     *(pod(f"w{number:02}", template_name="gone") for number in range(100)))  # fmt: skip
    found = survey(snapshot)
    assert sum(entry.finding.cause == "template-missing" for entry in found.workloads) == 100
    assert examine(snapshot).subject == "Pod/ml/w00"
    assert examine(snapshot).sentence.startswith("ResourceClaimTemplate gone")


def test_a_pod_s_trouble_is_its_node_s_where_its_own_objects_do_not_say() -> None:
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/mig.config": "all-1g",
        "nvidia.com/mig.config.state": "failed",
    }
    snapshot = world(node("n1", labels=labels), piece("n1"), pod("p", claim_name="c", on="n1"), claim("c"))
    assert survey(snapshot).nodes[0].finding.cause == "mig-config-failed"


@pytest.mark.parametrize("code", causes())
def test_every_cause_has_its_page(code: str) -> None:
    page = page_of(code)
    for part in ("symptom", "evidence", "repair", "prevention"):
        assert getattr(page, part), part
    if code != "healthy":
        assert page.check and page.confirm
        assert page.check.startswith(("kubectl ", "drakkar "))
        assert page.check.split()[1] not in ("delete", "apply", "patch", "edit", "label", "drain", "cordon") or (
            "--dry-run" in page.check
        )
    assert all(len(line) <= 80 or " " not in line.strip() for line in page_text(code).splitlines()[1:])
    assert "{" not in page_text(code)


def test_explain_cause_on_the_command_line() -> None:
    page = CliRunner().invoke(command, ["--explain-cause", "slice-stale"])
    assert page.exit_code == 0
    assert page.stdout.startswith("slice-stale (inventory): ")
    listed = CliRunner().invoke(command, ["--explain-cause", "list", "-o", "json"])
    assert [cause["code"] for cause in json.loads(listed.stdout)] == list(causes())


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("Pod/ml/p spec.nodeName", {"object": "Pod/ml/p", "field": "spec.nodeName"}),
        ("ResourceSlice/x", {"object": "ResourceSlice/x"}),
        ("event Failed of Pod/ml/p, last at 2026", {"object": "Pod/ml/p", "event": "Failed"}),
        ("n1 cdi/a.yaml", {"file": "nodes/n1/cdi/a.yaml"}),
        ("n1 dra_manager_state", {"file": "nodes/n1/dra_manager_state"}),
        ("log of p/main", {"file": "pods/*/p/main.log"}),
        ("log of p/main (previous)", {"file": "pods/*/p/main.previous.log"}),
        ("metrics/a.prom", {"file": "metrics/a.prom"}),
        ("words", {}),
    ],
)
def test_a_source_says_where_it_points(source: str, place: dict[str, str]) -> None:
    assert place_of(source) == place
