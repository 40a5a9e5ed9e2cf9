"""Bundles come from strangers: damaged, hostile or huge ones end in one sentence or a note, never in a traceback."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from drakkar.evidence import bundle
from drakkar.evidence.bundle import BundleError, load, load_files
from drakkar.evidence.snapshot import LogKey

OBJECTS = """\
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: 2026-01-02T03:04:05Z}
---
apiVersion: v1
kind: List
items:
- {kind: Pod, metadata: {name: p, namespace: ml, uid: u}}
- {kind: Event, metadata: {name: e}, involvedObject: {kind: Pod, uid: u}, reason: Failed, message: gone}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "objects.yaml": OBJECTS,
        "meta.yaml": "capturedAt: 2026-01-02T04:00:00Z\nkubernetesVersion: 1.37.2\nnotes: [first, second]\n",
        "expect.yaml": "cause: healthy\n",
        "nodes/n1/cdi/a.yaml": "kind: a\n",
        "nodes/n1/dev.txt": "",
        "pods/ml/p/main.log": "now\n",
        "pods/ml/p/main.previous.log": "before\n",
        "metrics/a.prom": "x 1\n",
        "manifests/a.yaml": "kind: Service\nmetadata: {name: s}\n---\nkind: Pod\nmetadata: {name: q}\n",
    }
    for name, text in files.items():
        path = tmp_path / "case" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "case"


def test_a_folder_is_read_as_its_format_says(folder: Path) -> None:
    snapshot = load(folder)
    node = snapshot.get("Node", "n1")
    assert node is not None
    assert node["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z", "times stay text as in JSON"
    pod = snapshot.get("Pod", "p", "ml")
    assert pod is not None
    assert [event["message"] for event in snapshot.events_of(pod)] == ["gone"]
    assert snapshot.nodes["n1"].cdi_files == {"a.yaml": "kind: a\n"}
    assert snapshot.logs == {LogKey("ml", "p", "main"): "now\n", LogKey("ml", "p", "main", True): "before\n"}
    assert [(m.file, m.line, m.object["kind"]) for m in snapshot.manifests] == [
        ("manifests/a.yaml", 1, "Service"),
        ("manifests/a.yaml", 4, "Pod"),
    ]
    assert snapshot.kubernetes_version == "1.37.2"
    assert snapshot.notes == ("first", "second")
    assert snapshot.captured_at is not None
    assert snapshot.unread == ()


def test_an_archive_gives_the_same_snapshot(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "bundle.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "incident-7")
    packed, plain = load(archive), load(folder)
    assert packed.objects == plain.objects
    assert packed.logs == plain.logs
    assert packed.nodes == plain.nodes


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    (folder / "nodes" / "n1" / "journal.txt").symlink_to(secret)
    (folder / "nodes" / "n2").symlink_to(tmp_path)
    snapshot = load(folder)
    assert set(snapshot.nodes) == {"n1"}
    assert "journal.txt" not in snapshot.nodes["n1"].files


def test_an_archive_cannot_leave_its_place(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("../../etc/passwd", "/nodes/x/dev.txt", "objects.yaml"):
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))
        link = tarfile.TarInfo("nodes/n1/journal.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    snapshot = load(archive)
    assert snapshot.nodes == {}


def test_damaged_yaml_becomes_a_note(folder: Path) -> None:
    (folder / "objects.yaml").write_text(OBJECTS + "---\nkind: [\n")
    snapshot = load(folder)
    assert snapshot.get("Pod", "p", "ml") is not None, "what stands before the damage is kept"
    assert len(snapshot.unread) == 1
    assert snapshot.unread[0].startswith("objects.yaml: ")


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system [id]", "5", "- a", "kind: 7", "\x00", "a: &a [*a]"])
def test_hostile_yaml_becomes_a_note(text: str) -> None:
    snapshot = load_files({"objects.yaml": text.encode()})
    assert snapshot.objects == ()
    assert snapshot.unread


def test_bombs_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_FILES", 3)
    with pytest.raises(BundleError, match="larger than a bundle may be"):
        load(folder)


def test_what_is_no_bundle_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.tgz").write_bytes(b"\x1f\x8b\x08\x00")
    for name in ("file", "empty", "missing", "cut.tgz"):
        with pytest.raises(BundleError):
            load(tmp_path / name)


@pytest.mark.parametrize("rest", ["", "spec: 5", "spec: null"])
def test_an_object_without_its_spec_becomes_a_note(rest: str) -> None:
    snapshot = load_files({"objects.yaml": f"kind: ResourceSlice\nmetadata: {{name: p}}\n{rest}\n".encode()})
    assert snapshot.objects == ()
    assert snapshot.unread == ("objects.yaml: ResourceSlice p without a spec",)
