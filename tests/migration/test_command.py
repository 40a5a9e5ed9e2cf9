"""`drakkar lint` as people and pipelines call it: outputs, exit status, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from drakkar.cli.lint import command
from drakkar.errors import DrakkarError
from tests.migration.test_rules import slice_of
from tests.migration.worlds import cel, pod, template


def run(*arguments: str | Path, text: str | None = None) -> Result:
    result = CliRunner().invoke(command, [str(each) for each in arguments], input=text)
    if isinstance(result.exception, DrakkarError):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pod.yaml").write_text(pod("nodeName: n1"))
    return tmp_path


def test_text_and_status(folder: Path) -> None:
    result = run(folder)
    assert result.exit_code == 1
    assert f"{folder}/pod.yaml:12:3: error: nodeName bypasses the scheduler" in result.output
    (folder / "pod.yaml").write_text(template())
    result = run(folder)
    assert (result.exit_code, result.output) == (0, "nothing found in 1 file\n")


def test_the_status_follows_the_worst_severity() -> None:
    constrained = template(more="constraints:\n- matchAttribute: resource.kubernetes.io/pcieRoot")
    assert run("-", text=constrained).exit_code == 0
    assert run("-", "--fail-on", "warning", text=constrained).exit_code == 0
    assert run("-", "--fail-on", "info", text=constrained).exit_code == 1


def test_json_and_sarif(folder: Path) -> None:
    [finding] = json.loads(run(folder, "-o", "json").output)
    assert (finding["code"], finding["line"], finding["fix"]) == (
        "node-name-with-claim",
        12,
        "nodeSelector: {kubernetes.io/hostname: n1}",
    )
    assert json.loads(run(folder, "-o", "sarif").output)["version"] == "2.1.0"
    assert run(folder, "-o", "github").output.startswith("::error file=")


def test_recorded_objects(tmp_path: Path) -> None:
    recorded = tmp_path / "objects.yaml"
    recorded.write_text(yaml.safe_dump(slice_of("40Gi")))
    text = cel("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) > 0")
    assert "selector-matches-nothing" in run("-", "--on", recorded, text=text).output
    assert "nothing found" in run("-", text=text).output


def test_several_targets() -> None:
    text = template("deviceClassName: gpu.nvidia.com\ncapacity: {requests: {memory: 8Gi}}")
    assert "for Kubernetes 1.35" in run("-", "--target", "1.35..1.36", text=text).output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--target", "1.36..1.34", "-"], "no Kubernetes version"),
        (["--target", "latest", "-"], "no Kubernetes version"),
        (["/nowhere/at/all"], "does not exist"),
    ],
)
def test_what_it_refuses(arguments: list[str], problem: str) -> None:
    with pytest.raises(DrakkarError, match=problem):
        run(*arguments, text="")


def test_without_paths_it_says_what_it_wants() -> None:
    result = run()
    assert result.exit_code == 2
    assert "name a file or folder" in result.output


def test_the_codes_are_listed() -> None:
    assert "error    claim-undeclared" in run("--codes").output
    assert json.loads(run("--codes", "-o", "json").output)["constraint-noop"]["severity"] == "info"
