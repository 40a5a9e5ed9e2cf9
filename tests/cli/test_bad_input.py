"""Bad input of any kind: one clear sentence, a failing exit status, and everything else goes on."""

import errno
import os
import socket
import ssl
import subprocess
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import pytest

from drakkar.cluster.places import remove_tree
from tests.cli.conftest import World

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec: {containers: [{name: c, image: x%s}]}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com%s}}]}}
"""


def complains(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    """Failed, said so in one sentence that has `texts`, and without a traceback."""
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    first = done.stderr.strip().splitlines()[-1] if "drakkar:" not in done.stderr else done.stderr
    for text in texts:
        assert text in first + done.stderr, done.stderr


def test_unknown_node_model(world: World) -> None:
    complains(world.drakkar("up", "--node", "dgx-h10"), "unknown node model 'dgx-h10'", "did you mean 'dgx-h100'", "t4")


@pytest.mark.parametrize("word", ["dgx-h100:0", "dgx-h100:x", "dgx-h100:", "dgx-h100:-1", "dgx-h100:99999"])
def test_bad_node_count(world: World, word: str) -> None:
    complains(world.drakkar("up", "--node", word), "is no number of nodes")


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "..", "x" * 40, "-a"])
def test_bad_name(world: World, name: str) -> None:
    complains(world.drakkar("up", f"--name={name}"), "cannot be the name of a cluster")


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_port_in_use(world: World, detach: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        complains(world.drakkar("up", "--port", taken.getsockname()[1], *detach), "in use", "--port")


def test_second_up_of_the_same_name(running: World) -> None:
    complains(running.drakkar("up"), "a cluster named 'default' is running already", "drakkar down")
    running.kubectl("get", "nodes")


def test_data_that_is_a_file(world: World) -> None:
    file = world.folder / "file"
    file.touch()
    complains(
        world.drakkar("up", "--data", file),
        "the data folder cannot be used",
    )


def test_unreadable_data(world: World) -> None:
    if os.geteuid() == 0:
        complains(world.drakkar("up", "--data", "/proc/nowhere"), "the data folder cannot be used")
        return
    folder = world.folder / "data"
    folder.mkdir(mode=0)
    complains(world.drakkar("up", "--data", folder), "the data folder cannot be used")


def test_damaged_data(world: World) -> None:
    data = world.folder / "data"
    world.up("--data", data)
    assert world.drakkar("down").returncode == 0
    files = [file for file in (data / "store").iterdir() if file.suffix not in ("-wal", "-shm") and file.stat().st_size]
    for file in files:
        file.write_bytes(b"not a database at all" * 500)
    kept = {file: file.read_bytes() for file in files}
    complains(world.drakkar("up", "--data", data), str(data))
    assert {file: file.read_bytes() for file in files} == kept, "damaged data must be left as it is"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("pki/server.key", "certificate and key cannot be used"),
        ("kubeconfig", "the cluster cannot use its files"),
        ("nodes", "the cluster cannot use its files"),
        ("runtime", "the cluster cannot use its files"),
    ],
)
def test_data_with_something_else_in_a_place(world: World, place: str, text: str) -> None:
    data = world.folder / "data"
    world.up("--data", data, "--node", "t4", "--runtime", "process")
    assert world.drakkar("down").returncode == 0
    spot = data / place
    if spot.is_dir():
        remove_tree(spot)
        spot.touch()
    elif place == "kubeconfig":
        spot.unlink()
        spot.mkdir()
    else:
        spot.write_bytes(b"nonsense")
    for detach in ((), ("--detach",)):
        complains(world.drakkar("up", "--data", data, *detach), text, str(data))


@pytest.mark.parametrize("kept", [b"two words", b"two\nlines", b"\xff\xfe" * 20, b""])
def test_a_token_that_cannot_be_one_is_replaced(world: World, kept: bytes) -> None:
    data = world.folder / "data"
    data.mkdir()
    (data / "admin.token").write_bytes(kept)
    world.up("--data", data)
    world.kubectl("get", "namespaces")


def test_a_full_disk_is_no_damage(tmp_path: Path) -> None:
    from drakkar.cluster.store.disk import Disk
    from drakkar.cluster.store.log import Log, LogError

    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        mock.patch.object(Disk, "allocate", side_effect=full),
        pytest.raises(LogError, match="cannot be used") as raised,
    ):
        Log(tmp_path)
    assert raised.value.reason == "LogUnusable"
    assert list(tmp_path.glob("0*")) == []


@pytest.mark.parametrize(
    ("option", "text"), [("--data=", "the path is empty"), ("--image-layout=", "the path is empty")]
)
def test_an_empty_path_is_not_the_present_folder(world: World, option: str, text: str) -> None:
    complains(world.drakkar("up", option), text)


def test_an_image_layout_that_is_none(world: World) -> None:
    complains(world.drakkar("up", "--image-layout", "/nowhere"), "there is no OCI image layout", "/nowhere")


def test_missing_runc(world: World) -> None:
    complains(world.drakkar("up", "--runtime", "runc", PATH="/nowhere"), "runc")


def test_down_and_status_without_a_cluster(world: World) -> None:
    complains(world.drakkar("down"), "no cluster named 'default' is running")
    complains(world.drakkar("status", "--name", "x"), "no cluster named 'x' is running")
    assert "no embedded cluster is running" in world.drakkar("status").stdout


def test_unknown_command_and_option(world: World) -> None:
    complains(world.drakkar("statsu"), "no such command 'statsu'", "Did you mean 'status'")
    complains(world.drakkar("up", "--nodes", "x"), "No such option")


def test_faults_that_make_no_sense(running: World) -> None:
    complains(running.drakkar("fault", "explosion", "dgx-h100-0"), "unknown fault 'explosion'", "gpu-lost")
    complains(running.drakkar("fault", "gpu-lost"), "needs the node and --gpu")
    complains(running.drakkar("fault", "gpu-lost", "nowhere", "--gpu", "0"), "there is no node 'nowhere'", "dgx-h100-0")
    complains(running.drakkar("fault", "gpu-lost", "dgx-h100-0", "--gpu", "8"), "has no GPU 8", "0 to 7")


@pytest.mark.parametrize(
    "line",
    [b"", b"x\n", b"[]\n", b"{}\n", b"[" * 100_000 + b"\n", b'{"op": "fault", "fault": "xid", "arguments": [1]}\n'],
)
def test_garbage_on_the_control_socket(running: World, line: bytes) -> None:
    import json

    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(10)
        control.connect(str(running.folder / "run/default/control.sock"))
        control.sendall(line)
        control.shutdown(socket.SHUT_WR)
        assert json.loads(control.recv(65536))["error"]["reason"] == "BadRequest"


def test_a_folder_that_is_too_deep_for_sockets(world: World) -> None:
    complains(world.drakkar("up", DRAKKAR_RUNTIME_DIR=str(world.folder / ("x" * 100))), "is too long for a unix socket")


def test_explain_of_what_is_not_there(running: World) -> None:
    complains(running.drakkar("explain", "pod/nobody"), "nobody")
    complains(running.drakkar("explain", "spaceship/x"), "spaceship")


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (POD % ", colour: red", 'unknown field "spec.containers[0].colour"'),
        (POD % ", command: 7", "command"),
        (CLAIM % ", count: lots", "count"),
        (CLAIM % ", selectors: [{cel: {expression: 'device.attributes['}}]", "Syntax error"),
        (CLAIM % ", selectors: [{cel: {expression: 'device.nothing'}}]", "undefined field 'nothing'"),
        (CLAIM % ", selectors: [{cel: {expression: '1 + 1'}}]", "must evaluate to bool"),
        ("kind: Pod\napiVersion: v1\nmetadata: [1, 2]\n", ""),
        ("kind: Nonsense\napiVersion: example.com/v1\nmetadata: {name: x}\n", "no matches for kind"),
    ],
)
def test_manifests(running: World, manifest: str, text: str) -> None:
    complains(running.kubectl("create", "-f", "-", stdin=manifest, check=False), text)


def test_an_object_of_two_megabytes(running: World) -> None:
    manifest = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: big}}\ndata: {{a: {'x' * 2_000_000}}}\n"
    complains(running.kubectl("create", "-f", "-", stdin=manifest, check=False), "Too long")
    running.kubectl("get", "nodes")


@pytest.mark.parametrize("tls", [False, True])
def test_garbage_on_the_api_port(running: World, tls: bool) -> None:
    import yaml

    config = yaml.safe_load(Path(running.environment["KUBECONFIG"]).read_text())
    where = urlsplit(config["clusters"][0]["cluster"]["server"])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for garbage in (
        b"\x00\xff" * 2000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"a" * 200_000,
        b"\r\n" * 100,
        b"POST /api HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ):
        with socket.create_connection((where.hostname, where.port), timeout=5) as plain:
            connection = context.wrap_socket(plain) if tls else plain
            try:
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)
            except OSError:
                pass
    assert "Ready" in running.kubectl("get", "nodes").stdout


def test_a_wrong_token(running: World, tmp_path: Path) -> None:
    import yaml

    config = yaml.safe_load(Path(running.environment["KUBECONFIG"]).read_text())
    config["users"][0]["user"]["token"] = "wrong"
    file = tmp_path / "config"
    file.write_text(yaml.dump(config))
    complains(running.drakkar("explain", "pod/x", "--kubeconfig", file), "Unauthorized")
    complains(running.drakkar("explain", "pod/x", "--kubeconfig", tmp_path / "none"), "does not exist")


def test_errors_as_json(world: World) -> None:
    import json

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = world.drakkar("up", "--detach", "--port", taken.getsockname()[1], "--output", "json")
        assert json.loads(done.stderr.strip().splitlines()[-1])["error"]["reason"] == "PortInUse"
    done = world.drakkar("up", "--node", "nonsense", "--output", "json")
    assert json.loads(done.stderr)["error"]["reason"] == "UnknownModel"
