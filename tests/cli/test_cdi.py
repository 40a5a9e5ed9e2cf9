"""`drakkar cdi list|devices|show|validate|inject`: the same answers by the quick way and by click's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from drakkar.cli.cdi import COMMANDS
from drakkar.cli.cdi.group import command
from drakkar.cli.cdi.quick import quickly

TEXT = """\
cdiVersion: 0.5.0
kind: vendor.com/gpu
devices:
- name: "0"
  containerEdits:
    env: [A=1]
- name: b
  containerEdits:
    env: [B=1]
"""


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DRAKKAR_DEBUG", "1")
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "a.yaml").write_text(TEXT)
    return tmp_path / "cdi"


def run(*words: str, text: str = "") -> Any:
    return CliRunner().invoke(command, list(words), input=text)


def test_every_command_of_the_table_loads() -> None:
    for name, (_, about) in COMMANDS.items():
        shown = run(name, "--help")
        assert shown.exit_code == 0, (name, shown.output)
        assert about
    assert all(name in run("--help").output for name in COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--spec-dir", "DIR"],
        ["list", "--spec-dir=DIR", "--output", "json"],
        ["list", "-o", "json", "--spec-dir", "DIR"],
        ["inject", "--spec-dir", "DIR", "--device", "vendor.com/gpu=0", "CONFIG"],
        ["inject", "CONFIG", "--device=vendor.com/gpu=b", "--device", "vendor.com/gpu=0", "--spec-dir", "DIR"],
    ],
)
def test_the_quick_way_says_the_same(
    words: list[str], specs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"process": {"env": ["A=0"]}}')
    filled = [word.replace("DIR", str(specs)).replace("CONFIG", str(tmp_path / "config.json")) for word in words]
    (specs / "bad.yaml").write_text("{")
    assert quickly(filled)
    quick = capsys.readouterr()
    slow = run(*filled)
    assert (quick.out, quick.err) == (slow.stdout, slow.stderr)
    assert "bad.yaml" in quick.err or words[0] == "inject"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["list", "--help"],
        ["list", "-o", "yaml"],
        ["list", "-o", "xml"],
        ["list", "extra"],
        ["list", "--spec-dir"],
        ["list", "--spec"],
        ["inject", "--device", "a.b/c=d"],
        ["inject", "config.json"],
        ["inject", "--diff", "--device", "a.b/c=d", "config.json"],
        ["doctor"],
    ],
)
def test_the_quick_way_leaves_the_rest_to_click(words: list[str]) -> None:
    assert not quickly(words)


def test_devices_are_names(specs: Path) -> None:
    assert run("devices", "--spec-dir", str(specs)).output == "vendor.com/gpu=0\nvendor.com/gpu=b\n"
    assert json.loads(run("devices", "--spec-dir", str(specs), "-o", "json").output)[0] == "vendor.com/gpu=0"


def test_show_names_the_line(specs: Path) -> None:
    shown = json.loads(run("show", "vendor.com/gpu=b", "--spec-dir", str(specs), "-o", "json").output)
    assert shown["edits"] == [{"edit": "env", "value": "B=1", "of": "device", "line": 9, "column": 11}]
    assert "env    device   9      B=1" in run("show", "vendor.com/gpu=b", "--spec-dir", str(specs)).output


def test_the_differences_name_the_line(specs: Path) -> None:
    config = '{"process": {"env": ["A=0"]}}'
    words = ["inject", "--diff", "--spec-dir", str(specs), "--device", "vendor.com/gpu=0", "-"]
    assert run(*words, text=config).output == f"~ process.env[0]: A=0 → A=1\n      {specs}/a.yaml:6:11 (device 0)\n"
    (row,) = json.loads(run(*words, "-o", "json", text=config).output)
    assert (row["change"], row["where"], row["line"], row["before"]) == ("replaced", "process.env[0]", 6, "A=0")
    assert run(*words, text='{"process": {"env": ["A=1"]}}').output == "nothing changes\n"


def test_validate_prints_every_problem(specs: Path) -> None:
    (specs / "a.yaml").write_text(TEXT.replace("env: [B=1]", "ENV: [B=1]").replace("A=1", "A"))
    ended = run("validate", str(specs / "a.yaml"))
    assert ended.exit_code == 1
    assert [line.partition("a.yaml:")[2].split(" ")[0] for line in ended.output.splitlines()] == ["9:5:", "6:11:"]
    (answer,) = json.loads(run("validate", str(specs / "a.yaml"), "-o", "json").output)
    assert [problem["line"] for problem in answer["problems"]] == [9, 6]


def drakkar(*words: str, text: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("drakkar")
    return subprocess.run(
        [program, *words], input=text, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )


def test_the_whole_program_by_the_quick_way(specs: Path) -> None:
    known = drakkar("cdi", "inject", "--spec-dir", str(specs), "--device", "vendor.com/gpu=0", "-", text="{}")
    assert json.loads(known.stdout)["process"]["env"] == ["A=1"]
    unknown = drakkar("cdi", "inject", "--spec-dir", str(specs), "--device", "vendor.com/gpu=9", "-", text="{}")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("drakkar: unresolvable CDI devices vendor.com/gpu=9: vendor.com/gpu has 0, b")
    for text in ("", "[]", "{", '{"mounts": 5}', "\x00"):
        damaged = drakkar("cdi", "inject", "--spec-dir", str(specs), "--device", "vendor.com/gpu=0", "-", text=text)
        assert damaged.returncode == (0 if text == '{"mounts": 5}' else 1), text
        assert "Traceback" not in damaged.stderr


def test_the_quick_way_loads_no_click(specs: Path) -> None:
    script = (
        "import sys; sys.argv = ['drakkar', 'cdi', 'list', '--spec-dir', sys.argv[1]];"
        "from drakkar.cli import _run; _run(sys.argv[1:]); print('click' in sys.modules, 'yaml' in sys.modules)"
    )
    for expected in ("False", "False"):  # the second process parses nothing either
        shown = subprocess.run(
            [sys.executable, "-c", script, str(specs)], capture_output=True, text=True, check=True
        ).stdout
        assert shown.splitlines()[-1].split()[0] == expected
