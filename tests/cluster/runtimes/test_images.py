"""Images from OCI layout folders, and names that are in none of them."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from drakkar.cluster.runtimes.images import Image, ImageStore, host_image, normalised
from drakkar.cluster.runtimes.layers import unpack
from drakkar.cluster.runtimes.runc import RuncRuntime, unavailable
from drakkar.cluster.runtimes.runtime import ContainerRequest
from drakkar.errors import DrakkarError

Entry = tuple[str, bytes | None]
"""A file with its content, or (None) a directory; `name -> target` is a symbolic link."""


class Layout:
    """Writes an OCI image layout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests: list[dict[str, Any]] = []

    def blob(self, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / "blobs" / "sha256" / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def image(self, name: str, layers: list[bytes], **config: Any) -> None:
        manifest = {
            "schemaVersion": 2,
            "config": self.blob(json.dumps({"config": config}).encode()),
            "layers": [self.blob(layer) for layer in layers],
        }
        annotations = {"org.opencontainers.image.ref.name": name}
        self.manifests.append(self.blob(json.dumps(manifest).encode()) | {"annotations": annotations})
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": self.manifests}))


def layer(*entries: Entry, compress: bool = False) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if compress else "w") as archive:
        for name, content in entries:
            if " -> " in name:
                link, _, target = name.partition(" -> ")
                member = tarfile.TarInfo(link)
                member.type, member.linkname = tarfile.SYMTYPE, target
                archive.addfile(member)
                continue
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            if content is None:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def unpacked(image: Image, folder: Path) -> dict[str, str]:
    root = asyncio.run(unpack(image, folder))
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(root)): path.read_text() for path in files}


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("nvidia/cuda:12.8", "docker.io/nvidia/cuda:12.8"),
        ("registry.example:5000/a/b", "registry.example:5000/a/b:latest"),
        ("localhost/a", "localhost/a:latest"),
        ("a@sha256:00", "docker.io/library/a@sha256:00"),
    ],
)
def test_full_names(name: str, full: str) -> None:
    assert normalised(name) == full


def test_a_name_in_no_layout_runs_on_the_hosts_files() -> None:
    assert host_image("ubuntu:24.04").command == ("/bin/sh",)
    assert "trap" in host_image("registry.example/server:1").command[2]


def test_an_image_is_found_by_any_form_of_its_name(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    config = {"Entrypoint": ["/tool"], "Cmd": ["-x"], "Env": ["A=1=2"], "WorkingDir": "/w", "User": "5:6"}
    layout.image("docker.io/library/tool:latest", [layer(("f", b"1"))], **config)
    image = ImageStore([tmp_path]).find("tool")
    assert (image.entrypoint, image.command, dict(image.env)) == (("/tool",), ("-x",), {"A": "1=2"})
    assert (image.working_dir, image.uid, image.gid) == ("/w", 5, 6)
    assert not image.stand_in


def test_layers_lie_on_top_of_each_other_and_whiteouts_delete(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layers = [
        layer(("a", b"1"), ("d", None), ("d/x", b"x"), ("d/y", b"y"), ("e", None), ("e/z", b"z"), ("lib -> e", None)),
        layer(("a", b"2"), ("d/.wh.x", b""), ("e/.wh..wh..opq", b""), ("lib/new", b"n"), compress=True),
    ]
    layout.image("i", layers)
    assert unpacked(ImageStore([tmp_path]).find("i"), tmp_path / "out") == {"a": "2", "d/y": "y", "e/new": "n"}


@pytest.mark.parametrize(
    ("entries", "files"),
    [
        ([("../out", b"x")], {"out": "x"}),
        ([("/abs/../../out", b"x")], {"out": "x"}),
        ([("l -> /", None), ("l/out", b"x")], {"out": "x"}),
        ([("l -> /etc", None), ("etc", None), ("l/f", b"x")], {"etc/f": "x"}),
        ([("l -> ../../..", None), ("l/out", b"x")], {"out": "x"}),
        ([("a/b -> ../c", None), ("c", None), ("a/b/f", b"x")], {"c/f": "x"}),
    ],
)
def test_nothing_leaves_the_image(entries: list[Entry], files: dict[str, str], tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    layout.image("i", [layer(*entries)])
    assert unpacked(ImageStore([tmp_path / "layout"]).find("i"), tmp_path / "images") == files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "layout"]


def test_links_that_run_in_a_circle_are_a_damaged_layer(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    layout.image("i", [layer(("a -> b", None), ("b -> a", None), ("a/f", b"x"))])
    with pytest.raises(DrakkarError) as caught:
        asyncio.run(unpack(ImageStore([tmp_path / "layout"]).find("i"), tmp_path / "images"))
    assert caught.value.reason == "DamagedImageLayer"
    assert not list((tmp_path / "images").iterdir())


def test_garbage_is_a_damaged_layer(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    layout.image("i", [b"\x00\xffnot a tar"])
    with pytest.raises(DrakkarError) as caught:
        asyncio.run(unpack(ImageStore([tmp_path / "layout"]).find("i"), tmp_path / "images"))
    assert caught.value.reason == "DamagedImageLayer"


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff\x00"])
def test_a_damaged_layout_is_named(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(text)
    with pytest.raises(DrakkarError) as caught:
        ImageStore([tmp_path]).find("x")
    assert caught.value.reason == "DamagedImageLayout" and str(tmp_path) in caught.value.subject


def test_a_digest_cannot_name_another_file(tmp_path: Path) -> None:
    index = {"manifests": [{"digest": "sha256:../../x", "annotations": {"org.opencontainers.image.ref.name": "i"}}]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(DrakkarError, match="digest"):
        ImageStore([tmp_path]).find("i")


@pytest.mark.root
@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox-static is not installed")
def test_a_container_sees_only_its_image(tmp_path: Path) -> None:
    busybox = Path(str(shutil.which("busybox"))).read_bytes()
    layout = Layout(tmp_path / "layout")
    files = [("bin", None), ("bin/busybox", busybox), ("bin/sh -> busybox", None), ("bin/ls -> busybox", None)]
    layout.image("tiny", [layer(*files)], Cmd=["/bin/sh", "-c", "exec 2>&1; ls /; ls /usr"], Env=["PATH=/bin"])

    async def body() -> list[str]:
        runtime = RuncRuntime(tmp_path / "rt", images=ImageStore([tmp_path / "layout"]))
        await runtime.open()
        try:
            log = tmp_path / "log"
            await runtime.create(ContainerRequest(id="one", name="c", image="tiny", log=log))
            await runtime.start("one")
            await runtime.wait("one")
            return [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
        finally:
            await runtime.close()

    assert asyncio.run(body()) == ["bin", "dev", "proc", "sys", "ls: /usr: No such file or directory"]
