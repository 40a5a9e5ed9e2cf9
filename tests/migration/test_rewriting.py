"""Text rewritten to a wanted value: exactly that value, no comment lost, nothing else touched."""

from __future__ import annotations

import copy
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drakkar.errors import DrakkarError
from drakkar.kube import yamltext
from drakkar.migration.documents import Document, read_bytes
from drakkar.migration.rewriting.changes import applied, differences, from_json_patch, to_json_patch
from drakkar.migration.rewriting.rewrite import rewrite, rewrite_file
from drakkar.migration.rewriting.text import dumped

ROOT = Path(__file__).parents[2]
TEXT = """\
# head
a: 1  # one
b:
  c: x   # ex
  d:
  - name: p
    v: 1
  # between
  - name: q
    v: 2  # two
e: {f: 1, g: [1, 2]}
h: |
  several
  lines
"""


def wanted(**changes: Any) -> Any:
    return {**yamltext.load(TEXT), **changes}


def test_a_scalar_changes_alone() -> None:
    assert rewrite(TEXT, wanted(a=2)) == TEXT.replace("a: 1  # one", "a: 2  # one")


def test_a_key_goes_and_its_comment_stays() -> None:
    value = yamltext.load(TEXT)
    del value["b"]["c"]
    assert rewrite(TEXT, value) == TEXT.replace("  c: x   # ex\n", "  # ex\n")


def test_an_item_goes_and_another_comes() -> None:
    value = yamltext.load(TEXT)
    value["b"]["d"] = [value["b"]["d"][1], {"name": "r", "v": {"w": 3}}]
    assert rewrite(TEXT, value) == TEXT.replace("  - name: p\n    v: 1\n", "").replace(
        "    v: 2  # two\n", "    v: 2  # two\n  - name: r\n    v:\n      w: 3\n"
    )


def test_flow_style_stays_flow_style() -> None:
    assert rewrite(TEXT, wanted(e={"g": [1, 2, 3], "x": "z"})) == TEXT.replace(
        "e: {f: 1, g: [1, 2]}", "e: {g: [1, 2, 3], x: z}"
    )


def test_a_block_of_text_keeps_its_style() -> None:
    assert rewrite(TEXT, wanted(h="several\nother\n")) == TEXT.replace("  lines", "  other")


def test_json_stays_json() -> None:
    text = '{\n  "a": {"b": 1},\n  "c": [\n    "x"\n  ]\n}\n'
    assert rewrite(text, {"a": {"b": 1, "d": "yes"}, "c": ["x", "y"]}) == (
        '{\n  "a": {"b": 1, "d": "yes"},\n  "c": [\n    "x",\n    "y"\n  ]\n}\n'
    )


def test_shared_nodes_get_copies_of_their_own() -> None:
    text = "a: &x  # shared\n  k: 1\n  l: 2\nb: *x\nc:\n  <<: *x\n  m: 3\n"
    value = yamltext.load(text)
    value["b"]["k"] = 9
    made = rewrite(text, value)
    assert yamltext.load(made) == value
    assert "# shared" in made


def test_windows_line_ends_stay() -> None:
    text = "kind: A\r\nspec:\r\n  a: 1 # x\r\n  b: 2\r\n"
    [document] = [source for source in read_bytes(text.encode(), "a.yaml") if isinstance(source, Document)]
    made = rewrite_file(text, {0: (document, {"kind": "A", "spec": {"b": 2, "c": 3}})})
    assert made == "kind: A\r\nspec:\r\n  # x\r\n  b: 2\r\n  c: 3\r\n"


def test_texts_that_look_like_something_else_get_quotes() -> None:
    value = {"a": "yes", "b": "1", "c": "0o7", "d": "", "e": "plain", "f": "a: b", "g": "two\nlines\n"}
    assert yamltext.load(dumped(value)) == value
    assert yamltext.load(rewrite("z: 1\n", {"z": 1, **value})) == {"z": 1, **value}


def test_what_is_no_patch_is_an_error() -> None:
    for patch in ({}, [1], [{"op": "move", "path": "/a"}], [{"op": "remove", "path": "/nothing"}]):
        with pytest.raises(ValueError):
            from_json_patch(patch, {"a": 1})


FILES = sorted((ROOT / "cases").glob("lint/*/input/*.yaml")) + sorted((ROOT / "cases").glob("migrate/*/input.yaml"))


@pytest.mark.parametrize("seed", range(4))
def test_any_change_of_any_manifest(seed: int) -> None:
    chance = random.Random(seed)
    for file in chance.sample(FILES, 25):
        text = file.read_text()
        documents = [each for each in read_bytes(text.encode(), "m.yaml") if isinstance(each, Document)]
        goals = {number: (each, mutated(each.value, chance)) for number, each in enumerate(documents)}
        for document, goal in goals.values():
            changes = list(differences(document.value, goal))
            assert applied(document.value, changes) == goal
            patch = to_json_patch(document.value, goal)
            assert applied(document.value, from_json_patch(patch, document.value)) == goal
        try:
            made = rewrite_file(text, goals)
        except DrakkarError as refusal:
            assert refusal.reason == "CannotRewrite"
            continue
        again = [each.value for each in read_bytes(made.encode(), "m.yaml") if isinstance(each, Document)]
        assert again == [goal for _, goal in goals.values()], file
        assert not comments(text) - comments(made), file


def comments(text: str) -> Counter[str]:
    return Counter(match[1].strip() for match in re.finditer(r"(?:^|\s)(#.*)$", text, re.MULTILINE))


def mutated(value: Any, chance: random.Random) -> Any:
    made = copy.deepcopy(value)
    for _ in range(chance.randint(1, 4)):
        places = list(steps_of(made))
        if not places:
            break
        place = chance.choice(places)
        holder: Any = made
        for step in place[:-1]:
            holder = holder[step]
        kind = chance.random()
        if kind < 0.35 and len(holder) > 1:
            del holder[place[-1]]
        elif kind < 0.6:
            holder[place[-1]] = chance.choice(
                [1, "yes", "a b: c", True, None, "x\ny\n", {"a": 1, "b": [1, {"c": "d"}]}, ["q", {"name": "n"}], ""]
            )
        elif isinstance(holder, list):
            holder.insert(chance.randint(0, len(holder)), {"name": "new", "k": [1]})
        else:
            items = list(holder.items())
            items.insert(chance.randint(0, len(items)), ("new.key/x", chance.choice(["v", {"z": {"y": 1}}])))
            holder.clear()
            holder.update(items)
    return made


def steps_of(value: Any, above: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*above, key)
            yield from steps_of(inner, (*above, key))
