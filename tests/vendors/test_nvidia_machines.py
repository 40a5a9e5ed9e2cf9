"""Simulated NVIDIA machines: consistent models, files and device nodes, faults, events, what survives a restart."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drakkar.errors import DrakkarError
from drakkar.hardware import pci, tree
from drakkar.hardware.machine import Machine, MachineEvent
from drakkar.vendors.nvidia import models
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine


def machine(folder: Path, model: str = "dgx-h100", name: str = "n1", **options: int) -> SimulatedMachine:
    return build_machine(model, name, folder / name, **options)


@pytest.mark.parametrize("model", models.model_names())
def test_every_node_model_is_consistent(tmp_path: Path, model: str) -> None:
    node = models.node_model(model)
    server = models.server_model(node.server)
    assert node.gpu in server.gpuModels
    one = machine(tmp_path, model)
    assert isinstance(one, Machine)
    gpus = one.devices()
    assert len(gpus) == len(server.gpus)
    assert [gpu.bus_id for gpu in gpus] == sorted(gpu.bus_id for gpu in gpus)
    assert len({gpu.uuid for gpu in gpus}) == len(gpus)
    description = one.node_description
    assert description.cpu >= 8 and description.memory >= 16 << 30
    assert description.labels["nvidia.com/gpu.count"] == str(len(gpus))
    for key, value in description.labels.items():
        assert len(value) <= 63 and " " not in value, key


def test_an_unknown_model_is_refused_with_the_list() -> None:
    with pytest.raises(DrakkarError, match="dgx-h10") as caught:
        models.node_model("dgx-h10")
    assert "dgx-h100" in caught.value.expected
    assert "dgx-h100" in caught.value.next_step


def test_figures_name_what_is_not_checked() -> None:
    for name in models.gpu_model_names():
        model = models.gpu_model(name)
        assert "memoryMiB" not in model.confidence or model.confidence["memoryMiB"].startswith(("derived", "unsure"))
    assert models.gpu_model("h100-sxm5-80gb").memoryMiB == 81559


def test_uuids_come_from_seed_node_and_index(tmp_path: Path) -> None:
    uuids = [gpu.uuid for gpu in machine(tmp_path / "a").devices()]
    assert uuids == [gpu.uuid for gpu in machine(tmp_path / "b").devices()]
    assert uuids != [gpu.uuid for gpu in machine(tmp_path / "b", name="n2").devices()]
    assert uuids != [gpu.uuid for gpu in machine(tmp_path / "c", seed=7).devices()]


def test_trays_of_a_rack_share_their_clique_and_a_single_node_has_none(tmp_path: Path) -> None:
    trays = [machine(tmp_path, "gb200-tray", name).devices()[0].clique for name in ("n1", "n2")]
    assert trays[0] == trays[1] is not None
    assert machine(tmp_path, "dgx-h100", "n3").devices()[0].clique is None
    assert machine(tmp_path, "gb200-tray", "n4").node_description.labels["nvidia.com/gpu.clique"] == trays[0]


def test_the_tree_is_what_a_toolkit_looks_for(tmp_path: Path) -> None:
    one = machine(tmp_path)
    root = one.driver_root
    lib = root / "usr/lib/x86_64-linux-gnu"
    assert (lib / "libcuda.so.1").resolve() == (lib / "libcuda.so.580.95.05").resolve()
    assert (lib / "libnvidia-ml.so.1").exists()
    assert os.access(root / "usr/bin/nvidia-smi", os.X_OK)
    assert "580.95.05" in (root / "proc/driver/nvidia/version").read_text()
    assert (root / "sys/module/nvidia/version").read_text() == "580.95.05\n"
    for gpu in one.devices():
        assert tree.node_numbers(root / f"dev/nvidia{gpu.minor}") == ("c", 195, gpu.minor)
        information = (root / f"proc/driver/nvidia/gpus/{gpu.bus_id}/information").read_text()
        assert f"GPU UUID: \t {gpu.uuid}\n" in information
        function = pci.read_function(root, gpu.bus_id)
        assert (function.root, function.numa_node) == (gpu.pcie_root, gpu.numa_node)
        assert (function.vendor, function.driver) == ("0x10de", "nvidia")
    assert tree.node_numbers(root / "dev/nvidiactl") == ("c", 195, 255)
    assert tree.node_numbers(root / "dev/nvidia-uvm") == ("c", one.majors["nvidia-uvm"], 0)
    assert f"{one.majors['nvidia-caps']:3d} nvidia-caps\n" in (root / "proc/devices").read_text()


def test_mig_instances_come_and_go_with_their_capabilities(tmp_path: Path) -> None:
    one = machine(tmp_path)
    root = one.driver_root
    instance = one.create_mig(0, "3g.40gb")
    assert (instance.gpu_instance, instance.start) == (2, 4)
    access = root / "proc/driver/nvidia/capabilities/gpu0/mig/gi2/access"
    assert "DeviceFileMinor: 21\n" in access.read_text()
    for node in instance.nodes:
        assert tree.node_numbers(root / node.path.lstrip("/")) == (node.kind, node.major, node.minor)
    with pytest.raises(DrakkarError, match="Insufficient Resources"):
        one.create_mig(0, "7g.80gb")
    with pytest.raises(DrakkarError, match="no MIG profile") as caught:
        one.create_mig(0, "9g.1tb")
    assert "1g.10gb+me" in caught.value.expected
    one.destroy_mig(0, 2)
    assert not access.exists()
    assert sorted(path.name for path in (root / "dev/nvidia-caps").iterdir()) == ["nvidia-cap1", "nvidia-cap2"]
    with pytest.raises(DrakkarError, match="no GPU instance 2"):
        one.destroy_mig(0, 2)
    with pytest.raises(DrakkarError, match="cannot do MIG"):
        machine(tmp_path, "t4", "n2").create_mig(0, "1g.10gb")


def test_what_happened_to_a_machine_survives_a_restart(tmp_path: Path) -> None:
    one = machine(tmp_path)
    one.create_mig(1, "1g.10gb")
    one.log_xid(2, 48)
    one.lose_gpu(3)
    again = machine(tmp_path)
    assert again.devices() == one.devices()
    assert again.generation == one.generation == 4
    assert [fault.kind for fault in again.faults()] == ["xid", "lost"]
    assert "Xid (PCI:0000:52:00): 48" in again.faults()[0].message


def test_changes_of_another_process_are_seen_by_a_poll(tmp_path: Path) -> None:
    one, other = machine(tmp_path), machine(tmp_path)
    events: list[MachineEvent] = []
    stop = one.subscribe(events.append)
    assert not one.poll()
    other.lose_gpu(0)
    assert one.poll()
    assert [(event.kind, event.device) for event in events] == [("fault", one.gpus()[0].uuid)]
    assert one.devices()[0].lost
    assert not one.poll()
    stop()
    other.recover_gpu(0)
    assert one.poll() and len(events) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.set_time_slice(0, 2),
        lambda one: one.set_exclusive(0, True),
        lambda one: one.log_xid(0, 31),
        lambda one: one.lose_gpu(0),
        lambda one: one.create_mig(0, "3g.40gb"),
        lambda one: one.set_persistence("0000:1b:00.0", False),
    ],
)
def test_a_change_keeps_what_another_process_did_just_before(
    tmp_path: Path, change: Callable[[SimulatedMachine], object]
) -> None:
    one, other = machine(tmp_path), machine(tmp_path)
    other.log_xid(0, 48)
    other.create_mig(1, "1g.10gb")
    change(one)
    assert 48 in one.devices()[0].xids and len(one.devices()[1].mig_instances) == 1


@pytest.mark.parametrize("change", ["unload_driver", "load_driver"])
def test_a_reload_keeps_what_another_process_did_just_before(tmp_path: Path, change: str) -> None:
    one, other = machine(tmp_path), machine(tmp_path)
    other.lose_gpu(0)
    getattr(one, change)()
    assert one.gpus()[0].lost


def test_a_reload_changes_dynamic_majors_and_a_reboot_the_boot(tmp_path: Path) -> None:
    one = machine(tmp_path)
    before, boot = one.majors, one.boot_id
    one.create_mig(0, "1g.10gb")
    one.unload_driver()
    assert list(one.devices()) == [] and one.faults()[0].kind == "driver-not-loaded"
    one.load_driver("590.48.01", "13.1")
    assert one.majors.pop("nvidia") == before.pop("nvidia") == 195
    assert not set(before.values()) & {one.majors[name] for name in before}
    assert one.devices()[0].driver_version == "590.48.01"
    assert one.devices()[0].mig_instances == ()
    assert (one.driver_root / "usr/lib/x86_64-linux-gnu/libcuda.so.590.48.01").exists()
    assert one.boot_id == boot
    one.reboot()
    assert one.boot_id != boot


def test_mig_mode_survives_a_reboot_on_ampere_only(tmp_path: Path) -> None:
    for model, kept in (("dgx-a100", True), ("dgx-h100", False)):
        one = machine(tmp_path, model, model)
        one.set_mig_mode(0, True)
        one.reboot()
        assert one.devices()[0].mig_enabled is kept


def test_damaged_state_and_another_machines_folder_are_refused(tmp_path: Path) -> None:
    machine(tmp_path)
    with pytest.raises(DrakkarError, match="not n1 \\(t4\\)"):
        machine(tmp_path, "t4")
    (tmp_path / "n1" / "machine.json").write_text("{")
    with pytest.raises(DrakkarError, match="cannot be read") as caught:
        machine(tmp_path)
    assert caught.value.subject.endswith("machine.json")


@pytest.mark.parametrize("index", [-1, 8])
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path, index: int) -> None:
    with pytest.raises(DrakkarError, match=f"no GPU {index}") as caught:
        machine(tmp_path).lose_gpu(index)
    assert "0 to 7" in caught.value.expected


def test_a_hundred_machines_cost_next_to_nothing(tmp_path: Path) -> None:
    models.node_model("dgx-h100")
    start = time.process_time()
    for number in range(100):
        one = machine(tmp_path, name=f"n{number}")
        assert len(one.devices()) == 8
        assert one.node_description.labels
    assert time.process_time() - start < 1.0
    assert not list(tmp_path.glob("*/driver-root"))


def test_a_host_with_real_gpus_lends_none_of_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_majors_in_use", lambda path: {195, 254, 253})
    one = machine(tmp_path)
    assert not {195, 254, 253} & set(one.majors.values())
    assert {node.major for gpu in one.devices() for node in gpu.nodes} == {one.majors["nvidia"]}
    before = one.majors
    one.load_driver()
    assert one.majors["nvidia"] == before["nvidia"]
    assert one.majors["nvidia-uvm"] != before["nvidia-uvm"]
    assert f"v|nodes|{before['nvidia']}\n" in (one.driver_root / "usr/share/nvidia-smi/devices").read_text()


def test_every_machine_has_a_boot_of_its_own(tmp_path: Path) -> None:
    assert machine(tmp_path, name="n1").boot_id != machine(tmp_path, name="n2").boot_id
