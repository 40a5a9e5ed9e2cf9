"""Written files: whole or absent, readable by all, and read back as they were meant, by every reader."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drakkar.injection.emit import to_json, to_yaml
from drakkar.injection.errors import CdiError
from drakkar.injection.spec import CdiSpec
from drakkar.injection.write import remove_spec, transient_spec_file_name, write_spec


def spec(*variables: str, name: str = "dev") -> dict[str, Any]:
    return {
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/gpu",
        "devices": [{"name": name, "containerEdits": {"env": list(variables) or ["A=b"]}}],
        "containerEdits": {},
    }


def test_a_file_is_readable_by_all_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = write_spec(tmp_path / "cdi", "a", spec())
    assert path == tmp_path / "cdi" / "a.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["a.yaml"]
    remove_spec(tmp_path / "cdi", "a")
    remove_spec(tmp_path / "cdi", "a")
    assert list(path.parent.iterdir()) == []


def test_an_invalid_specification_leaves_the_old_file(tmp_path: Path) -> None:
    path = write_spec(tmp_path, "a.json", spec())
    before = path.read_bytes()
    with pytest.raises(CdiError):
        write_spec(tmp_path, "a.json", spec("NOVALUE"))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/a", "a\0b"])
def test_a_name_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    for act in (lambda: write_spec(tmp_path, name, spec()), lambda: remove_spec(tmp_path, name)):
        with pytest.raises(CdiError, match="name"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_a_transient_name_has_the_claim_in_it() -> None:
    assert transient_spec_file_name("k8s.gpu.nvidia.com/claim", "a/b") == "k8s.gpu.nvidia.com-claim_a_b"


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
AMBIGUOUS = ("1:0", "010", "0x1f", "on", "~", "null", "2024-01-02", ".5", "1e3", "=", "<<", "#", "-", "- a", "a: b")
WORDS = st.sampled_from(AMBIGUOUS)


@settings(max_examples=120, deadline=None)
@given(st.lists(TEXT | WORDS, min_size=1, max_size=4))
def test_any_text_survives_both_formats_in_both_profiles(values: list[str]) -> None:
    meant = spec(*(f"V={value}" for value in values))
    meant["devices"][0]["containerEdits"]["hooks"] = [
        {"hookName": "prestart", "path": "/h", "args": list(values), "timeout": 0}
    ]
    for text in (to_yaml(meant), to_json(meant)):
        assert CdiSpec.parse(text).to_dict() == meant
        if "\\ud" not in text:
            assert CdiSpec.parse(text, profile="compat").to_dict() == meant
