"""Files replaced as a whole: exact modes, old content after a failure, nothing left lying beside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drakkar.files import replace_file


def test_the_mode_is_exact_and_nothing_lies_beside(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "a", "text é", mode=0o644)
        replace_file(tmp_path / "key", b"secret", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == "text é".encode()
    assert [(path.name, path.stat().st_mode & 0o777) for path in sorted(tmp_path.iterdir())] == [
        ("a", 0o644),
        ("key", 0o600),
    ]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        replace_file(tmp_path / "taken", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_what_a_killed_process_left_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f".key.{os.getpid()}.new").write_text("half")
    replace_file(tmp_path / "key", "whole", mode=0o600)
    assert (tmp_path / "key").read_text() == "whole"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
