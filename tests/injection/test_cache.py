"""The cache: what wins, what is noticed, what is not done twice, and why a name does not resolve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drakkar.injection import cache as cache_module
from drakkar.injection.cache import CdiCache
from drakkar.injection.errors import CdiError


def spec(*names: str, kind: str = "vendor.com/gpu", variable: str = "A=b") -> str:
    devices = "".join(f"- name: {name}\n  containerEdits: {{env: [{variable}]}}\n" for name in names)
    return f"cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n{devices}"


@pytest.fixture
def low(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc"


@pytest.fixture
def high(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def cache(low: Path, high: Path) -> Iterator[CdiCache]:
    with CdiCache([low, high]) as opened:
        yield opened


def test_the_higher_directory_wins(cache: CdiCache, low: Path, high: Path) -> None:
    (low / "a.yaml").write_text(spec("0", variable="FROM=etc"))
    (high / "a.yaml").write_text(spec("0", variable="FROM=run"))
    assert cache.inject({}, ["vendor.com/gpu=0"])["process"]["env"] == ["FROM=run"]
    assert cache.errors() == {}


def test_a_conflict_below_does_not_hide_a_definition_above(cache: CdiCache, low: Path, high: Path) -> None:
    (low / "a.yaml").write_text(spec("0", "1"))
    (low / "b.yaml").write_text(spec("0", "1"))
    (high / "c.yaml").write_text(spec("0"))
    assert cache.devices() == ["vendor.com/gpu=0"]
    assert list(cache.conflicts()) == ["vendor.com/gpu=1"]
    assert sorted(cache.errors()) == [str(low / "a.yaml"), str(low / "b.yaml")]


def test_a_bad_file_never_blocks_a_good_one(cache: CdiCache, low: Path) -> None:
    (low / "a.yaml").write_text("devices: [")
    (low / "b.json").write_bytes(b"\xff\x00")
    (low / "c.yaml").write_text(spec("0"))
    (low / "d.yaml").symlink_to("d.yaml")
    (low / "e.yaml").symlink_to("/nonexistent")
    assert cache.devices() == ["vendor.com/gpu=0"]
    assert [Path(path).name for path in sorted(cache.errors())] == ["a.yaml", "b.json", "d.yaml", "e.yaml"]


def test_an_unchanged_file_is_parsed_once(cache: CdiCache, low: Path) -> None:
    (low / "a.yaml").write_text(spec("0"))
    (low / "b.yaml").write_text(spec("1"))
    for _ in range(3):
        cache.refresh()
    (low / "b.yaml").touch()
    cache.devices()
    (low / "b.yaml").write_text(spec("1"))
    assert cache.devices() == ["vendor.com/gpu=0", "vendor.com/gpu=1"]
    assert cache._scanner.parsed == 2
    (low / "b.yaml").write_text(spec("2"))
    assert cache.devices() == ["vendor.com/gpu=0", "vendor.com/gpu=2"]
    assert cache._scanner.parsed == 3


def test_a_rewrite_of_equal_length_in_the_same_tick_is_noticed(low: Path) -> None:
    with CdiCache([low], auto_refresh=False) as manual:
        for name in "0123456789" * 3:
            (low / "a.yaml").write_text(spec(name))
            manual.refresh()
            assert manual.devices() == [f"vendor.com/gpu={name}"]


def test_directories_that_come_and_go_are_noticed(tmp_path: Path) -> None:
    directory = tmp_path / "cdi"
    with CdiCache([directory]) as cache:
        assert cache.devices() == []
        directory.mkdir()
        (directory / "a.yaml").write_text(spec("0"))
        assert cache.devices() == ["vendor.com/gpu=0"]
        directory.rename(tmp_path / "old")
        assert cache.devices() == []
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "b.yaml").write_text(spec("1"))
        (tmp_path / "new").rename(directory)
        assert cache.devices() == ["vendor.com/gpu=1"]


def test_without_inotify_every_query_looks(low: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "watch_directories", lambda directories: None)
    with CdiCache([low]) as cache:
        assert cache.devices() == []
        (low / "a.yaml").write_text(spec("0"))
        assert cache.devices() == ["vendor.com/gpu=0"]


def test_without_automatic_refresh_only_refresh_looks(low: Path) -> None:
    with CdiCache([low], auto_refresh=False) as cache:
        assert cache.devices() == []
        (low / "a.yaml").write_text(spec("0"))
        assert cache.devices() == []
        cache.refresh()
        assert cache.devices() == ["vendor.com/gpu=0"]


@pytest.mark.parametrize(
    ("files", "name", "says"),
    [
        ({"a.yaml": "devices: ["}, "vendor.com/gpu=0", "a.yaml: line"),
        ({"a.yaml": spec("0"), "b.yaml": spec("0")}, "vendor.com/gpu=0", "in conflict, defined by"),
        ({"a.yml": spec("0")}, "vendor.com/gpu=0", "a.yml"),
        ({"a.yaml": spec("GPU-1", "GPU-2")}, "vendor.com/gpu=0", "vendor.com/gpu has GPU-1, GPU-2"),
        ({"a.yaml": spec("0")}, "vendor.com/nic=0", "no specification defines vendor.com/nic"),
        ({"a.yaml": spec("0")}, "0", "missing vendor"),
        ({"a.yaml": spec("0")}, "vendor.com/gpu=0 ", "should end with a letter or digit"),
        ({}, "vendor.com/gpu=0", "hold no specification"),
    ],
)
def test_the_error_says_why_a_name_does_not_resolve(
    cache: CdiCache, low: Path, files: dict[str, str], name: str, says: str
) -> None:
    for file, text in files.items():
        (low / file).write_text(text)
    config: dict[str, Any] = {"process": {"env": ["A=1"]}}
    with pytest.raises(CdiError) as raised:
        cache.inject(config, [name])
    assert says in str(raised.value)
    assert raised.value.unresolved == (name,)
    assert config == {"process": {"env": ["A=1"]}}


def test_a_stale_definition_behind_a_broken_file_is_a_warning(cache: CdiCache, low: Path, high: Path) -> None:
    (low / "v.yaml").write_text(spec("0"))
    (high / "v.yaml").write_text("devices: [")
    assert cache.devices() == ["vendor.com/gpu=0"]
    assert any("older definitions stay in force: vendor.com/gpu=0" in text for text in cache.warnings())


def test_a_closed_cache_still_answers(low: Path) -> None:
    cache = CdiCache([low])
    cache.devices()
    cache.close()
    (low / "a.yaml").write_text(spec("0"))
    assert cache.devices() == ["vendor.com/gpu=0"]
    cache.close()
