"""A bundle is written as doctor reads it, and only where nothing else lies."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from drakkar.cli import capture
from drakkar.errors import DrakkarError
from drakkar.evidence.bundle import load
from drakkar.evidence.packing import packed, write
from drakkar.evidence.redaction import Redactor
from drakkar.evidence.snapshot import summary

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"


@pytest.mark.parametrize("name", ["b.tgz", "b.tar.gz", "b.tar", "folder"])
def test_every_form_is_read_back(tmp_path: Path, name: str) -> None:
    snapshot = load(CASES / "x-healthy")
    snapshot = replace(snapshot, unread=("pods: no right",), notes=("ssh n3 failed",))
    write(packed(snapshot, Redactor()), tmp_path / name)
    again = load(tmp_path / name)
    assert summary(again) == summary(snapshot)
    assert (again.unread, again.notes) == (("pods: no right",), ("ssh n3 failed",))
    assert {node: sorted(capture.files) for node, capture in again.nodes.items()} == {
        node: sorted(capture.files) for node, capture in snapshot.nodes.items()
    }
    assert set(again.logs) == set(snapshot.logs)
    if name != "folder":
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(DrakkarError, match="is there already"):
        write({"objects.yaml": b""}, tmp_path)
    with pytest.raises(DrakkarError, match="cannot write"):
        write({"objects.yaml": b""}, tmp_path / "no" / "b.tgz")


@pytest.mark.parametrize(
    ("ssh", "words"),
    [
        ("ssh {node}", ["ssh", "n3", "sh", "-s"]),
        ("root@{node}.example", ["ssh", "root@n3.example", "sh", "-s"]),
        ("ssh -p 22 admin@{node} sudo", ["ssh", "-p", "22", "admin@n3", "sudo", "sh", "-s"]),
        ("sh", ["sh", "-s"]),
        ("kubectl debug node/{node} -- sh -s", ["kubectl", "debug", "node/n3", "--", "sh", "-s"]),
    ],
)
def test_how_a_node_is_reached(ssh: str, words: list[str]) -> None:
    assert capture.shell("n3", ssh) == words


@pytest.mark.parametrize("word", ["n3", "=x", "n3="])
def test_a_node_file_names_its_node(word: str) -> None:
    done = CliRunner().invoke(capture.command, ["--node-file", word])
    assert isinstance(done.exception, DrakkarError)
    assert "is no node with its file" in done.exception.message
