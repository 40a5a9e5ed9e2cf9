"""One error per bad file, whatever it is, and the good file beside it works."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from drakkar.injection.cache import CdiCache
from drakkar.injection.errors import CdiError
from drakkar.injection.spec import CdiSpec
from tools import fuzz_cdi

BAD = Path(__file__).parents[2] / "cases" / "cdi" / "bad"


def text_of(error: list[str]) -> str:
    (text,) = error
    return text


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


MADE: dict[str, Callable[[Path], object]] = {
    "fifo.yaml": os.mkfifo,
    "loop.yaml": lambda path: path.symlink_to(path),
    "dangling.yaml": lambda path: path.symlink_to("/nonexistent"),
    "device.yaml": lambda path: path.symlink_to("/dev/zero"),
    "huge.yaml": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 50 << 20),
    "huge.json": lambda path: path.write_bytes(b'{"a": "' + b"x" * (17 << 20)),
    "deep.yaml": lambda path: path.write_bytes(b"[" * 200_000),
    "deep.json": lambda path: path.write_bytes(b'{"devices":' * 50_000),
    "binary.yaml": lambda path: path.write_bytes(random.Random(1).randbytes(5000)),
    "bom.yaml": lambda path: path.write_bytes(b"\xef\xbb\xbf"),
    "bom16.yaml": lambda path: path.write_bytes(b"\xff\xfe\x00\xd8"),
    "python.yaml": lambda path: path.write_text("!!python/object/apply:os.system [touch /tmp/drakkar-was-here]\n"),
    "newline.yaml": lambda path: path.write_text('cdiVersion: "1\\n2"\nkind: a.b/c\ndevices: []\n'),
    "directory.yaml": lambda path: path.symlink_to(path.parent),
}


def test_every_bad_file_has_one_error_and_blocks_nothing(tmp_path: Path) -> None:
    for path in BAD.iterdir():
        shutil.copy(path, tmp_path / path.name)
    for name, make in MADE.items():
        make(tmp_path / name)
    make_socket(tmp_path / "socket.yaml")
    (tmp_path / "zz-good.yaml").write_bytes(fuzz_cdi.GOOD)
    with CdiCache([tmp_path]) as cache:
        assert cache.devices() == ["good.example/gpu=0"]
        errors = cache.errors()
        assert cache.inject({}, ["good.example/gpu=0"])["process"]["env"] == ["A=b"]
    assert {Path(path).name for path in errors} == {path.name for path in tmp_path.iterdir()} - {"zz-good.yaml"}
    for path, messages in errors.items():
        text = text_of(messages)
        assert Path(path).name in text
        assert "\n" not in text
    assert "not a regular file" in text_of(errors[str(tmp_path / "fifo.yaml")])
    assert not Path("/tmp/drakkar-was-here").exists()


def test_a_file_that_vanishes_while_the_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_bytes(fuzz_cdi.GOOD.replace(b"good", b"gone"))
    (tmp_path / "b.yaml").write_bytes(fuzz_cdi.GOOD)
    opened = os.open

    def late(path: str, *arguments: int, **options: int) -> int:
        if str(path).endswith("a.yaml"):
            (tmp_path / "a.yaml").unlink(missing_ok=True)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", late)
    with CdiCache([tmp_path], auto_refresh=False) as cache:
        assert cache.devices() == ["good.example/gpu=0"]
        assert "No such file" in text_of(cache.errors()[str(tmp_path / "a.yaml")])
        cache.refresh()
        assert cache.errors() == {}


def test_a_file_that_is_cut_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    with CdiCache([tmp_path]) as cache:
        (tmp_path / "a.yaml").write_bytes(fuzz_cdi.GOOD[:40])
        assert cache.devices() == []
        (tmp_path / "a.yaml").write_bytes(fuzz_cdi.GOOD)
        assert (cache.devices(), cache.errors()) == (["good.example/gpu=0"], {})


@pytest.mark.parametrize("seed", range(3))
def test_a_little_fuzzing_finds_nothing(seed: int, tmp_path: Path) -> None:
    texts = fuzz_cdi.corpus()
    for number in range(120):
        chance = random.Random(f"test/{seed}/{number}")
        text = fuzz_cdi.damaged(chance.choice(texts), texts, chance)
        assert fuzz_cdi.attempt(text, tmp_path)[1] == "", text


def test_the_fuzzer_would_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes, **_: object) -> object:
        raise KeyError("x") if b"boom" in data else CdiError("refused", file="x.yaml")

    monkeypatch.setattr("drakkar.injection.reading.read_spec", broken)
    outcome, wrong = fuzz_cdi.attempt(b"abc boom def", tmp_path)
    assert (outcome, wrong) == ("refused", "KeyError: 'x'")
    assert fuzz_cdi.smaller(b"abc boom def", tmp_path, "KeyError") == b"boom"


def test_an_error_with_control_characters_is_still_one_line() -> None:
    with pytest.raises(CdiError) as raised:
        CdiSpec.parse('cdiVersion: "1\\n\\u2028"\nkind: a.b/c\n')
    assert len(str(raised.value).splitlines()) == 1
    json.dumps(raised.value.to_dict())


@pytest.mark.parametrize(
    "key", ['"name"\n:', '"name"\r\n\t :', '"name"' + " " * 1100 + ":", '"' + "k" * 1100 + '":'], ids=repr
)
def test_json_whose_colon_is_far_from_its_key_is_no_yaml(key: str) -> None:
    """JSON allows it, and Go reads these files as YAML, where key and colon are near each other on one line."""
    good = '{"cdiVersion":"0.6.0","kind":"a.com/b","devices":[{"name":"x","containerEdits":{"env":["A=B"]}}]}'
    assert CdiSpec.parse(good).kind == "a.com/b"
    with pytest.raises(CdiError, match="x.yaml: line [12], column [0-9]+: not valid YAML"):
        CdiSpec.parse(good.replace('"name":', key), file="x.yaml")
