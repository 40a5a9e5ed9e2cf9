"""Loading: one clear error with its place for every damaged file, and the differences between the profiles."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drakkar.injection.errors import CdiError
from drakkar.injection.spec import MAX_BYTES, CdiSpec

CASES = Path(__file__).parents[2] / "cases" / "cdi"
BAD = json.loads((CASES / "bad.json").read_text())
HEAD = 'cdiVersion: "1.1.0"\nkind: vendor.com/device\n'
GOOD = HEAD + "devices:\n- name: a\n  containerEdits: {env: [A=b]}\n"


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_file_gives_one_error_with_its_place(name: str) -> None:
    with pytest.raises(CdiError) as raised:
        CdiSpec.load(CASES / "bad" / name)
    error, wanted = raised.value, BAD[name]
    assert (error.line, error.column) == (wanted["line"], wanted["column"])
    assert wanted["says"] in str(error)
    assert name in str(error)
    assert "\n" not in str(error)


def test_every_bad_file_has_an_expectation() -> None:
    assert {path.name for path in (CASES / "bad").iterdir()} == set(BAD)


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\x01\x02\xff" * 1000,
        b"\x1f\x8b\x08\x00\x00",
        b"\xff\xfe" + b"\x00\xd8" * 7,
        b"\xc3\x28",
        b"[" * 200_000,
        b"{a: " * 20_000,
        b"- " * 50_000,
        b"a: &a [" + b"*a, " * 10 + b"]",
        b"x: " + b"9" * 1_000_000,
        b'{"cdiVersion": "1.1.0", "kind": ' + b"[" * 100_000,
        GOOD.encode().replace(b"A=b", b'"' + b"x" * 100_000 + b'"'),
    ],
    ids=["binary", "gzip", "utf16", "utf8", "lists", "maps", "dashes", "self", "digits", "json", "long"],
)
def test_damaged_text_ends_in_a_cdi_error(text: bytes) -> None:
    for profile in ("default", "compat", "strict"):
        with pytest.raises(CdiError) as raised:
            CdiSpec.parse(text, profile=profile)  # type: ignore[arg-type]
        assert str(raised.value)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(50 << 20)
    with pytest.raises(CdiError, match=f"more than the {MAX_BYTES}"):
        CdiSpec.load(path)


def test_links_that_loop_and_missing_files_are_unreadable(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    for path in (loop, tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(CdiError) as raised:
            CdiSpec.load(path)
        assert raised.value.reason == "Unreadable"


def test_an_unreadable_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD)
    path.chmod(0)
    with _no_longer_root(), pytest.raises(CdiError, match="ermission"):
        CdiSpec.load(path)


@contextmanager
def _no_longer_root() -> Iterator[None]:
    """Root reads everything, so it becomes nobody for a moment; others are who they are."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_all_mistakes_of_a_document_come_together() -> None:
    text = HEAD + "devices:\n- name: [a]\n  containerEdits:\n    ENV: []\n    mounts: 5\n"
    with pytest.raises(CdiError) as raised:
        CdiSpec.parse(text)
    assert [problem.line for problem in raised.value.problems] == [4, 6, 7]


def test_all_broken_rules_come_together_in_the_order_of_the_reference_library() -> None:
    text = "cdiVersion: 7\nkind: 9x/gpu\ndevices:\n- name: a@b\n  containerEdits: {}\n"
    with pytest.raises(CdiError) as raised:
        CdiSpec.parse(text, file="x.yaml")
    messages = [problem.message for problem in raised.value.problems]
    assert [m.split('"')[0] for m in messages] == ["invalid version ", "invalid vendor. "] + ["failed add device "] * 2
    assert raised.value.subject == "x.yaml:1:13"


def test_a_place_inside_a_merged_mapping_is_found() -> None:
    text = (
        HEAD
        + "devices:\n- &d\n  name: a\n  containerEdits: &e {env: [BAD]}\n- name: b\n  containerEdits:\n    <<: *e\n"
    )
    with pytest.raises(CdiError) as raised:
        CdiSpec.parse(text)
    assert [(problem.line, problem.column) for problem in raised.value.problems] == [(6, 29), (6, 29)]


def test_json_by_the_short_way_equals_json_by_the_long_way() -> None:
    spec = {
        "cdiVersion": "0.7.0",
        "kind": "vendor.com/device",
        "annotations": {"a": "b"},
        "devices": [
            {
                "name": "d",
                "containerEdits": {
                    "deviceNodes": [{"path": "/dev/x", "type": "c", "major": 1, "minor": 3, "fileMode": 438, "uid": 0}],
                    "hooks": [{"hookName": "poststop", "path": "/h", "timeout": 3, "args": ["h", '\t\\"']}],
                    "additionalGids": [0, 5],
                    "intelRdt": {"closID": "x"},
                },
            }
        ],
        "containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}]},
    }
    short = json.dumps(spec)
    long = " " + short  # the short way wants the brace first
    assert CdiSpec.parse(short).raw == CdiSpec.parse(long).raw
    assert CdiSpec.parse(short).to_dict() == spec


def test_json_with_a_key_written_twice_is_refused() -> None:
    device = '{"name":"a","containerEdits":{"env":["A=b"]}}'
    device = '{"name":"a","containerEdits":{"env":["A=b"]}}'
    text = '{"cdiVersion":"0.5.0","kind":"v.com/d","kind":"v.com/d","devices":[' + device + "]}"
    with pytest.raises(CdiError, match="duplicate key `kind`"):
        CdiSpec.parse(text)


def test_a_specification_from_a_program_is_checked() -> None:
    with pytest.raises(CdiError, match="unknown field `devics`"):
        CdiSpec.from_object({"cdiVersion": "0.5.0", "kind": "v.com/d", "devics": []})
    with pytest.raises(CdiError, match="not plain JSON"):
        CdiSpec.from_object({"cdiVersion": object()})
    endless: dict[str, object] = {}
    endless["kind"] = endless
    with pytest.raises(CdiError):
        CdiSpec.from_object(endless)


def test_fractions_are_cut_only_for_compatibility() -> None:
    text = GOOD.replace("{env: [A=b]}", "{deviceNodes: [{path: /dev/x, major: 3.5}]}")
    assert CdiSpec.parse(text, profile="compat").raw.devices[0].container_edits.device_nodes[0].major == 3
    with pytest.raises(CdiError, match=r"the number `3.5`"):
        CdiSpec.parse(text)


def test_warnings_have_places() -> None:
    text = GOOD.replace("{env: [A=b]}", "{deviceNodes: [{path: /dev/x, fileMode: 660}]}")
    (warning,) = CdiSpec.parse(text).warnings
    assert "fileMode 660 is decimal" in warning.message
    assert (warning.line, warning.column) == (5, 59)


def test_an_error_is_also_plain_json() -> None:
    with pytest.raises(CdiError) as raised:
        CdiSpec.parse("a: 1\n", file="x.yaml")
    assert raised.value.to_dict()["problems"][0]["line"] == 1
    json.dumps(raised.value.to_dict())
