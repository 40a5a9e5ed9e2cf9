"""What we publish, against recordings of NVIDIA's own driver (cases/slices)."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drakkar.api.validation import validate_create
from drakkar.hardware.pci import sysfs_address
from drakkar.inventory.devices import semantic_version
from drakkar.inventory.slices import slice_contents, slice_spec
from drakkar.vendors.nvidia import models
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine
from drakkar.vendors.nvidia.published import PublishOptions, Shares, published_pool
from drakkar.vendors.nvidia.simulated import build_machine
from tests.vendors import nvml

CASES = Path(__file__).parents[2] / "cases" / "slices"

#: Recording to GPU model and the gates that were on.
MACHINES: dict[str, tuple[str, PublishOptions]] = {
    "a100": ("a100-sxm4-40gb", PublishOptions()),
    "gb200": ("gb200", PublishOptions()),
    "h100": ("h100-sxm5-80gb", PublishOptions()),
    "l40s": ("l40s", PublishOptions()),
    "h100-shares-4": ("h100-sxm5-80gb", PublishOptions(shares=4)),
    "h100-shares-memory": ("h100-sxm5-80gb", PublishOptions(shares="memory")),
}


def recorded(name: str) -> list[dict[str, Any]]:
    return json.loads((CASES / f"{name}.json").read_text())["items"]


def gpu_of(device: dict[str, Any], model: str) -> Gpu:
    """The hardware as that mock NVML showed it: what it says is taken over, what it is silent about is absent."""
    attributes = device["attributes"]
    mebibytes = int(device["capacity"]["memory"]["value"].removesuffix("Gi")) * 1024
    minor = int(device["name"].removeprefix("gpu-"))
    return Gpu(
        uuid=attributes["uuid"]["string"],
        model=models.gpu_model(model).productName,
        bus_id=sysfs_address(attributes["resource.kubernetes.io/pciBusID"]["string"]) or "",
        pcie_root=None,
        numa_node=None,
        nodes=(),
        index=minor,
        minor=minor,
        product=msgspec.structs.replace(models.gpu_model(model), memoryMiB=mebibytes),
        driver_version=attributes["driverVersion"]["version"],
        cuda_version=attributes["cudaDriverVersion"]["version"],
        serial="",
        vbios="",
        module_id=0,
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json") if path.stem != "h100-dynmig"))
def test_slices_equal_the_recorded_ones_save_for_their_order(name: str) -> None:
    model, options = MACHINES[name]
    (item,) = recorded(name)
    theirs = item["spec"]
    theirs["devices"].sort(key=lambda device: device["name"])
    gpus = [gpu_of(device, model) for device in theirs["devices"]]
    pool = published_pool(gpus, "node1", options)
    (content,) = slice_contents(pool)
    assert slice_spec(pool, content, generation=1, count=1) == theirs


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_machine_under_nvml_publishes_the_recorded_slices(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, options = MACHINES[name]
    theirs = recorded(name)[0]["spec"]
    theirs["devices"].sort(
        key=lambda device: device["name"]
    )  # NVML counts by bus address, that driver published at random
    (tmp_path / "machine.txt").write_text(nvml.recorded_file(theirs["devices"]))
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / "machine.txt"))
    nvml.install(tmp_path, "550.163.01")
    machine = NvmlMachine("node1", tmp_path, system_root=tmp_path, device_root=tmp_path)
    assert machine.poll() is False
    pool = published_pool(machine.devices(), "node1", options)
    machine.close()
    (content,) = slice_contents(pool)
    assert slice_spec(pool, content, generation=1, count=1) == theirs


def test_the_version_formats_of_the_recordings_are_ours() -> None:
    attributes = recorded("h100")[0]["spec"]["devices"][0]["attributes"]
    assert semantic_version("550.163.01") == attributes["driverVersion"]["version"]
    assert semantic_version("12.4") == attributes["cudaDriverVersion"]["version"]


def test_dynamic_mig_has_the_recorded_number_and_order_of_slices() -> None:
    items = sorted(recorded("h100-dynmig"), key=lambda item: item["metadata"]["name"])
    gpus = [gpu_of(item["spec"]["devices"][0], "h100-sxm5-80gb") for item in items[1:]]
    contents = slice_contents(published_pool(gpus, "node1", PublishOptions(dynamic_mig=True)))
    assert len(contents) == len(items)
    assert "devices" not in items[0]["spec"] and "sharedCounters" in contents[0]
    for item, content in zip(items[1:], contents[1:], strict=True):
        whole = next(device for device in content["devices"] if device["name"] == item["spec"]["devices"][0]["name"])
        assert whole["attributes"] == item["spec"]["devices"][0]["attributes"]
        assert item["metadata"]["name"].startswith(f"{contents.index(content):05d}-gpu.nvidia.com-node1-")


@pytest.mark.parametrize("shares", ["unlimited", "memory", 4])
def test_shares_need_the_multiple_allocations_flag(shares: Shares) -> None:
    device = recorded("h100-shares-4")[0]["spec"]["devices"][0]
    pool = published_pool([gpu_of(device, "h100-sxm5-80gb")], "node1", PublishOptions(shares=shares))
    published = pool.devices[0].to_json()
    assert published["allowMultipleAllocations"] is True
    assert published["capacity"]["memory"]["requestPolicy"]["validRange"]["step"] == "1Mi"
    assert ("shares" in published["capacity"]) is (shares == 4)


@pytest.mark.parametrize("model", models.model_names())
@pytest.mark.parametrize(
    "options",
    [
        PublishOptions(),
        PublishOptions(dynamic_mig=True),
        PublishOptions(dynamic_mig=True, shares=1000),
        PublishOptions(shares=4),
        PublishOptions(shares="memory", extras=True),
        PublishOptions(list_attributes=True),
    ],
    ids=["whole", "dynamic-mig", "dynamic-shares", "shares", "memory", "lists"],
)
def test_slices_of_every_model_pass_the_checks_of_the_api(tmp_path: Path, model: str, options: PublishOptions) -> None:
    machine = build_machine(model, "node1", tmp_path / "machine")
    board = machine.gpus()[0].mig_board
    if board is not None and not options.dynamic_mig:
        machine.create_mig(0, board.profiles[0].name)
        if len(machine.gpus()) > 1:
            machine.create_mig(1, max(board.profiles, key=lambda profile: profile.size).name)
    machine.log_xid(0, 48)
    pool = published_pool(machine.devices(), "node1", options)
    contents = slice_contents(pool)
    for content in contents:
        spec = slice_spec(pool, content, generation=1, count=len(contents))
        obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
        assert validate_create(obj) == []
