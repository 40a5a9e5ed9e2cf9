"""This host's GPUs as we see them, against what NVIDIA's own tools say of them."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drakkar.api.validation import validate_create
from drakkar.hardware.pci import sysfs_address
from drakkar.injection.cache import CdiCache
from drakkar.injection.model import plain
from drakkar.injection.spec import CdiSpec
from drakkar.inventory.slices import slice_contents, slice_spec
from drakkar.vendors.nvidia.cdi.generate import GenerateOptions, generate
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine
from drakkar.vendors.nvidia.published import PublishOptions, published_pool
from tests.conftest import missing

pytestmark = pytest.mark.gpu
PROGRAM = [sys.executable, "-c", "from drakkar.cli import main; main()"]


def tool(name: str, *arguments: str) -> str:
    """What one of NVIDIA's programs prints."""
    if shutil.which(name) is None:
        missing("gpu", f"needs {name} on the PATH")
    return subprocess.run([name, *arguments], capture_output=True, text=True, check=True).stdout


def test_gpus_are_those_of_nvidia_smi(machine: NvmlMachine) -> None:
    fields = "index,uuid,name,pci.bus_id,memory.total,compute_cap,vbios_version,serial,driver_version"
    rows = list(csv.reader(tool("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits").splitlines()))
    ours = [
        [
            str(gpu.index), gpu.uuid, gpu.model, gpu.bus_id, str(gpu.product.memoryMiB), gpu.product.computeCapability,
            gpu.vbios, gpu.serial or "[N/A]", gpu.driver_version,
        ]
        for gpu in machine.devices()
    ]  # fmt: skip
    theirs = [[cell.strip() for cell in row] for row in rows]
    for row in theirs:
        row[3] = sysfs_address(row[3]) or row[3]
    assert ours == theirs


def test_mig_devices_are_those_of_nvidia_smi(machine: NvmlMachine) -> None:
    listed = re.findall(r"^  MIG (\S+)\s+Device\s+(\d+): \(UUID: (\S+)\)$", tool("nvidia-smi", "-L"), re.MULTILINE)
    ours = [(one.profile.name, str(one.index), one.uuid) for gpu in machine.devices() for one in gpu.mig_instances]
    assert ours == listed


def test_profiles_and_placements_are_those_of_nvidia_smi(machine: NvmlMachine) -> None:
    for gpu in machine.devices():
        board = gpu.mig_board
        if board is None or not gpu.mig_enabled:
            continue
        text = tool("nvidia-smi", "mig", "-lgip", "-i", str(gpu.index))
        listed = set(re.findall(r"MIG (\S+)\s+(\d+)\s+\d+/(\d+)", text))
        assert {(one.name, str(one.id), str(one.max)) for one in board.profiles} == listed


def test_nodes_have_the_numbers_of_this_host(machine: NvmlMachine) -> None:
    nodes = [*machine.control_nodes(), *(node for gpu in machine.devices() for node in gpu.nodes)]
    assert nodes
    for node in nodes:
        status = os.lstat(machine.device_root / node.path.lstrip("/"))
        assert stat.S_ISCHR(status.st_mode)
        assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (node.major, node.minor)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_slices_are_valid(machine: NvmlMachine, dynamic: bool) -> None:
    pool = published_pool(machine.devices(), "this-host", PublishOptions(dynamic_mig=dynamic))
    contents = slice_contents(pool)
    for number, content in enumerate(contents):
        spec = slice_spec(pool, content, generation=1, count=len(contents))
        obj = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"this-host-{number}"},
            "spec": spec,
        }
        assert validate_create(obj) == []


def test_looking_again_is_cheap_and_finds_nothing(machine: NvmlMachine) -> None:
    machine.poll()
    start = time.perf_counter()
    assert machine.poll() is False
    assert time.perf_counter() - start < 0.25


def test_the_specification_resolves_and_all_its_files_exist(machine: NvmlMachine, tmp_path: Path) -> None:
    spec = generate(GenerateOptions(driver_root=str(machine.driver_root))).spec
    (tmp_path / "nvidia.json").write_text(json.dumps(plain(spec)))
    CdiSpec.load(tmp_path / "nvidia.json", profile="strict")
    edits = [spec.container_edits, *(device.container_edits for device in spec.devices)]
    assert all(Path(mount.host_path).exists() for one in edits for mount in one.mounts)
    name = (
        f"nvidia.com/gpu={machine.devices()[0].uuid}" if not machine.devices()[0].mig_enabled else "nvidia.com/gpu=all"
    )
    assert CdiCache([tmp_path]).inject({"ociVersion": "1.0.0"}, [name])["linux"]["devices"]


def test_the_specification_is_what_nvidias_generator_makes(machine: NvmlMachine) -> None:
    import yaml

    theirs: dict[str, Any] = yaml.safe_load(
        tool("nvidia-ctk", "cdi", "generate", f"--driver-root={machine.driver_root}")
    )
    hook = shutil.which("nvidia-cdi-hook")
    words = [*PROGRAM, "cdi", "generate", f"--driver-root={machine.driver_root}"]
    words += [f"--nvidia-cdi-hook-path={hook}"] if hook else []
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert yaml.safe_load(done.stdout) == theirs


@pytest.mark.root
def test_a_container_sees_its_gpu_and_no_other(machine: NvmlMachine, tmp_path: Path) -> None:
    whole = [gpu for gpu in machine.devices() if not gpu.mig_enabled]
    if not whole:
        missing("gpu", "needs a GPU that is not in MIG mode")
    made = [*PROGRAM, "cdi", "generate", f"--driver-root={machine.driver_root}", f"--output={tmp_path}/nvidia.yaml"]
    made += [] if shutil.which("nvidia-cdi-hook") else ["--disable-hook=all"]  # the container's files are the host's
    subprocess.run(made, check=True)
    device = f"nvidia.com/gpu={whole[-1].uuid}"
    command = [*PROGRAM, "cdi", "run", "--spec-dir", str(tmp_path), "--device", device]
    done = subprocess.run([*command, "--", "nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"UUID: (GPU-[0-9a-f-]+)", done.stdout) == [whole[-1].uuid]


def test_a_mig_device_can_be_made_where_it_is_wanted(machine: NvmlMachine) -> None:
    gpus = [gpu for gpu in machine.devices() if gpu.mig_board is not None and not gpu.mig_instances]
    if os.environ.get("DRAKKAR_GPU_CHANGE") != "1" or not gpus:
        missing("gpu-change", "needs an idle GPU that can do MIG, and DRAKKAR_GPU_CHANGE=1: it is partitioned")
    gpu = gpus[0]
    profile = min(gpu.mig_board.profiles, key=lambda one: one.memoryMiB)  # type: ignore[union-attr]
    was_on = gpu.mig_enabled
    made = machine.create_mig(gpu.index, profile.name, profile.starts[-1])
    try:
        assert (made.profile.name, made.start) == (profile.name, profile.starts[-1])
        assert all((machine.device_root / node.path.lstrip("/")).exists() for node in made.nodes)
    finally:
        machine.destroy_mig(gpu.index, made.gpu_instance)
        machine.set_mig_mode(gpu.index, was_on)
