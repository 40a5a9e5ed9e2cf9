"""The vector runner: output, exit status, kinds."""

import json
from pathlib import Path

import pytest

from tools.vectors.__main__ import kinds, main

CASE = {
    "name": "a/b",
    "expression": "device.driver == 'd'",
    "env": "stored",
    "device": "one",
    "expect": {"result": True, "error": None, "estimatedCost": 3, "actualCost": 3, "admission": "ok"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "devices.json").write_text(json.dumps({"one": {"driver": "d"}}))
    return tmp_path


def test_all_passing_cases_end_with_status_zero(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.jsonl").write_text(json.dumps(CASE) + "\n")
    assert main(["cel", str(folder)]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


def test_a_failing_case_prints_wanted_and_got(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {**CASE, "expect": {**CASE["expect"], "result": False}}  # type: ignore[dict-item]
    (folder / "a.jsonl").write_text(json.dumps(CASE) + "\n" + json.dumps(wrong) + "\n")
    assert main(["cel", str(folder)]) == 1
    assert capsys.readouterr().out == "a/b: result: wanted False, got True\n1 passed, 1 failed\n"


def test_an_empty_folder_is_no_success(folder: Path) -> None:
    assert main(["cel", str(folder)]) == 1


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["cel", "/no/such/folder"], ["cel", "a", "b"]])
def test_wrong_usage_has_its_own_status(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_a_kind_is_a_module() -> None:
    assert "cel" in kinds()
