"""What one process parsed, the next one finds, and nobody else's files are believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drakkar.injection import parsed
from drakkar.injection.cache import CdiCache
from drakkar.injection.parsed import ParsedFiles

GOOD = """\
cdiVersion: 0.5.0
kind: vendor.com/gpu
devices: [{name: a, containerEdits: {hooks: [{hookName: poststop, path: /x}]}}]
"""
BAD = "cdiVersion: 0.5.0\nkind: vendor.com/gpu\nfoo: 1\ndevices: [{name: a, containerEdits: {env: [A=b]}}]\n"


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "good.yaml").write_text(GOOD)
    (tmp_path / "cdi" / "bad.yaml").write_text(BAD)
    return tmp_path / "cdi"


def look(specs: Path, kept: ParsedFiles | None) -> tuple[list[str], dict[str, list[str]], list[str], int]:
    """What a fresh process sees, and how many texts it parsed."""
    with CdiCache([specs], auto_refresh=False, kept=kept) as cache:
        return cache.devices(), cache.errors(), cache.warnings(), cache._scanner.parsed


def only_entry(folder: Path) -> Path:
    (entry,) = sorted(folder.iterdir())
    return entry


def test_the_next_process_parses_nothing_and_says_the_same(specs: Path, tmp_path: Path) -> None:
    *fresh, parsed_fresh = look(specs, None)
    kept = ParsedFiles(tmp_path / "kept")
    *first, parsed_first = look(specs, kept)
    *second, parsed_second = look(specs, ParsedFiles(tmp_path / "kept"))
    assert fresh == first == second
    assert (parsed_fresh, parsed_first, parsed_second) == (2, 2, 0)
    assert fresh[2], "the remark about the hook's environment"
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "kept").iterdir()} == {0o600}


def test_profiles_do_not_share(specs: Path, tmp_path: Path) -> None:
    kept = ParsedFiles(tmp_path / "kept")
    look(specs, kept)
    with CdiCache([specs], auto_refresh=False, profile="strict", kept=kept) as cache:
        cache.devices()
        assert cache._scanner.parsed == 2


def test_an_edit_of_the_reading_code_forgets_everything(
    specs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(specs, ParsedFiles(tmp_path / "kept"))
    monkeypatch.setattr(parsed, "_reader", lambda: b"another release")
    assert look(specs, ParsedFiles(tmp_path / "kept"))[-1] == 2


@pytest.mark.parametrize(
    "damage", ["", "truncated", "flipped", "of another file", "readable by others", "link", "fifo"]
)
def test_a_doubtful_entry_is_passed_over(tmp_path: Path, damage: str) -> None:
    kept = ParsedFiles(tmp_path / "kept")
    specs = tmp_path / "cdi"
    specs.mkdir()
    (specs / "good.yaml").write_text(GOOD)
    assert look(specs, kept)[-1] == 1
    entry = only_entry(tmp_path / "kept")
    data = entry.read_bytes()
    match damage:
        case "truncated":
            entry.write_bytes(data[:-3])
        case "flipped":
            entry.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "of another file":
            other = ParsedFiles(tmp_path / "other")
            (specs / "good.yaml").write_text(GOOD.replace("name: a", "name: b"))
            look(specs, other)
            (specs / "good.yaml").write_text(GOOD)
            entry.write_bytes(only_entry(tmp_path / "other").read_bytes())
        case "readable by others":
            entry.chmod(0o644)
        case "link":
            entry.rename(tmp_path / "elsewhere")
            entry.symlink_to(tmp_path / "elsewhere")
        case "fifo":
            entry.unlink()
            os.mkfifo(entry, 0o600)
    devices, errors, _, count = look(specs, kept)
    assert (devices, errors) == (["vendor.com/gpu=a"], {})
    assert count == (1 if damage else 0)


def test_a_folder_that_others_may_write_to_is_not_used(specs: Path, tmp_path: Path) -> None:
    kept = ParsedFiles(tmp_path / "kept")
    look(specs, kept)
    (tmp_path / "kept").chmod(0o777)
    assert look(specs, kept)[-1] == 2
    (tmp_path / "kept").chmod(0o700)
    (tmp_path / "kept").rename(tmp_path / "moved")
    (tmp_path / "kept").symlink_to(tmp_path / "moved")
    assert look(specs, kept)[-1] == 2


@pytest.mark.root
def test_another_users_folder_is_not_used(specs: Path, tmp_path: Path) -> None:
    kept = ParsedFiles(tmp_path / "kept")
    look(specs, kept)
    os.chown(tmp_path / "kept", 65534, 65534)
    assert look(specs, kept)[-1] == 2
    os.chown(tmp_path / "kept", 0, 0)
    for entry in (tmp_path / "kept").iterdir():
        os.chown(entry, 65534, 65534)
    assert look(specs, kept)[-1] == 2


def test_a_place_that_cannot_be_written_costs_nothing(specs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert look(specs, ParsedFiles(tmp_path / "file" / "below"))[0] == ["vendor.com/gpu=a"]


def test_a_full_folder_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed, "_MOST_ENTRIES", 3)
    kept = ParsedFiles(tmp_path / "kept")
    specs = tmp_path / "cdi"
    specs.mkdir()
    for name in "abcdefgh":
        (specs / "x.yaml").write_text(GOOD.replace("name: a", f"name: {name}"))
        look(specs, kept)
        assert 1 <= len(list((tmp_path / "kept").iterdir())) <= 3


def test_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert ParsedFiles.of_user()._directory == "/x/drakkar/cdi"  # type: ignore[union-attr]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/a")
    assert ParsedFiles.of_user()._directory == "/home/a/.cache/drakkar/cdi"  # type: ignore[union-attr]
    monkeypatch.delenv("HOME")
    assert ParsedFiles.of_user() is None
