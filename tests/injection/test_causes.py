"""Every change has its cause, and the changes together are the injection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drakkar.injection.cache import CdiCache
from drakkar.injection.causes import Cause, Places, causes, changes
from drakkar.injection.edit import HostNode
from drakkar.injection.errors import CdiError
from tools.vectors import cdi as vectors

CASES = Path(__file__).parents[2] / "cases" / "cdi"
SPEC = """\
cdiVersion: 0.5.0
kind: vendor.com/gpu
devices:
- name: a
  containerEdits:
    env: [A=1,
          TERM=dumb]
    deviceNodes:
    - path: /dev/gpu0
- name: b
  containerEdits:
    env: [A=2]
containerEdits:
  mounts: [{hostPath: /lib/x, containerPath: /x, options: [rbind]}]
"""


def wanted_of(cache: CdiCache, names: list[str]) -> list[Cause]:
    found: list[Cause] = []
    files: set[str] = set()
    for each in cache.resolve(names):
        found += causes(each.spec, each.device.name, whole_file=each.path not in files)
        files.add(each.path)
    return found


def test_each_change_has_its_line_and_device(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SPEC)
    config = {"process": {"env": ["TERM=xterm"]}, "mounts": [{"destination": "/x/y"}, {"destination": "/x"}]}
    with CdiCache([tmp_path], auto_refresh=False, lstat=lambda path: HostNode("c", 195, 0, 0o666)) as cache:
        wanted = wanted_of(cache, ["vendor.com/gpu=a", "vendor.com/gpu=b"])
    result, made = changes(config, wanted, lambda path: HostNode("c", 195, 0, 0o666))
    places = Places(lambda path: Path(path).read_bytes())
    rows = {(each.change, each.where): (places.of(each.cause), each.cause.device) for each in made}
    assert rows == {
        ("added", "process.env"): ((6, 11), "a"),  # replaced by the next
        ("replaced", "process.env[0]"): ((7, 11), "a"),
        ("replaced", "process.env[1]"): ((12, 11), "b"),
        ("added", "linux.devices[0]"): ((9, 7), "a"),
        ("added", "linux.resources.devices[0]"): ((9, 7), "a"),
        ("replaced", "mounts[0]"): ((14, 12), ""),
    }
    assert result["process"]["env"] == ["TERM=dumb", "A=2"]
    assert config["process"] == {"env": ["TERM=xterm"]}


def test_a_file_that_changed_meanwhile_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SPEC)
    with CdiCache([tmp_path], auto_refresh=False) as cache:
        wanted = wanted_of(cache, ["vendor.com/gpu=b"])
    (tmp_path / "a.yaml").write_text("{")
    assert {Places(lambda path: Path(path).read_bytes()).of(each) for each in wanted} == {(0, 0)}
    (tmp_path / "a.yaml").unlink()
    assert {Places(lambda path: Path(path).read_bytes()).of(each) for each in wanted} == {(0, 0)}


@pytest.mark.parametrize("theme", sorted(path.stem for path in CASES.glob("*inject*.jsonl")))
def test_the_changes_together_are_the_injection(theme: str, tmp_path: Path) -> None:
    compared = 0
    for number, line in enumerate((CASES / f"{theme}.jsonl").read_text().splitlines()):
        root = tmp_path / str(number)
        root.mkdir()
        case: dict[str, Any] = json.loads(line.replace(vectors.ROOT, str(root)))
        if case["kind"] != "inject":
            continue
        lstat = vectors.host(case, root)
        with CdiCache(vectors.build(case, root), auto_refresh=False, lstat=lstat) as cache:
            try:
                whole = cache.inject(case["oci"], case["devices"])
            except CdiError:
                continue
            result, made = changes(case["oci"], wanted_of(cache, case["devices"]), lstat)
        assert result == whole, case["name"]
        assert bool(made) == (whole != case["oci"]), case["name"]
        compared += 1
    assert compared
