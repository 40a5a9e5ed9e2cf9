"""The same mistakes in other clothes: how files are written changes nothing, and what is right stays quiet."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from drakkar.kube import yamltext
from drakkar.migration.documents import read_bytes
from drakkar.migration.lint import Context, lint
from tools.vectors.lint import context, inventory

ROOT = Path(__file__).parents[2]
CASES = sorted(path.parent for path in (ROOT / "cases" / "lint").glob("*/expect.yaml"))


def found(files: dict[str, bytes], case: Path) -> Counter[tuple[str, str, str]]:
    sources = [source for name, data in files.items() for source in read_bytes(data, name)]
    review = lint(sources, inventory=inventory(case), context=context(case))
    return Counter((each.code, each.object, each.path) for each in review)


def rewritten(name: str, data: bytes, *, as_list: bool, flow: bool) -> bytes:
    values = [tree.value for tree in yamltext.trees(data) if isinstance(tree.value, dict)]
    if as_list and all("kind" in value for value in values):
        values = [{"apiVersion": "v1", "kind": "List", "items": values}]
    return yaml.safe_dump_all(values, default_flow_style=flow, width=9999, sort_keys=False).encode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lists_styles_and_order_change_nothing(case: Path) -> None:
    files = {path.name: path.read_bytes() for path in sorted((case / "input").iterdir())}
    plain = found(files, case)
    texts = {name: data for name, data in files.items() if not name.endswith((".csv", ".toml"))}
    for as_list, flow in ((True, False), (False, True)):
        other = {name: rewritten(name, data, as_list=as_list, flow=flow) for name, data in texts.items()}
        assert found(files | other, case) == plain
    assert found(dict(reversed(files.items())), case) == plain


EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT / "examples")))
def test_our_examples_raise_no_alarm(file: Path) -> None:
    alarms = [each for each in lint(file, context=Context("1.37")) if each.severity == "error"]
    teaching = {"node-name-with-claim"}  # one example is about that very mistake
    assert [f"{each.code} {each.path}: {each.message}" for each in alarms if each.code not in teaching] == []
