"""NVML by ctypes, on a small C library that serves the machines of our tables (tests/vendors/nvml)."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drakkar.errors import DrakkarError
from drakkar.inventory.slices import slice_contents
from drakkar.vendors.nvidia import nvml_machine
from drakkar.vendors.nvidia.cdi.devices import everything
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.nvml import NvmlError, find_library, structs
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine
from drakkar.vendors.nvidia.published import PublishOptions, published_pool
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine
from drakkar.vendors.nvidia.xid_history import XidFile, XidRecord
from tests.vendors import nvml as mock

OPTIONS = [PublishOptions(), PublishOptions(dynamic_mig=True), PublishOptions(extras=True, list_attributes=True)]


class Host:
    """A simulated machine's tree with a library in it that serves the same hardware through NVML."""

    def __init__(self, folder: Path, model: str, *mig: tuple[int, str]) -> None:
        self.simulated: SimulatedMachine = build_machine(model, "node-a", folder / "machine")
        for index, profile in mig:
            self.simulated.create_mig(index, profile)
        self.root = self.simulated.driver_root
        self.file = folder / "machine.txt"
        self.serve()

    def serve(self, *more: str, old: bool = False) -> None:
        mock.install(self.root, self.simulated.driver_version, self.simulated.architecture, old=old)
        self.file.write_text(mock.machine_file(self.simulated) + "".join(f"{line}\n" for line in more))

    def say(self, line: str) -> None:
        with self.file.open("a") as file:
            file.write(f"{line}\n")

    def open(self) -> NvmlMachine:
        machine = NvmlMachine("node-a", self.root)
        self.opened = machine
        return machine


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Host] = []

    def build(model: str, *mig: tuple[int, str]) -> Host:
        made.append(Host(tmp_path, model, *mig))
        monkeypatch.setenv(mock.VARIABLE, os.fspath(made[-1].file))
        return made[-1]

    yield build
    for one in made:
        if hasattr(one, "opened"):
            one.opened.close()


MACHINES: list[tuple[str, list[tuple[int, str]]]] = [
    ("dgx-h100", []),
    ("dgx-h100", [(1, "3g.40gb"), (1, "1g.10gb"), (1, "1g.20gb"), (7, "7g.80gb")]),
    ("a100-40gb", [(0, "3g.20gb"), (0, "2g.10gb")]),
    ("t4", []),
    ("gb200-tray", []),
    ("l40s", []),
    ("rtx-pro-6000", [(2, "1g.24gb")]),
]


@pytest.mark.parametrize(("model", "partitions"), MACHINES, ids=lambda value: value if isinstance(value, str) else None)
def test_the_slices_are_those_of_the_simulated_machine(host: Any, model: str, partitions: list[Any]) -> None:
    one = host(model, *partitions)
    machine = one.open()
    assert machine.faults() == []
    for options in OPTIONS:
        theirs = slice_contents(published_pool(one.simulated.devices(), "node-a", options))
        assert slice_contents(published_pool(machine.devices(), "node-a", options)) == theirs
    assert machine.control_nodes() == one.simulated.control_nodes()
    for seen, simulated in zip(machine.devices(), one.simulated.devices(), strict=True):
        for field in dataclasses.fields(Gpu):
            if field.name not in ("product", "mig_instances"):  # the driver's own MIG table, compared above
                assert getattr(seen, field.name) == getattr(simulated, field.name), field.name
        assert [i.nodes for i in seen.mig_instances] == [i.nodes for i in simulated.mig_instances]
        assert [i.uuid for i in seen.mig_instances] == [i.uuid for i in simulated.mig_instances]


def test_a_library_of_2021_gives_the_same_mig_devices_with_less_about_the_gpu(host: Any) -> None:
    one = host("a100-40gb", (0, "3g.20gb"))
    one.serve(old=True)
    (first, *_) = devices = one.open().devices()
    assert [i.profile.name for i in first.mig_instances] == ["3g.20gb"]
    assert (first.addressing_mode, first.module_id, first.product.architecture) == (None, 0, "Ampere")
    names = {d.name for d in published_pool(devices, "node-a", PublishOptions(dynamic_mig=True)).devices}
    simulated = published_pool(one.simulated.devices(), "node-a", PublishOptions(dynamic_mig=True))
    assert names == {d.name for d in simulated.devices}


#: Every call but those that say which GPUs there are (count, handle, UUID) and what version the driver has.
OPTIONAL = [
    "nvmlDeviceGetBrand", "nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetModuleId",
    "nvmlDeviceGetArchitecture", "nvmlDeviceGetAddressingMode", "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMemoryInfo", "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2",
    "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetName", "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlGpuInstanceGetInfo",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetVirtualizationMode",
]  # fmt: skip


@pytest.mark.parametrize("code", [3, 13, 999])
def test_no_call_is_needed_for_a_gpu_to_be_published(host: Any, code: int) -> None:
    one = host("dgx-h100", (1, "3g.40gb"))
    for function in OPTIONAL:
        one.serve(f"answer\t{function}\t{code}")
        machine = one.open()
        machine.poll()
        assert [gpu.uuid for gpu in machine.devices()] == [gpu.uuid for gpu in one.simulated.devices()], function
        assert [gpu.minor for gpu in machine.devices()] == list(range(8)), function
        assert machine.devices()[0].bus_id == "0000:1b:00.0", function
        assert machine.devices()[0].product.memoryMiB == 81559, function
        slice_contents(published_pool(machine.devices(), "node-a", PublishOptions()))
        machine.close()


def test_what_others_do_is_found_by_a_poll(host: Any) -> None:
    one = host("dgx-h100")
    machine = one.open()
    assert machine.poll() is False
    heard: list[str] = []
    machine.subscribe(lambda event: heard.append(f"{event.kind} {event.fault.code if event.fault else ''}"))
    before = machine.generation
    one.say("mode\t3\t1")
    one.say("instance\t3\t2\t0\t9\t4\t4\tMIG-11111111-0000-5000-8000-000000000000")
    assert machine.poll() is True
    (made,) = machine.devices()[3].mig_instances
    assert (made.profile.name, made.start, made.gpu_instance) == ("3g.40gb", 4, 2)
    one.say("xid\t2\t48")
    one.say("lost\t5\t1")
    assert machine.poll() is True
    assert [(fault.kind, fault.code) for fault in machine.faults()] == [("xid", 48), ("lost", 79)]
    assert len(machine.devices()) == 8
    one.say("lost\t5\t0")
    assert machine.poll() is True
    assert machine.generation == before + 3
    assert heard == ["changed ", "fault 48", "fault 79", "changed "]


def test_an_xid_is_forgotten_when_the_gpu_needs_no_reset_any_more(host: Any) -> None:
    one = host("t4")
    machine = one.open()
    one.say("xid\t0\t48")
    for _ in range(3):
        machine.poll()
        assert machine.devices()[0].xids == (48,)  # nothing said that it needed one
    one.say("recovery\t0\t1")
    machine.poll()
    assert machine.devices()[0].xids == (48,)
    one.say("recovery\t0\t0")
    assert machine.poll() is True
    assert (machine.devices()[0].xids, machine.faults()) == ((), [])


def test_an_xid_is_known_to_the_next_process_until_the_gpu_has_recovered(host: Any, tmp_path: Path) -> None:
    one = host("t4")
    first = one.open()
    one.say("xid\t0\t48")
    one.say("recovery\t0\t1")
    first.poll()
    first.poll()
    kept = XidFile(tmp_path / "state" / "xids.json", "boot")
    kept.write(first.driver_version, first.xid_history())
    first.close()
    second = one.open()
    uuid = second.devices()[0].uuid
    assert second.devices()[0].xids == ()  # NVML tells it once
    second.recall_xids(XidFile(tmp_path / "state" / "xids.json", "boot").read(second.driver_version))
    assert second.devices()[0].xids == (48,)
    assert second.xid_history() == {uuid: XidRecord((48,), True)}
    one.say("recovery\t0\t0")
    second.poll()
    assert (second.devices()[0].xids, second.xid_history()) == ((), {})
    kept.write(second.driver_version, second.xid_history())
    assert kept.read(second.driver_version) == {}


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{", "{}", '{"boot": "another", "driver": "1", "gpus": {"GPU-1": {"xids": [48]}}}',
        '{"boot": "boot", "driver": "2", "gpus": {}}', '{"boot": "boot", "driver": "1", "gpus": {"GPU-1": 7}}',
        '{"boot": "boot", "driver": "1", "gpus": {"GPU-1": {"xids": ["x"], "needsRecovery": false}}}', "[" * 100_000,
    ],
)  # fmt: skip
def test_a_history_of_another_time_or_a_damaged_one_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "xids.json").write_text(content)
    assert XidFile(tmp_path / "xids.json", "boot").read("1") == {}


def test_memory_limits_need_driver_library_control_groups_and_a_hook_program(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRAKKAR_HOOK_DIR", raising=False)
    one = host("t4")
    groups = one.root / "sys/fs/cgroup"
    assert "driver 580.95.05 has no memory limits: branch R615" in one.open().why_no_memory_limits()
    one.opened.close()
    one.simulated.load_driver("615.43.02", "13.3")
    one.serve()
    (groups / "memory").mkdir(parents=True)
    assert "version 1" in one.open().why_no_memory_limits()
    (groups / "cgroup.controllers").write_text("memory\n")
    assert one.opened.why_no_memory_limits() == ""
    hook = one.opened.memory_limit_hook("GPU-1", 1024)
    assert hook["args"][-6:] == ["--driver-root", str(one.root), "--gpu-id", "GPU-1", "--limit", "1024"]
    one.opened.close()
    monkeypatch.setenv("DRAKKAR_HOOK_DIR", str(tmp_path / "hooks"))  # an image without the static program
    assert "no hook program" in one.open().why_no_memory_limits()
    one.opened.close()
    monkeypatch.delenv("DRAKKAR_HOOK_DIR")
    one.serve(old=True)
    assert "nvmlDeviceSetMemoryLimits_v1" in one.open().why_no_memory_limits()


@pytest.mark.parametrize(
    ("said", "health"),
    [("", "healthy"), ("xid\t0\t48", "unhealthy"), ("xid\t0\t31", "healthy"), ("lost\t0\t1", "lost")],
)
def test_health_is_an_attribute_of_ours(host: Any, said: str, health: str) -> None:
    one = host("t4")
    machine = one.open()
    if said:
        one.say(said)
        machine.poll()
    (device,) = published_pool(machine.devices(), "node-a", PublishOptions(extras=True)).devices
    assert device.attributes["drakkar.dev/health"] == {"string": health}
    assert "drakkar.dev/health" not in published_pool(machine.devices(), "node-a").devices[0].attributes


def test_attributes_of_ours_take_the_room_that_is_left(host: Any) -> None:
    """A MIG device of the whole GPU has nearly as many values as the API takes."""
    options = PublishOptions(extras=True, shares="memory")
    machine = host("gb200-tray", *((index, "7g.186gb") for index in range(2))).simulated
    pool = published_pool(machine.devices(), "node-a", options, {"gpu": "cgroup", "mig": "none"})
    assert slice_contents(pool)
    for device in pool.devices:
        assert {"drakkar.dev/health", "drakkar.dev/memoryEnforcement"} <= set(device.attributes)


@pytest.mark.parametrize(
    ("said", "kind", "message", "taint"),
    [
        ("remap\t0\t1\t0", "row-remap-pending", "a row of memory is remapped by the next reset", ""),
        ("remap\t0\t1\t1", "row-remap-failed", "could not be remapped", "drakkar.dev/row-remap-failed"),
        ("recovery\t0\t4", "recovery-needed", "traffic drained and a reset", "drakkar.dev/recovery-needed"),
        ("ecc\t0\t3", "ecc-uncorrected", "3 uncorrected memory errors since the driver was loaded", ""),
        ("clocks\t0\t44", "thermal-slowdown", "too hot", ""),
    ],
)
def test_what_a_gpu_says_of_its_health_is_told_and_taints_it_where_it_is_serious(
    host: Any, said: str, kind: str, message: str, taint: str
) -> None:
    one = host("t4")
    machine = one.open()
    one.say(said)
    assert machine.poll() is True
    (fault,) = machine.faults()
    assert (fault.kind, fault.device) == (kind, machine.devices()[0].uuid)
    assert message in fault.message
    (device,) = published_pool(machine.devices(), "node-a").devices
    assert [(one.key, one.effect) for one in device.taints] == ([(taint, "NoSchedule")] if taint else [])
    one.serve()
    assert machine.poll() is True
    assert machine.faults() == []


def test_a_library_that_hangs_holds_nobody_up_and_is_told(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = host("t4")
    machine = one.open()
    for name, seconds in (("_STALL_SECONDS", 0.01), ("_HANGS_SECONDS", 0.05), ("_CHANGE_SECONDS", 0.01)):
        monkeypatch.setattr(nvml_machine, name, seconds)
    heard: list[str] = []
    machine.subscribe(lambda event: heard.append(event.fault.kind if event.fault else event.kind))
    one.say("slow\tnvmlDeviceGetCount_v2\t700")
    assert machine.poll() is False  # came back at once
    assert wait_for(machine.poll)
    assert [fault.kind for fault in machine.faults()] == ["nvml-hangs"]
    assert len(machine.devices()) == 1  # what it said last
    with pytest.raises(DrakkarError, match="NVML does not answer"):
        machine.set_exclusive(0, True)
    one.serve()
    assert wait_for(machine.poll)
    assert (machine.faults(), heard) == ([], ["nvml-hangs", "changed"])


def test_a_library_that_hangs_at_the_start_is_waited_for(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = host("t4")
    monkeypatch.setattr(nvml_machine, "_START_SECONDS", 0.01)
    one.say("slow\tnvmlDeviceGetCount_v2\t300")
    machine = one.open()
    assert machine.devices() == ()
    assert machine.faults()[0].message == "NVML does not answer: what is shown is what it said last"
    assert wait_for(machine.poll)
    assert (len(machine.devices()), machine.faults()) == (1, [])


def wait_for(question: Callable[[], bool]) -> bool:
    """Asks until the answer is yes, for at most ten seconds."""
    end = time.monotonic() + 10
    while not question():
        if time.monotonic() > end:
            return False
    return True


def test_links_of_the_library_mean_the_driver_root(host: Any) -> None:
    one = host("t4")
    (link,) = one.root.rglob("libnvidia-ml.so.1")
    real = link.resolve()
    link.unlink()
    link.symlink_to("/" + str(real.relative_to(one.root)))  # as a driver container has it
    assert find_library(one.root) == link
    machine = one.open()
    assert machine.library is not None
    assert machine.poll() is False


def test_mig_devices_are_made_and_destroyed_at_the_wanted_place(host: Any) -> None:
    one = host("dgx-h100")
    machine = one.open()
    made = machine.create_mig(0, "1g.10gb", 5)
    assert (made.profile.name, made.start, made.compute_instance) == ("1g.10gb", 5, 0)
    assert machine.devices()[0].mig_enabled
    with pytest.raises(NvmlError) as refused:
        machine.create_mig(0, "7g.80gb", 0)
    assert (refused.value.reason, refused.value.subject) == ("NvmlInsufficientResources", "GPU 0, profile 7g.80gb at 0")
    with pytest.raises(DrakkarError, match="no MIG profile '9g'"):
        machine.create_mig(0, "9g")
    machine.destroy_mig(0, made.gpu_instance)
    machine.set_mig_mode(0, False)
    assert (machine.devices()[0].mig_instances, machine.devices()[0].mig_enabled) == ((), False)
    with pytest.raises(NvmlError, match="not found"):
        machine.destroy_mig(0, 11)


def test_small_compute_instances_are_told_and_not_published(host: Any) -> None:
    one = host("dgx-h100", (1, "1g.10gb"))
    for number in (0, 1):
        one.say(f"instance\t1\t1\t{number}\t9\t0\t4\tMIG-22222222-0000-5000-8000-00000000000{number}\t1")
    machine = one.open()
    gpu = machine.devices()[1]
    assert [one.profile.name for one in gpu.mig_instances] == ["1g.10gb"]
    assert [(one.gpu_instance, one.compute_instance) for one in gpu.mig_parts] == [(1, 0), (1, 1)]
    assert [fault.kind for fault in machine.faults()] == ["mig-part", "mig-part"]
    assert "compute instance 1 takes only a part of GPU instance 1 (3g.40gb)" in machine.faults()[1].message
    slice_contents(published_pool(machine.devices(), "node-a"))
    assert [one.index for one in everything([gpu])] == ["1:0", "1:1", "1:2"]  # containers can have them by CDI


def test_a_compute_instance_that_cannot_be_made_takes_its_gpu_instance_with_it(host: Any) -> None:
    one = host("dgx-h100")
    one.serve("answer\tnvmlGpuInstanceCreateComputeInstance\t23")
    machine = one.open()
    with pytest.raises(NvmlError, match="Insufficient Resources"):
        machine.create_mig(0, "1g.10gb", 5)
    machine.poll()
    assert machine.devices()[0].mig_instances == ()
    assert "gone\t0\t" in one.file.read_text()


def test_a_late_driver_is_waited_for_with_the_reason(host: Any) -> None:
    one = host("dgx-h100")
    one.simulated.unload_driver()
    for library in one.root.rglob("libnvidia-ml*"):
        library.unlink()
    (one.root / "proc/driver/nvidia").mkdir(parents=True)
    machine = one.open()
    (fault,) = machine.faults()
    assert machine.devices() == ()
    assert fault.kind == "driver-not-loaded"
    assert "not loaded; there is no libnvidia-ml.so.1 below" in fault.message
    one.simulated.load_driver("585.10.01")
    one.serve("answer\tnvmlInit_v2\t9")
    assert machine.poll() is True
    assert machine.faults()[0].message == "NVML does not start: the NVIDIA kernel module is not loaded"
    one.serve()
    assert machine.poll() is True
    assert (len(machine.devices()), machine.driver_version) == (8, "585.10.01")
    assert machine.faults() == []


def test_an_exchanged_driver_is_loaded_anew(host: Any) -> None:
    one = host("dgx-h100")
    machine = one.open()
    one.simulated.load_driver("585.10.01", "13.1")
    one.serve()
    assert machine.poll() is True
    assert (machine.driver_version, machine.devices()[0].cuda_version) == ("585.10.01", "13.1")
    assert machine.majors["nvidia-uvm"] == one.simulated.majors["nvidia-uvm"]


def test_without_nvml_the_kernel_names_the_gpus(host: Any) -> None:
    one = host("dgx-h100", (1, "3g.40gb"))
    for library in one.root.rglob("libnvidia-ml*"):
        library.unlink()
    machine = one.open()
    assert machine.library is None
    assert machine.faults() == []
    for seen, simulated in zip(machine.devices(), one.simulated.devices(), strict=True):
        for name in ("uuid", "model", "bus_id", "minor", "nodes", "pcie_root", "numa_node", "driver_version"):
            assert getattr(seen, name) == getattr(simulated, name)
    assert machine.devices()[1].mig_enabled  # seen by its capability files; its devices' UUIDs only NVML knows
    with pytest.raises(DrakkarError, match="NVML does not reach it"):
        machine.create_mig(0, "1g.10gb")


def test_a_library_that_is_none_is_passed_over(tmp_path: Path) -> None:
    simulated = build_machine("t4", "node-a", tmp_path)  # its libraries are text files
    machine = NvmlMachine("node-a", simulated.driver_root)
    assert find_library(simulated.driver_root) is not None
    assert (machine.library, len(machine.devices())) == (None, 1)


STRUCTURES = {
    "nvmlPciInfo_t": structs.PciInfo,
    "nvmlMemory_t": structs.Memory,
    "nvmlDeviceAddressingMode_v1_t": structs.AddressingMode,
    "nvmlGpuFabricInfo_t": structs.FabricInfo,
    "nvmlGpuFabricInfo_v2_t": structs.FabricInfoV2,
    "nvmlGpuInstancePlacement_t": structs.Placement,
    "nvmlGpuInstanceProfileInfo_t": structs.GpuInstanceProfile,
    "nvmlGpuInstanceProfileInfo_v2_t": structs.GpuInstanceProfileV2,
    "nvmlGpuInstanceInfo_t": structs.GpuInstanceInfo,
    "nvmlComputeInstanceProfileInfo_t": structs.ComputeInstanceProfile,
    "nvmlComputeInstanceInfo_t": structs.ComputeInstanceInfo,
    "nvmlEventData_t": structs.EventData,
    "nvmlFieldValue_t": structs.FieldValue,
    "nvmlDeviceAttributes_t": structs.DeviceAttributes,
}


def test_structures_lie_in_memory_as_nvidias_header_has_them() -> None:
    layouts = json.loads((Path(__file__).parents[2] / "cases/nvml/layouts.json").read_text())
    assert layouts.keys() == STRUCTURES.keys()
    for name, structure in STRUCTURES.items():
        assert ctypes.sizeof(structure) == layouts[name]["size"], name
        fields = [field[0] for field in structure._fields_]
        assert {field: getattr(structure, field).offset for field in fields} == layouts[name]["offsets"], name


def test_a_product_that_no_table_knows_is_published_with_what_the_driver_tells(host: Any) -> None:
    one = host("t4")
    text = one.file.read_text().replace("Tesla T4", "NVIDIA X1").replace("0x1eb8", "0x9999")
    one.file.write_text(text)
    (gpu,) = one.open().devices()
    assert (gpu.model, gpu.product.architecture, gpu.product.computeCapability) == ("NVIDIA X1", "Turing", "7.5")
    (device,) = published_pool([gpu], "node-a").devices
    assert (
        device.capacity["memory"]["value"]
        == published_pool(one.simulated.devices(), "n").devices[0].capacity["memory"]["value"]
    )


@pytest.mark.parametrize(
    "function", ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"]
)
def test_a_gpu_that_reports_no_events_says_so_and_can_be_had(host: Any, function: str) -> None:
    one = host("t4")
    one.serve(f"answer\t{function}\t3")
    machine = one.open()
    machine.poll()
    taint = {"key": "gpu.nvidia.com/unmonitored", "effect": "None"}
    assert published_pool(machine.devices(), "n").devices[0].to_json()["taints"] == [taint]
    machine.close()
    one.serve()
    assert "taints" not in published_pool(one.open().devices(), "n").devices[0].to_json()


def test_memory_is_told_to_the_byte_and_shared_in_whole_mebibytes(host: Any) -> None:
    one = host("t4")
    one.file.write_text(one.file.read_text().replace(str(15360 << 20), "15843721216"))
    gpus = one.open().devices()
    assert published_pool(gpus, "n").devices[0].capacity["memory"] == {"value": "15472384Ki"}
    (shared,) = published_pool(gpus, "n", PublishOptions(shares="memory")).devices
    assert shared.capacity["memory"]["value"] == shared.capacity["memory"]["requestPolicy"]["default"] == "15109Mi"


@pytest.mark.parametrize("name", ["DGX Display", "NVIDIA DGX Display"])
def test_a_board_that_only_drives_a_monitor_is_no_gpu_to_give_away(host: Any, name: str) -> None:
    one = host("a100-40gb")
    first, _, rest = one.file.read_text().partition("NVIDIA A100")
    one.file.write_text(f"{first}{name}{rest[rest.index(chr(9)) :]}")
    assert [gpu.minor for gpu in one.open().devices()] == [gpu.minor for gpu in one.simulated.devices()][1:]


def test_a_virtual_gpu_is_not_cut_by_its_guest(host: Any) -> None:
    one = host("dgx-h100", (1, "1g.10gb"))
    one.say("virtual\t1\t2")
    one.say("virtual\t2\t2")
    one.say("virtual\t3\t1")  # passed through whole: all the virtual machine's own
    pool = published_pool(one.open().devices(), "n", PublishOptions(dynamic_mig=True))
    names = [[device.name for device in group] for group in pool.groups]
    assert names[1:3] == [["gpu-1-mig-1g10gb-19-6"], ["gpu-2"]]
    assert "uuid" in pool.groups[1][0].attributes and "memorySlice6" in pool.groups[1][0].capacity
    assert [one.name for one in pool.counter_sets] == [f"gpu-{minor}-counter-set" for minor in (0, 3, 4, 5, 6, 7)]


@pytest.mark.parametrize("model", ["dgx-h200", "dgx-b200", "dgx-b300", "gb200-tray", "h100-nvl", "rtx-pro-6000"])
@pytest.mark.parametrize("old", [True, False])
def test_names_of_profiles_are_made_as_all_of_nvidias_programs_make_them(host: Any, model: str, old: bool) -> None:
    one = host(model)  # halves of an eighth go up: 3g.71gb of 141 GB
    one.serve(old=old)
    names = {profile.name for profile in one.open().devices()[0].mig_board.profiles}
    assert names == {profile.name for profile in one.simulated.gpus()[0].mig_board.profiles}


@pytest.mark.parametrize("told", ["", "r580 beta"])
def test_a_version_that_is_none_is_left_out(host: Any, told: str) -> None:
    one = host("t4")
    one.file.write_text(one.file.read_text().replace(f"driver\t{one.simulated.driver_version}", f"driver\t{told}"))
    (device,) = published_pool(one.open().devices(), "n").devices
    assert "driverVersion" not in device.attributes and "cudaDriverVersion" in device.attributes


def test_a_gpu_whose_uuid_the_module_does_not_know_yet_is_named_by_its_address(host: Any) -> None:
    one = host("t4")
    for library in one.root.rglob("libnvidia-ml*"):
        library.unlink()
    (file,) = one.root.glob("proc/driver/nvidia/gpus/*/information")
    uuid = one.simulated.devices()[0].uuid
    file.write_text(file.read_text().replace(uuid, "GPU-????????-????-????-????-????????????"))
    (gpu,) = one.open().devices()
    assert gpu.uuid == f"pci-{gpu.bus_id}"


def test_time_slices_are_set_by_the_drivers_own_tool(host: Any) -> None:
    one = host("t4")
    machine = one.open()
    tool = one.root / "usr/bin/nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {one.root}/said\n')
    uuid = machine.devices()[0].uuid
    machine.set_time_slice(0, 2)
    machine.set_time_slice(0, 2)
    assert (one.root / "said").read_text() == f"compute-policy -i {uuid} --set-timeslice 2\n"
    assert machine.devices()[0].time_slice == 2
    tool.write_text("#!/bin/sh\necho 'Insufficient Permissions'; exit 4\n")
    with pytest.raises(DrakkarError, match="nvidia-smi refuses the time slice: Insufficient Permissions"):
        machine.set_time_slice(0, 0)
    tool.unlink()
    with pytest.raises(DrakkarError, match="time slices need nvidia-smi"):
        machine.set_time_slice(0, 0)
