"""The review as a whole: order, several versions, reports, and files that nobody meant well."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from drakkar.migration import reports
from drakkar.migration.context import Context
from drakkar.migration.documents import read_bytes
from drakkar.migration.findings import codes
from drakkar.migration.lint import lint, lint_range
from drakkar.migration.rules import FAMILIES, all_rules
from tests.migration.worlds import pod, review, sources, template

CAPACITY = template("deviceClassName: gpu.nvidia.com\ncapacity: {requests: {memory: 8Gi}}")


def test_every_family_has_rules_and_every_code_a_rule() -> None:
    assert {rule.family for rule in all_rules()} == set(FAMILIES)
    folder = Path("src/drakkar/migration/rules")
    texts = "".join(path.read_text() for path in folder.glob("*.py"))
    assert [code for code in codes() if f'"{code}"' not in texts] == []


def test_findings_come_in_the_order_of_the_files() -> None:
    both = review({"b.yaml": pod("nodeName: n1") + "---\n" + pod("nodeName: m"), "a.yaml": pod("nodeName: o")})
    assert [(each.file, each.line) for each in both] == [("b.yaml", 12), ("b.yaml", 25), ("a.yaml", 12)]


def test_several_versions_at_once() -> None:
    contexts = [Context(f"1.{minor}") for minor in (34, 35, 36, 37)]
    [finding] = lint_range(sources({"t.yaml": CAPACITY}), contexts)
    assert finding.message.endswith("(for Kubernetes 1.34, 1.35)")
    [finding] = lint_range(sources({"t.yaml": CAPACITY}), contexts[:2])
    assert "(for" not in finding.message


def test_sarif_names_rule_place_and_level() -> None:
    document = reports.sarif(review({"m.yaml": CAPACITY}, minor=35), "1.0")
    [run] = document["runs"]
    [result] = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "field-not-enabled"
    assert result["level"] == "warning"
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 11, "startColumn": 11}
    json.dumps(document)


def test_github_annotations_escape_their_separators() -> None:
    text = reports.github(review({"a,b.yaml": pod("nodeName: n1")}))
    assert text.startswith("::error file=a%2Cb.yaml,line=12,col=3,title=node-name-with-claim%3A Pod/p::")


def test_text_counts() -> None:
    assert reports.text([], 1) == "nothing found in 1 file"
    assert reports.text(review(pod("nodeName: n1")), 2).endswith("1 error in 2 files")


def test_alerts_in_plain_rule_files() -> None:
    rules = "groups:\n- name: g\n  rules:\n  - alert: X\n    expr: DCGM_FI_DEV_XID_ERRORS > 0\n"
    [finding] = review({"alerts.yaml": rules})
    assert (finding.object, finding.path, finding.line) == ("Rules/alerts", "groups[0].rules[0].expr", 5)


JUNK: tuple[Any, ...] = (None, 1, -1, "x", [], {}, [1], ["a"], {"a": 1}, True, 1.5, [None], [[]], [{}], 10**30)


@pytest.mark.parametrize("seed", range(4))
def test_fields_of_any_shape_break_nothing(seed: int) -> None:
    chance = random.Random(seed)
    folders = sorted(path.parent for path in Path("cases/lint").glob("*/expect.yaml"))
    for folder in chance.sample(folders, 25):
        files = []
        for file in sorted((folder / "input").glob("*.yaml")):
            documents = [document for document in yaml.safe_load_all(file.read_text()) if document]
            for document in documents:
                _spoil(document, chance)
            files += read_bytes(yaml.safe_dump_all(documents).encode(), file.name)
        lint(files, context=Context("1.36"))


def _spoil(value: Any, chance: random.Random) -> None:
    """Replace one field somewhere inside by something else."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = chance.choice(keys)
        if not isinstance(value[key], dict | list) or not value[key] or chance.random() < 0.15:
            value[key] = chance.choice(JUNK)
            return
        value = value[key]
