"""What of the real cluster can be tested without building it: pins, images, certificates, configuration."""

from __future__ import annotations

import json
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.conftest import missing
from tools.realkube import build, images
from tools.realkube.certificates import Authority
from tools.realkube.parts import PARTS, Layout, write_configuration


def test_the_folder_of_binaries_is_that_of_the_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.folder()
    for module in build.MODULES:
        (tmp_path / module.folder).mkdir()
        for name in ("go.mod", "go.sum"):
            (tmp_path / module.folder / name).write_bytes((build.HERE / module.folder / name).read_bytes())
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.folder() == before
    sums = tmp_path / "runtime" / "go.sum"
    sums.write_text(sums.read_text() + "\n")
    assert build.folder() != before


def test_every_part_has_a_binary_and_every_binary_a_module() -> None:
    assert {part.name for part in PARTS} <= set(build.BINARIES)
    for module in build.MODULES:
        text = (build.HERE / module.folder / "go.mod").read_text()
        tools = text[text.index("\ntool (") :].split(")")[0].split()[2:]
        built = {"server" if path.endswith("/server/v3") else path.rpartition("/")[2] for path in tools}
        assert built == set(module.binaries)


def test_versions_are_what_the_pages_say() -> None:
    assert build.kubernetes_version().startswith("v1.37.")
    assert "containerd/v2 v2.4." in (build.HERE / "runtime" / "go.mod").read_text()


def test_without_go_the_error_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(build, "find_go", lambda: None)
    with pytest.raises(SystemExit, match="needs Go"):
        build.build()
    assert build.built() is None


def test_images_are_whole_archives(tmp_path: Path) -> None:
    if not images.BUSYBOX.exists():
        missing("root", "needs a static busybox (Debian: apt-get install busybox-static)")
    for path in images.write_images(tmp_path):
        with tarfile.open(path) as archive:

            def blob(digest: str, archive: tarfile.TarFile = archive) -> bytes:
                file = archive.extractfile("blobs/sha256/" + digest.removeprefix("sha256:"))
                assert file is not None
                return file.read()

            index = json.loads(archive.extractfile("index.json").read())  # type: ignore[union-attr]
            (entry,) = index["manifests"]
            manifest = json.loads(blob(entry["digest"]))
            for descriptor in (entry, manifest["config"], *manifest["layers"]):
                assert len(blob(descriptor["digest"])) == descriptor["size"]
            config = json.loads(blob(manifest["config"]["digest"]))
            assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def test_certificates_name_user_and_groups(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    authority = Authority(tmp_path / "pki")
    certificate, key = authority.issue("node", "system:node:n1", ("system:nodes",))
    subject = x509.load_pem_x509_certificate(certificate.read_bytes()).subject
    assert [one.value for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["system:node:n1"]
    assert [one.value for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:nodes"]
    assert key.stat().st_mode & 0o77 == 0
    config = json.loads(authority.kubeconfig(tmp_path / "k", "https://127.0.0.1:1", "u").read_text())
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_everything_listens_on_loopback_and_lies_in_one_folder(tmp_path: Path) -> None:
    at = Layout.make(tmp_path, tmp_path / "bin", "n1")
    assert len(set(at.ports.values())) == len(at.ports)
    write_configuration(at)
    kubelet = json.loads((tmp_path / "kubelet.yaml").read_text())
    assert (kubelet["address"], kubelet["healthzBindAddress"]) == ("127.0.0.1", "127.0.0.1")
    containerd = tomllib.loads((tmp_path / "containerd.toml").read_text())
    assert containerd["plugins"]["io.containerd.cri.v1.runtime"]["cdi_spec_dirs"] == [str(at.cdi)]
    arguments = [word for part in PARTS for word in part.arguments(at)]
    assert not any("0.0.0.0" in word for word in arguments)
    assert all(str(tmp_path) in word or "/" not in word.split("=")[1] for word in arguments if "dir=" in word)
