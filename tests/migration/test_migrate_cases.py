"""Every case of `cases/migrate`: the verdicts, the files, the way back, and the proof on an embedded cluster.

Many cases share one pair of sandboxes: each gets namespaces of its own, so that nothing of one is seen by another.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drakkar.kube import yamltext
from drakkar.migration.converting.output import written
from drakkar.migration.converting.plan import Plan, make_plan
from drakkar.migration.converting.rollback import read_tree, restore_folder, restore_text
from drakkar.migration.converting.work import Settings
from drakkar.migration.documents import Document, read_bytes
from drakkar.migration.lint import Context, lint

CASES = Path(__file__).parents[2] / "cases" / "migrate"
NAMES = sorted(path.name for path in CASES.iterdir() if path.is_dir())


def expected(name: str) -> dict[str, Any]:
    value = yamltext.load((CASES / name / "expect.yaml").read_bytes())
    assert isinstance(value, dict)
    return value


def inputs(name: str) -> dict[str, bytes]:
    return {"input.yaml": (CASES / name / "input.yaml").read_bytes()}


def recorded(name: str) -> list[dict[str, Any]] | None:
    file = CASES / name / "cluster.yaml"
    return [tree.value for tree in yamltext.trees(file.read_bytes())] if file.exists() else None


def documents(files: dict[str, bytes]) -> list[Document]:
    found = [source for name, data in files.items() for source in read_bytes(data, name)]
    return [source for source in found if isinstance(source, Document)]


def plan_of(name: str) -> Plan:
    wanted = expected(name)
    settings = Settings(wanted.get("to", "claims"), accept=frozenset(wanted.get("accept", ())))
    return make_plan(documents(inputs(name)), settings, recorded(name))


def after(tmp_path: Path, name: str) -> dict[str, bytes]:
    written(plan_of(name), inputs(name), tmp_path)
    return read_tree(tmp_path)


def shown(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.startswith(".")}


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_verdicts(name: str) -> None:
    plan, wanted = plan_of(name), expected(name)
    assert {each.document.reference: each.verdict for each in plan.objects} == wanted["objects"]
    assert sorted({note.code for each in plan.objects for note in each.notes}) == sorted(wanted["codes"])
    assert [obj["metadata"]["name"] for obj in plan.classes] == wanted.get("classes", [])


@pytest.mark.parametrize("name", NAMES)
def test_refused_objects_stay_as_they_were_and_comments_stay(name: str, tmp_path: Path) -> None:
    files = after(tmp_path, name)
    old, new = inputs(name)["input.yaml"].decode(), files["input.yaml"].decode()
    plan = plan_of(name)
    if not any(each.changed for each in plan.objects):
        assert new == old
    assert not comments(old) - comments(new)
    for each in plan.objects:
        if each.verdict == "refused":
            assert each.wanted == each.document.value


def comments(text: str) -> Counter[str]:
    return Counter(match[1].strip() for match in re.finditer(r"(?:^|\s)(#.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_the_new_form_passes_the_review(name: str, tmp_path: Path) -> None:
    plan = plan_of(name)
    if plan.refused:
        return
    before = {finding.code for finding in lint(list(documents(inputs(name))), context=Context("1.36"))}
    files = shown(after(tmp_path, name))
    found = [each for each in lint(list(documents(files)), context=Context("1.36")) if each.code not in before]
    assert [f"{each.code} {each.message}" for each in found if each.severity != "info"] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_way_back_is_byte_for_byte(name: str, tmp_path: Path) -> None:
    files = after(tmp_path, name)
    assert {each.name: each.data for each in restore_folder(files) if each.data is not None} == inputs(name)
    alone = restore_text("input.yaml", files["input.yaml"])  # without the record, from the annotations
    has_metadata = all(each.document.metadata for each in plan_of(name).objects if each.changed)
    if has_metadata:
        assert alone.data == inputs(name)["input.yaml"]
        assert alone.how in ("byte for byte", "unchanged")


PARTS = 5
ALONE = ("mig-single",)
"""On nodes like these nvidia.com/gpu means something else: not beside cases that ask for whole GPUs."""
PROVABLE = [
    name
    for name in NAMES
    if recorded(name) is None and not expected(name).get("to") and expected(name).get("verify") is not False
]
GROUPS = [[name for name in PROVABLE if name not in ALONE][part::PARTS] for part in range(PARTS)]
GROUPS += [[name] for name in ALONE]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_both_forms_do_the_same_on_an_embedded_cluster(names: list[str], tmp_path: Path) -> None:
    from drakkar.cli.sandboxes import sandbox
    from drakkar.migration.verifying.verify import verify

    old, new, unproven = [], [], set()
    for name in names:
        files = shown(after(tmp_path / name, name))
        old += [moved(document, name) for document in documents(inputs(name))]
        new += [moved(document, name) for document in documents(files)]
        if any(note.code == "limits-to-claim" for each in plan_of(name).objects for note in each.notes):
            unproven.add(name)
    result = asyncio.run(verify(old, new, sandbox))
    assert [f"{check.subject}: {check.message}" for check in result.checks if check.ok is False] == []
    proven = {check.subject.partition("/")[0] for check in result.checks if check.what == "devices" and check.ok}
    assert unproven - proven - {"servingruntime"} == set()  # a runtime alone makes no pods


def test_forty_manifests_are_proven() -> None:
    converted = [
        name
        for name in PROVABLE
        if any(note.code == "limits-to-claim" for each in plan_of(name).objects for note in each.notes)
    ]
    assert len(converted) >= 40


def moved(document: Document, case: str) -> Document:
    """A document in namespaces of its case alone."""
    if document.kind != "DeviceClass":
        metadata = document.value.setdefault("metadata", {})
        metadata["namespace"] = case[:50]
    return document
