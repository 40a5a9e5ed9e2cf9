"""Bundles from strangers: damaged, huge, truncated and hostile ones end in one clear sentence, or are read in part."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from drakkar.cli.doctor import command
from drakkar.diagnosis.survey import survey
from drakkar.errors import DrakkarError
from drakkar.evidence import bundle
from drakkar.evidence.bundle import BundleError, load, load_files

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"
OBJECTS = (CASES / "x-devices-tainted" / "objects.yaml").read_bytes()


def archive(path: Path, *members: tuple[str, bytes | str], mode: str = "w:gz") -> Path:
    """A tar whose members are files (bytes) or links (a target)."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type = tarfile.SYMTYPE if not content.startswith("hard:") else tarfile.LNKTYPE
                info.linkname = content.removeprefix("hard:")
                tar.addfile(info)
    return path


def one_sentence(path: Path) -> str:
    """What the command says about a bundle that it cannot read."""
    done = CliRunner().invoke(command, [str(path)])
    assert isinstance(done.exception, DrakkarError), done.exception
    assert done.exception.exit_status == 4
    assert "\n" not in done.exception.message and "Traceback" not in done.exception.message
    return done.exception.message


@pytest.mark.parametrize("name", ["../../etc/evil", "/etc/evil", "b/../../evil", "b/nodes/../../../evil", ".."])
def test_paths_that_lead_out_of_the_archive_are_not_followed(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "b.tgz", ("b/objects.yaml", OBJECTS), (name, b"evil"))
    snapshot = load(path)
    assert snapshot.all("Pod")
    assert not (tmp_path.parent / "evil").exists()
    assert not any("evil" in text for text in snapshot.logs.values())


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../etc/passwd", "hard:/etc/passwd", "hard:b/objects.yaml"])
def test_links_are_not_followed(tmp_path: Path, target: str) -> None:
    path = archive(tmp_path / "b.tgz", ("b/objects.yaml", OBJECTS), ("b/nodes/n1/journal.txt", target))
    assert "n1" not in load(path).nodes
    folder = tmp_path / "folder"
    (folder / "nodes/n1").mkdir(parents=True)
    (folder / "objects.yaml").write_bytes(OBJECTS)
    (folder / "nodes/n1/journal.txt").symlink_to("/etc/passwd")
    (folder / "nodes/loop").symlink_to(folder)
    assert load(folder).nodes == {}


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_bytes(OBJECTS)
    (tmp_path / "nodes" / "n1").mkdir(parents=True)
    os.mkfifo(tmp_path / "nodes" / "n1" / "journal.txt")
    assert load(tmp_path).nodes == {}


def bomb(path: Path) -> Path:
    """Gigabytes of zeroes in a few megabytes."""
    with gzip.open(path, "wb", compresslevel=9) as out:
        header = tarfile.TarInfo("b/nodes/n1/journal.txt")
        header.size = 3 << 30
        out.write(header.tobuf())
        zeroes = bytes(1 << 20)
        for _ in range(32):
            out.write(zeroes)
    return path


def many(path: Path) -> Path:
    """More members than a bundle may have, none of them a file."""
    with gzip.open(path, "wb", compresslevel=1) as out:
        header = tarfile.TarInfo("b/nodes")
        header.type = tarfile.DIRTYPE
        data = header.tobuf()
        out.write(data * 2000)
    return path


def long_header(path: Path) -> Path:
    """A name of gigabytes, as a pax header would have it."""
    with gzip.open(path, "wb", compresslevel=9) as out:
        header = tarfile.TarInfo("x")
        header.type = tarfile.XHDTYPE
        header.size = 4 << 30
        out.write(header.tobuf(format=tarfile.USTAR_FORMAT))
        out.write(bytes(4 << 20))
    return path


@pytest.mark.parametrize("make", [bomb, many, long_header])
def test_bombs_are_refused_by_their_size(
    tmp_path: Path, make: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_TOTAL_BYTES", 1 << 20)  # the same a hundred times smaller, to be quick
    monkeypatch.setattr(bundle, "MAX_FILES", 200)
    assert "is larger than a bundle may be" in one_sentence(make(tmp_path / "b.tgz"))


def test_a_folder_with_a_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_bytes(OBJECTS)
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(bundle.MAX_FILE_BYTES + 1)
    assert "is larger than a bundle may be" in one_sentence(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no bundle"),
        (b"hello", "no Kubernetes object"),
        (bytes(range(256)) * 16, "is no bundle"),
        (b"\x1f\x8b" + bytes(100), "the bundle"),
        (b"BZh9" + bytes(100), "bundle"),
        (b"\xfd7zXZ\x00" + bytes(100), "bundle"),
    ],
)
def test_files_that_are_no_archive(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "b.tgz"
    path.write_bytes(content)
    assert says in one_sentence(path)


def test_a_zip_is_no_bundle(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("objects.yaml", OBJECTS)
    assert "is no bundle" in one_sentence(tmp_path / "b.zip")


def test_nothing_there(tmp_path: Path) -> None:
    assert "does not exist" in one_sentence(tmp_path / "nowhere.tgz")
    assert "holds nothing that a bundle has" in one_sentence(tmp_path)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.99])
def test_an_archive_that_is_cut_off(tmp_path: Path, part: float) -> None:
    whole = archive(tmp_path / "whole.tgz", ("b/objects.yaml", OBJECTS), ("b/pods/a/b/c.log", os.urandom(200_000)))
    data = whole.read_bytes()
    path = tmp_path / "b.tgz"
    path.write_bytes(data[: int(len(data) * part)])
    assert "bundle" in one_sentence(path)


YAML = {
    "tabs": b"kind: Pod\n\tmetadata: {}\n",
    "a tag that makes objects": b"!!python/object/apply:os.system ['touch /tmp/evil']\n",
    "aliases that multiply": b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n".encode() for n in range(9)
    ) + b"kind: Pod\n",
    "a cycle": b"kind: Pod\nmetadata: &m {name: x, self: *m}\n",
    "nested without end": b"[" * 20_000,
    "lists for mappings": b"kind: Pod\nmetadata: [1]\nspec: []\nstatus: 3\n---\nkind: Node\nmetadata: 3\n",
    "kinds that are none": b"kind: [Pod]\n---\nkind: {a: b}\n---\n3\n---\n- a\n",
    "binary": bytes(range(256)),
    "another encoding": "kind: Pod\nmetadata: {name: x}\n".encode("utf-16"),
    "half a document": OBJECTS[: len(OBJECTS) // 3],
    "a list of nothing": b"kind: List\nitems: 7\n",
}  # fmt: skip


@pytest.mark.parametrize("what", YAML)
def test_wrong_yaml_is_a_note_and_never_a_failure(what: str) -> None:
    for name in ("objects.yaml", "manifests/a.yaml"):
        snapshot = load_files({"objects.yaml": b"", name: YAML[what]})
        survey(snapshot)
    found = load_files({"objects.yaml": OBJECTS, "meta.yaml": YAML[what]})
    assert found.all("Pod")
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize("seed", range(12))
def test_damaged_bundles_are_read_as_far_as_they_can_be(seed: int) -> None:
    """Bytes changed, lines dropped, moved and repeated, in every file: a verdict or one sentence, never a traceback."""
    random_ = random.Random(seed)
    names = sorted(path.name for path in CASES.iterdir() if path.is_dir())
    for name in random_.sample(names, 4):
        folder = CASES / name
        files = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != "expect.yaml":
                files[path.relative_to(folder).as_posix()] = _damaged(random_, path.read_bytes())
        try:
            found = survey(load_files(files))
        except BundleError:
            continue
        assert found.verdict.sentence
        found.to_dict()


def _damaged(random_: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(random_.randint(0, 6)):
        if not lines:
            break
        index = random_.randrange(len(lines))
        match random_.randrange(6):
            case 0:
                del lines[index]
            case 1:
                lines.insert(index, lines[random_.randrange(len(lines))])
            case 2:
                line = bytearray(lines[index])
                line[random_.randrange(len(line))] = random_.randrange(256)
                lines[index] = bytes(line)
            case 3:
                lines[index] = lines[index].partition(b":")[0] + random_.choice(
                    [b": []\n", b": 7\n", b":\n", b": {}\n"]
                )
            case 4:
                lines = lines[: index + 1]
            case _:
                lines[index] = b"  " + lines[index]
    return b"".join(lines)
