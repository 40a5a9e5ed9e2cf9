"""Every case of `cases/cdi-hooks` with both programs: what the hook does, and that nothing outside is touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hooks.conftest import Hook
from tests.hooks.trees import build, picture

FOLDER = Path(__file__).parents[2] / "cases" / "cdi-hooks"
CASES = [(file.stem, case) for file in sorted(FOLDER.glob("*.yaml")) for case in yaml.safe_load(file.read_text())]


def needs_root(case: dict[str, Any]) -> bool:
    return any(isinstance(entry, dict) and "node" in entry for entry in (case.get("root") or {}).values())


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{stem}-{case['name']}", marks=[pytest.mark.root] if needs_root(case) else [])
        for stem, case in CASES
    ],
)
def test_a_hook_does_what_the_case_says(case: dict[str, Any], hook: Hook, tmp_path: Path) -> None:
    root, outside, host = tmp_path / "bundle" / "rootfs", tmp_path / "outside", tmp_path / "host"
    text = json.dumps(case).replace("${OUTSIDE}", str(outside)).replace("${ROOT}", str(root))
    case = json.loads(text)
    build(case.get("outside") or {}, outside, outside)
    build(case.get("root") or {}, root, outside)
    config = {"root": {"path": "rootfs"}, "process": {"env": case.get("env") or []}}
    (root.parent / "config.json").write_text(json.dumps(config))
    state = case.get("state", {})
    if isinstance(state, dict):
        merged = {"ociVersion": "1.0.2", "id": "x", "pid": 7, "bundle": str(root.parent)} | state
        state = {key: value for key, value in merged.items() if value is not None}
    arguments = list(case["run"])
    if "host" in case:
        build(case["host"], host, outside)
        arguments += ["--host-root", str(host)]
    before, far = picture(root), picture(outside, times=True)

    ended = hook(arguments, state)

    expect = case.get("expect") or {}
    assert ended.returncode == expect.get("status", 0), ended.stderr
    assert expect.get("says", "") in ended.stderr
    if ended.returncode:
        assert len(ended.stderr.splitlines()) == 1, "one sentence"
    changed = {path: entry for path, entry in picture(outside, times=True).items() if far.get(path) != entry}
    assert changed == {}
    assert list(picture(outside)) == list(far)
    if expect.get("same"):
        assert picture(root) == before
    for path, wanted in (expect.get("root") or {}).items():
        place = root / path
        match wanted:
            case None:
                assert not os.path.lexists(place)
            case {"link": target}:
                assert str(place.readlink()) == target
            case {"mode": mode}:
                assert place.stat().st_mode & 0o7777 == mode
            case _:
                assert place.is_file() and not place.is_symlink()
                assert place.read_text() == wanted
    assert not [path for path in picture(root) if ".drakkar-" in path], "nothing of the hook's own is left behind"


def test_there_are_hostile_roots_for_every_way_out() -> None:
    assert sum("outside" in case for _, case in CASES) >= 15
