"""CDI generation on real trees (cases/cdi-generate), against what NVIDIA's own generator said of the same trees."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from drakkar.cli.cdi.generate import command
from drakkar.injection.spec import CdiSpec
from tests.conftest import missing
from tests.vendors import cdi_hosts
from tests.vendors.nvml import VARIABLE

_PATHS = ("--driver-root", "--dev-root", "--config-search-path")
#: The classes that NVIDIA's command gives only when it is asked to; without them the files of two modes conflict.
_OWN_CLASSES = {"imex": "imex-channel", "gds": "gds", "mofed": "mofed", "gdrcopy": "gdrcopy", "nvswitch": "nvswitch"}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Path, Path]]]:
    """The trees of all hosts that were asked for, each made once."""
    if os.geteuid() != 0:
        missing("root", "needs root: trees have device nodes with owners")

    class Trees(dict[str, tuple[Path, Path]]):
        def __missing__(self, host: str) -> tuple[Path, Path]:
            self[host] = cdi_hosts.build(host, tmp_path_factory.mktemp(host))
            return self[host]

    yield Trees()


@pytest.fixture
def generate(trees: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")

    def call(host: str, *arguments: str) -> Any:
        root, served = trees[host]
        monkeypatch.setenv(VARIABLE, str(served))
        words = [f"--sys-root={root}", *(_below(root, word) for word in arguments)]
        if not any(word.startswith("--driver-root") for word in words):
            words.append(f"--driver-root={root}")
        if not any(word.startswith("--nvidia-cdi-hook-path") for word in words):
            words.append("--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook")
        result = CliRunner().invoke(command, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        CdiSpec.parse(result.stdout, profile="strict")
        made = _as_on_the_host(yaml.safe_load(result.stdout), str(root))
        made["cdiVersion"] = CdiSpec.from_object(made).minimum_version  # host paths wanted a later one
        return made

    return call


def _below(root: Path, word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{name}={str(root) + value.rstrip('/')}" if equals and name in _PATHS else word


def _as_on_the_host(value: Any, root: str) -> Any:
    """The answer as it would be if the tree were the host's root: its path taken out."""
    if isinstance(value, dict):
        cleaned = {key: _as_on_the_host(one, root) for key, one in value.items()}
        if "hostPath" in cleaned and cleaned.get("path") == cleaned["hostPath"] and "major" in cleaned:
            del cleaned["hostPath"]
        return cleaned
    if isinstance(value, list):
        return [_as_on_the_host(one, root) for one in value]
    return value.replace(root, "") or "/" if isinstance(value, str) and root in value else value


RUNS = [run for host in cdi_hosts.hosts() for run in cdi_hosts.runs(host) if run.recorded]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.host}-{run.name}")
def test_the_specification_is_what_nvidias_generator_makes(run: cdi_hosts.Run, generate: Any) -> None:
    expected = json.loads(run.expected.read_text())
    made = generate(run.host, *run.arguments)
    mode = next((word.partition("=")[2] for word in run.arguments if word.startswith("--mode")), "")
    if mode in _OWN_CLASSES:
        assert made["kind"] == f"nvidia.com/{_OWN_CLASSES[mode]}"
        made["kind"] = expected["kind"]
    if mode == "mig-caps":
        made["kind"] = expected["kind"]
    if mode == "management":
        assert made["kind"] == "management.nvidia.com/management"
        made["kind"] = expected["kind"]
    assert made == expected, _difference(expected, made)


def _difference(expected: Any, made: Any) -> str:
    """The lines that differ, the recorded ones with a minus."""
    texts = [json.dumps(value, indent=1, sort_keys=True).splitlines() for value in (expected, made)]
    return "\n".join(difflib.unified_diff(*texts, lineterm="", n=2))
