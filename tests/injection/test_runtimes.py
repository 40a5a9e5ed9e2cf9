"""Real containers, by runc and by Podman: what one sees of its device, and of another it did not ask for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from drakkar.injection.cache import CdiCache
from drakkar.injection.errors import CdiError
from tests.conftest import missing
from tests.injection.container import BUSYBOX, SCRIPT, SEEN, Device, configuration, make_device, make_root, write_bundle

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def busybox() -> None:
    if not BUSYBOX.exists():
        missing("root", "needs a static busybox: install it (Debian: apt-get install busybox-static)")


def run_bundle(bundle: Path, state: Path) -> subprocess.CompletedProcess[str]:
    command = ["runc", "--root", state, "run", "--bundle", bundle, f"drakkar-test-{os.getpid()}"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def test_a_container_of_runc_has_its_device(program: list[str], tmp_path: Path) -> None:
    device = make_device(tmp_path / "host", tmp_path / "cdi", program)
    with CdiCache([device.directory], auto_refresh=False) as cache:
        config = cache.inject(configuration(SCRIPT), [device.name])
    write_bundle(tmp_path / "bundle", config)
    ended = run_bundle(tmp_path / "bundle", tmp_path / "state")
    assert (ended.stdout.splitlines(), ended.stderr) == (SEEN, "")


def test_a_container_without_the_device_has_nothing_of_it(native: Path, tmp_path: Path) -> None:
    make_device(tmp_path / "host", tmp_path / "cdi", [str(native / "drakkar-hook")])
    script = "echo $CDI_DEVICE; ls /dev/drakkar* /cdi* 2>&1 | grep -c 'No such file'"
    write_bundle(tmp_path / "bundle", configuration(script))
    assert run_bundle(tmp_path / "bundle", tmp_path / "state").stdout.split() == ["none", "2"]


def test_the_node_without_its_rule_is_denied(native: Path, tmp_path: Path) -> None:
    device = make_device(tmp_path / "host", tmp_path / "cdi", [str(native / "drakkar-hook")])
    with CdiCache([device.directory], auto_refresh=False) as cache:
        config = cache.inject(configuration(SCRIPT), [device.name])
    del config["linux"]["resources"]["devices"][1:]
    write_bundle(tmp_path / "bundle", config)
    assert run_bundle(tmp_path / "bundle", tmp_path / "state").stdout.splitlines()[4] == "DENIED"


def test_a_hook_that_fails_stops_the_start(native: Path, tmp_path: Path) -> None:
    hook = str(native / "drakkar-hook")
    device = make_device(tmp_path / "host", tmp_path / "cdi", [hook])
    with CdiCache([device.directory], auto_refresh=False) as cache:
        config = cache.inject(configuration("echo STARTED"), [device.name])
    write_bundle(tmp_path / "bundle", config)
    (tmp_path / "bundle" / "rootfs" / "cdi-link" / "full").mkdir(parents=True)
    ended = run_bundle(tmp_path / "bundle", tmp_path / "state")
    assert "STARTED" not in ended.stdout
    assert "drakkar hook create-symlinks: cdi-link: Directory not empty" in ended.stderr


def test_the_command_runs_a_container(native: Path, tmp_path: Path) -> None:
    device = make_device(tmp_path / "host", tmp_path / "cdi", [str(native / "drakkar-hook")])
    command = ["drakkar", "cdi", "run", "--spec-dir", str(device.directory), "--device", device.name]
    env = {**os.environ, "PATH": f"{Path(os.sys.executable).parent}:{os.environ['PATH']}"}  # type: ignore[attr-defined]
    ended = subprocess.run(
        [*command, "-e", "A=b", "--", "sh", "-c", SCRIPT + "echo $A; exit 7"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=env,
    )
    assert (ended.stdout.splitlines(), ended.returncode) == ([*SEEN, "b"], 7), ended.stderr


# Podman reads the usual directories only, so the specification goes there under a name of this test's own.


@pytest.fixture
def podman_device(native: Path, tmp_path: Path) -> Iterator[Device]:
    if shutil.which("podman") is None:
        missing("podman", "needs Podman: install it (Debian: apt-get install podman)")
    kind = f"drakkar.test/podman{os.getpid()}"
    device = make_device(tmp_path / "host", Path("/var/run/cdi"), [str(native / "drakkar-hook")], kind=kind)
    try:
        yield device
    finally:
        (device.directory / f"{kind.replace('/', '-')}.json").unlink()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: Podman keeps sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="pm-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def podman(at: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Podman with storage of its own below `at`."""
    places = ["--root", f"{at}/storage", "--runroot", f"{at}/run", "--tmpdir", f"{at}/tmp", "--storage-driver", "vfs"]
    settings = ["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
    return subprocess.run(
        ["podman", *places, *settings, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_container_of_podman_has_its_device(podman_device: Device, short: Path) -> None:
    root = make_root(short / "root")
    limits = ["--ulimit", "nofile=512:512", "--ulimit", "nproc=512:512"]  # its own may be more than a machine allows
    plain = ["run", "--rm", *limits, "--network", "host", "--security-opt", "seccomp=unconfined"]
    rootfs = ["--env", "PATH=/bin", "--rootfs", str(root), "sh", "-c"]
    ended = podman(short, *plain, "--device", podman_device.name, *rootfs, SCRIPT)
    assert (ended.stdout.splitlines(), ended.returncode) == (SEEN, 0), ended.stderr
    unknown = podman(short, *plain, "--device", f"{podman_device.kind}=9", *rootfs, "echo STARTED")
    assert (unknown.stdout, unknown.returncode != 0) == ("", True)
    assert f"unresolvable CDI devices {podman_device.kind}=9" in unknown.stderr


def test_what_podman_refuses_the_cache_refuses_too(podman_device: Device) -> None:
    with CdiCache(auto_refresh=False) as cache, pytest.raises(CdiError, match="unresolvable CDI devices"):
        cache.inject(configuration("true"), [f"{podman_device.kind}=9"])
    assert json.loads((podman_device.directory / f"{podman_device.kind.replace('/', '-')}.json").read_text())
