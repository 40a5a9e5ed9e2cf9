"""The image without an engine: what it copies exists, what it takes is pinned, what the driver imports is in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
REQUIREMENTS = (ROOT / "container" / "requirements.txt").read_text()


def instructions(word: str) -> list[str]:
    return [line.removeprefix(word).strip() for line in TEXT.splitlines() if line.startswith(word + " ")]


def test_every_source_of_a_copy_exists_and_is_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]
    sources = [
        source for line in instructions("COPY") if not line.startswith("--from=") for source in line.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(source == one or source.startswith(f"{one}/") for one in kept), source
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()


def test_what_is_copied_from_a_stage_was_made_there() -> None:
    stages = {line.split()[2] for line in instructions("FROM") if len(line.split()) == 3}
    for line in instructions("COPY"):
        if line.startswith("--from="):
            stage, source = re.match(r"--from=(\w+) (\S+)", line).groups()  # type: ignore[union-attr]
            assert stage in stages
            assert source in TEXT


def test_every_base_is_pinned_by_digest() -> None:
    arguments = dict(line.split("=", 1) for line in instructions("ARG"))
    bases = [line.split()[0] for line in instructions("FROM")]
    assert len(bases) == 3
    for base in bases:
        resolved = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], base)
        assert re.fullmatch(r"[a-z/.-]+:\d+\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", resolved)


def test_the_paths_of_the_base_fit_its_python() -> None:
    version = re.search(r"BASE=python:(\d+\.\d+)\.", TEXT)
    assert version
    assert set(re.findall(r"lib/python(\d+\.\d+)", TEXT)) == {version[1]}


def pinned(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.MULTILINE))


def test_every_package_is_pinned_by_hash_to_what_is_tested() -> None:
    tested = pinned((ROOT / "requirements.lock").read_text())
    entries = re.split(r"^(?=[a-z0-9-]+==)", REQUIREMENTS, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pinned(REQUIREMENTS))
    for entry in entries:
        name, version = re.match(r"([a-z0-9-]+)==([^\s;]+)", entry).groups()  # type: ignore[union-attr]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name
        assert tested[name] == version, f"{name}: the image has {version}, tests run with {tested[name]}"


_BLOCKER = """
import sys
from importlib.metadata import packages_distributions
allowed = set({allowed!r})
owners = packages_distributions()
class Block:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        names = {{one.lower().replace("_", "-") for one in owners.get(top, ())}}
        if names and not names & allowed:
            raise ModuleNotFoundError(f"{{top}} is not in the image", name=top)
sys.meta_path.insert(0, Block())
"""

_NODE = """
import drakkar.cli.root, drakkar.cli.driver, drakkar.drivers.gpu.process, drakkar.preparation.services
import drakkar.kube.https, drakkar.drivers.kit.endpoint, hpack, yaml
from drakkar.cli.driver import command
command.commands["gpu"].main(["--help"], standalone_mode=False)
"""


def test_the_driver_imports_nothing_that_the_image_lacks() -> None:
    program = _BLOCKER.format(allowed={*pinned(REQUIREMENTS), "drakkar"}) + _NODE
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_block_of_imports_blocks() -> None:
    program = _BLOCKER.format(allowed={"drakkar"}) + "import aiohttp"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "aiohttp is not in the image" in done.stderr


def test_a_driver_serves_with_what_the_image_has() -> None:
    """Not imports alone: a driver with a machine comes as far as asking for a cluster."""
    with tempfile.TemporaryDirectory(prefix="dk") as folder:  # a short path: sockets lie in it
        _serve(Path(folder))


def _serve(tmp_path: Path) -> None:
    program = _BLOCKER.format(allowed={*pinned(REQUIREMENTS), "drakkar"}) + (
        "sys.argv[:1] = ['drakkar', 'driver', 'gpu', '--machine=t4', '--node-name=n', '--http-address=127.0.0.1:0']\n"
        "from drakkar.cli import main\nmain()"
    )
    folders = [f"--{name}={tmp_path}/{name}" for name in ("plugins-dir", "registry-dir", "cdi-dir", "machine-dir")]
    config = tmp_path / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "current-context": "c",
            }
        )
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, f"--kubeconfig={config}", *folders],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        socket = tmp_path / "registry-dir" / "gpu.nvidia.com-reg.sock"
        for _ in range(400):
            if socket.exists() or process.poll() is not None:
                break
            _pause()
        assert socket.exists(), process.stderr.read() if process.poll() is not None and process.stderr else "no socket"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _pause() -> None:
    subprocess.run(["sleep", "0.05"], check=True)


def test_the_bill_of_materials_lists_what_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "container" / "sbom.py"], capture_output=True, text=True, timeout=60, check=True
    )
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "drakkar"
    found = {one["name"].lower().replace("_", "-") for one in bill["components"]}
    assert set(pinned(REQUIREMENTS)) <= found
    assert all(one["purl"].startswith("pkg:") for one in bill["components"])


def test_no_host_of_a_registry_is_named() -> None:
    assert not re.search(r"\b(docker\.io|ghcr\.io|quay\.io|registry\.)", TEXT)
