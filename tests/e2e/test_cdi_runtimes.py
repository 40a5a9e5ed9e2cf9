"""containerd 2.4 by itself reads our specifications: `ctr run --device`, and the CRI as a kubelet does, by crictl."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.injection.container import SCRIPT, SEEN, Device, make_device
from tools.realkube import build, images
from tools.realkube.cluster import RealCluster, prerequisites
from tools.realkube.parts import environment


@pytest.fixture(scope="module")
def containerd() -> Iterator[RealCluster]:
    """containerd alone, with the busybox image."""
    lacking = prerequisites()
    if lacking:
        missing("realkube", lacking)
    given = os.environ.get("DRAKKAR_CONTAINERD")  # a folder with containerd, its shim, ctr and crictl
    binaries = Path(given) if given else build.built()
    if binaries is None:
        missing("realkube", "needs containerd 2.4: build it with `python -m tools.realkube`")
        raise AssertionError
    with RealCluster(binaries, only=("containerd",)) as running:
        yield running


def ctr(containerd: RealCluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        containerd.layout.binaries / "ctr",
        "--address",
        containerd.layout.runtime_socket,
        "-n",
        "k8s.io",
        *words,
    ]
    return subprocess.run(
        command,
        env=environment(containerd.layout),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ctr_run_with_a_device(containerd: RealCluster, native: Path, tmp_path: Path) -> None:
    kind = f"drakkar.test/ctr{os.getpid()}"  # ctr reads the usual directories only
    device = make_device(tmp_path / "host", Path("/var/run/cdi"), [str(native / "drakkar-hook")], kind=kind)
    try:
        name = f"drakkar-{os.getpid()}"
        ended = ctr(containerd, "run", "--rm", "--device", device.name, images.WORKLOAD, name, "sh", "-c", SCRIPT)
        assert (ended.stdout.splitlines(), ended.returncode) == (SEEN, 0), ended.stderr
        unknown = ctr(containerd, "run", "--rm", "--device", f"{kind}=9", images.WORKLOAD, f"{name}-9", "true")
        assert f"unresolvable CDI devices {kind}=9" in unknown.stderr
    finally:
        (device.directory / f"{kind.replace('/', '-')}.json").unlink()


@pytest.fixture
def device(containerd: RealCluster, native: Path, tmp_path: Path) -> Iterator[Device]:
    made = make_device(tmp_path / "host", containerd.layout.cdi, [str(native / "drakkar-hook")])
    yield made
    for left in containerd.layout.cdi.iterdir():  # the folder itself is a mount
        left.unlink()


def in_a_pod(containerd: RealCluster, at: Path, container: dict[str, object]) -> list[str]:
    """Runs a container in a pod of its own by the CRI; the lines it wrote."""
    pod_file, container_file = at / "pod.json", at / "container.json"
    (at / "logs").mkdir()
    pod = {
        "metadata": {"name": "pod", "namespace": "default", "uid": f"uid-{os.getpid()}", "attempt": 1},
        "log_directory": str(at / "logs"),
        "linux": {"security_context": {"namespace_options": {"network": 2}}},
    }
    shared = {
        "metadata": {"name": "main"},
        "image": {"image": images.WORKLOAD},
        "command": ["sh", "-c", SCRIPT],
        "log_path": "main.log",
        "linux": {},
    }
    pod_file.write_text(json.dumps(pod))
    container_file.write_text(json.dumps(shared | container))
    sandbox = containerd.crictl("runp", str(pod_file)).strip()
    try:
        started = containerd.crictl("create", sandbox, str(container_file), str(pod_file)).strip()
        containerd.crictl("start", started)
        until = time.monotonic() + 30
        while "CONTAINER_EXITED" not in containerd.crictl("inspect", started) and time.monotonic() < until:
            time.sleep(0.05)
        lines = (at / "logs" / "main.log").read_text().splitlines()
        return [line.split(" ", 3)[3] for line in lines]
    finally:
        containerd.crictl("stopp", sandbox, check=False)
        containerd.crictl("rmp", "-f", sandbox, check=False)


def test_the_cri_field_that_a_kubelet_fills(containerd: RealCluster, device: Device, tmp_path: Path) -> None:
    assert in_a_pod(containerd, tmp_path, {"CDI_devices": [{"name": device.name}]}) == SEEN


def test_the_annotations_that_older_kubelets_wrote(containerd: RealCluster, device: Device, tmp_path: Path) -> None:
    from drakkar.injection.annotations import annotate

    annotations = annotate({}, "drakkar.test", "claim-1", [device.name])
    assert in_a_pod(containerd, tmp_path, {"annotations": annotations}) == SEEN


def test_a_name_that_does_not_resolve_is_refused(containerd: RealCluster, device: Device, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"unresolvable CDI devices drakkar.test/gpu=9"):
        in_a_pod(containerd, tmp_path, {"CDI_devices": [{"name": "drakkar.test/gpu=9"}]})
