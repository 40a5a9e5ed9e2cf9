"""`drakkar free`, `who` and `metrics` on a recorded bundle: no cluster anywhere."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from drakkar.cli.root import root
from drakkar.errors import DrakkarError

_BUNDLE = str(Path(__file__).parents[2] / "cases/diagnosis/x-healthy")


def _run(*words: str) -> Result:
    result = CliRunner().invoke(root, [*words, "--bundle", _BUNDLE])
    assert result.exit_code == 0, result.output
    return result


def test_free_prints_a_table() -> None:
    lines = [line.split() for line in _run("free", "--by", "class", "--driver", "gpu.nvidia.com").stdout.splitlines()]
    assert lines == [
        ["CLASS", "DRIVER", "TYPE", "TOTAL", "HELD", "TAINTED", "STRANDED", "FREE", "×2", "×4", "×8"],
        ["gpu.nvidia.com", "gpu.nvidia.com", "gpu", "4", "2", "0", "0", "2", "0", "0", "0"],
    ]


def test_free_as_json() -> None:
    answer = json.loads(_run("free", "--by", "node", "-o", "json").stdout)
    (found,) = (group for group in answer["groups"] if (group["group"], group["type"]) == ("gpu-a", "gpu"))
    assert found == {
        "group": "gpu-a", "driver": "gpu.nvidia.com", "type": "gpu", "total": 2, "held": 1, "tainted": 0,
        "stranded": 0, "free": 1, "fits": {"1": 1, "2": 0, "4": 0, "8": 0},
    }  # fmt: skip


def test_free_says_that_there_is_nothing() -> None:
    assert _run("free", "--driver", "nobody.example").stdout == "no devices are published by nobody.example\n"


def test_who_names_claim_pod_container_and_time() -> None:
    header, *rows = (
        line.split() for line in _run("who", "GPU-29be2714-e602-4c20-8ff2-c2a43d43054e").stdout.splitlines()
    )
    assert header == ["DEVICE", "NODE", "STATE", "CLAIM", "POD", "CONTAINERS", "SINCE"]
    (row,) = rows
    assert row[:4] == ["gpu-0", "gpu-a", "held", "vision/detector-jnh56j8pd-wstxh-gpu-znf4n"]
    assert row[4:6] == ["vision/detector-jnh56j8pd-wstxh", "detector"]
    assert row[6:] == ["3d", "(2026-10-29T21:30:03Z)"]


def test_who_shows_free_devices_of_a_node() -> None:
    rows = [line.split() for line in _run("who", "node/gpu-a").stdout.splitlines()]
    assert ["gpu-1", "gpu-a", "free", "-", "-", "-", "-"] in rows


def test_metrics_once() -> None:
    printed = _run("metrics").stdout
    assert (
        'drakkar_devices{driver="gpu.nvidia.com",node="gpu-a",product="NVIDIA L40S",type="gpu",state="free"} 1'
        in printed
    )
    assert printed.endswith("drakkar_snapshot_unread_resources 0\n")


def test_a_bundle_that_is_none_is_refused_before_anything_is_served() -> None:
    for words in (["free"], ["who", "gpu-0"], ["metrics"], ["metrics", "--listen", "0"], ["board", "--listen", "0"]):
        result = CliRunner().invoke(root, [*words, "--bundle", "/nowhere"])
        assert isinstance(result.exception, DrakkarError)
        assert result.exception.message == "/nowhere does not exist"
