"""The static program reaches the host whole, once, and the driver's specifications name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drakkar.hooks.program import put_on_host
from drakkar.vendors.nvidia.cdi.generate import own_hooks


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "image").mkdir()
    for name in ("drakkar-hook", "drakkar-nvml-limits"):
        (tmp_path / "image" / name).write_bytes(f"the program {name}".encode())
    return tmp_path / "image"


def test_it_is_copied_once_and_replaced_when_it_differs(image: Path, tmp_path: Path) -> None:
    host = tmp_path / "host" / "hooks"
    path = put_on_host(str(host), str(image))
    assert path == f"{host}/drakkar-hook"
    assert sorted(entry.name for entry in host.iterdir()) == ["drakkar-hook", "drakkar-nvml-limits"]
    assert Path(path).stat().st_mode & 0o777 == 0o755
    first = Path(path).stat().st_ino
    put_on_host(str(host), str(image))
    assert Path(path).stat().st_ino == first
    (image / "drakkar-hook").write_bytes(b"a newer program")
    with Path(path).open("rb") as running:
        put_on_host(str(host), str(image))
        assert running.read() == b"the program drakkar-hook", "a container that starts with it now is not disturbed"
    assert Path(path).read_bytes() == b"a newer program"


def test_an_image_without_it_puts_nothing_anywhere(tmp_path: Path) -> None:
    assert put_on_host(str(tmp_path / "host"), str(tmp_path)) == ""
    assert not (tmp_path / "host").exists()


def test_specifications_name_it_where_the_host_has_no_hook_of_its_own(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drakkar.hooks.program.IMAGE_FOLDER", str(image))
    monkeypatch.delenv("DRAKKAR_HOOK_DIR", raising=False)
    assert own_hooks() is None
    monkeypatch.setenv("DRAKKAR_HOOK_DIR", str(tmp_path / "host"))
    hooks = own_hooks()
    assert hooks is not None
    assert hooks.path == f"{tmp_path}/host/drakkar-hook"
    (hook,) = hooks.make("create-symlinks", ["a::/b"])
    assert hook.args == ("drakkar-hook", "create-symlinks", "--link", "a::/b")
    assert hook.env
    monkeypatch.setenv("DRAKKAR_HOOK_DIR", "/proc/none")
    assert own_hooks() is None
