"""GPUs on the PCI bus: what is published of them, and a simulated kernel that refuses what a real one refuses."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from drakkar.errors import DrakkarError
from drakkar.hardware.pci_drivers import PciBus
from drakkar.hardware.tree import node_numbers
from drakkar.inventory.slices import Pool, slice_contents
from drakkar.vendors.nvidia import models, passthrough
from drakkar.vendors.nvidia.passthrough import functions, vfio_driver, vfio_module, with_passthrough
from drakkar.vendors.nvidia.published import PublishOptions, published_pool
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine

A, B = "0000:1b:00.0", "0000:43:00.0"
DRIVERS = "/sys/bus/pci/drivers"
DEVICES = "/sys/bus/pci/devices"
GIGABYTE = 1 << 30


def machine(folder: Path, model: str = "dgx-h100") -> SimulatedMachine:
    return build_machine(model, "n1", folder)


def pool_of(one: SimulatedMachine, *held: str, **options: bool | str) -> Pool:
    chosen = PublishOptions(**options)  # type: ignore[arg-type]
    gpus = one.devices()
    pool = published_pool(gpus, "n1", chosen) if gpus else None
    found = with_passthrough(pool, "n1", gpus, functions(one.bus), held)
    assert found is not None
    return found


def to_vfio(one: SimulatedMachine, address: str) -> None:
    one.bus.load_module("vfio_pci")
    one.set_persistence(address, False)
    one.bus.override(address, "vfio-pci")
    one.bus.unbind(address)
    one.bus.bind(address, "vfio-pci")


# --- what is published ----------------------------------------------------------------------------------------------


def test_a_gpu_on_the_bus_is_published_as_nvidias_driver_does(tmp_path: Path) -> None:
    device = next(one for one in pool_of(machine(tmp_path)).devices if one.name == "gpu-vfio-0").to_json()
    assert device["attributes"] == {
        "type": {"string": "vfio"},
        "uuid": {"string": "90d1ede6-4660-56ab-bea3-b9875fe7e5eb"},  # uuid5 of the DNS namespace and the address
        "deviceID": {"string": "0x2330"},
        "vendorID": {"string": "0x10de"},
        "productName": {"string": "GH100 [H100 SXM5 80GB]"},
        "iommuFDEnabled": {"bool": True},
        "resource.kubernetes.io/pciBusID": {"string": A},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
        "resource.kubernetes.io/numaNode": {"int": 0},
    }
    assert device["capacity"] == {"addressableMemory": {"value": "256Gi"}}


@pytest.mark.parametrize("model", models.model_names())
def test_every_model_has_a_name_and_memory_on_the_bus(tmp_path: Path, model: str) -> None:
    one = machine(tmp_path, model)
    found = functions(one.bus)
    assert [function.bus_id for function in found] == [gpu.bus_id for gpu in one.devices()]
    assert [function.name for function in found] == [f"gpu-vfio-{index}" for index in range(len(found))]
    for function in found:
        assert function.model != "UNKNOWN_DEVICE" and function.addressable > one.devices()[0].product.bar1MiB << 20
        assert (function.driver, function.group) == ("nvidia", str(10 + function.index))


def test_a_gpu_and_its_other_self_take_one_counter_so_that_nobody_is_allocated_both(tmp_path: Path) -> None:
    pool = pool_of(machine(tmp_path))
    sets = [one.to_json() for one in pool.counter_sets]
    assert sets[0] == {"name": "gpu-0-counter-set", "counters": {"gpu": {"value": "1"}}}
    assert len(sets) == 8
    by_name = {device.name: device for device in pool.devices}
    assert by_name["gpu-0"].consumes == by_name["gpu-vfio-0"].consumes != ()
    assert list(slice_contents(pool)[0]) == ["sharedCounters"]


def test_while_a_claim_holds_one_the_other_is_not_published(tmp_path: Path) -> None:
    one = machine(tmp_path)
    assert "gpu-vfio-0" not in [device.name for device in pool_of(one, "gpu-0").devices]
    assert "gpu-0" not in [device.name for device in pool_of(one, "gpu-vfio-0").devices]
    assert "gpu-vfio-0" in [device.name for device in pool_of(one, "gpu-vfio-0").devices]
    to_vfio(one, A)
    names = [device.name for device in pool_of(one, "gpu-vfio-0").devices]
    assert "gpu-0" not in names and "gpu-vfio-0" in names
    assert len(names) == 15


def test_all_gpus_may_be_passed_through(tmp_path: Path) -> None:
    one = machine(tmp_path, "gh200")
    (function,) = functions(one.bus)
    to_vfio(one, function.bus_id)
    assert [device.name for device in pool_of(one, "gpu-vfio-0").devices] == ["gpu-vfio-0"]


def test_a_gpu_with_mig_devices_is_not_offered_whole_and_an_empty_one_is(tmp_path: Path) -> None:
    one = machine(tmp_path)
    one.create_mig(0, "3g.40gb")
    one.set_mig_mode(1, True)
    names = [device.name for device in pool_of(one).devices]
    assert "gpu-vfio-0" not in names and "gpu-1" not in names
    assert "gpu-vfio-1" in names and "gpu-vfio-2" in names
    one.destroy_mig(0, one.devices()[0].mig_instances[0].gpu_instance)
    assert "gpu-vfio-0" in [device.name for device in pool_of(one).devices]


def test_with_dynamic_mig_it_takes_all_counters_of_its_gpu(tmp_path: Path) -> None:
    one = machine(tmp_path)
    pool = pool_of(one, dynamic_mig=True)
    by_name = {device.name: device for device in pool.devices}
    assert by_name["gpu-vfio-0"].consumes == by_name["gpu-0"].consumes
    assert len(by_name["gpu-0"].consumes[0].counters) > 8
    assert {name for name in by_name if name.startswith("gpu-0")} == {
        name.replace("gpu-1", "gpu-0", 1) for name in by_name if name.startswith("gpu-1")
    }
    withdrawn = pool_of(one, "gpu-vfio-0", dynamic_mig=True)
    assert not [device.name for device in withdrawn.devices if device.name.startswith(("gpu-0", "gpu-0-mig"))]
    used = pool_of(one, "gpu-0-mig-1g10gb-19-2", dynamic_mig=True)
    assert "gpu-vfio-0" not in [device.name for device in used.devices]
    assert "gpu-0-mig-1g10gb-19-3" in [device.name for device in used.devices]


def test_shares_of_a_gpu_are_counted_for_themselves(tmp_path: Path) -> None:
    pool = pool_of(machine(tmp_path), shares="unlimited")
    by_name = {device.name: device for device in pool.devices}
    assert by_name["gpu-0"].allow_multiple_allocations and by_name["gpu-0"].consumes == ()
    assert not by_name["gpu-vfio-0"].allow_multiple_allocations
    assert pool.counter_sets == ()


def test_taints_of_a_gpu_are_those_of_its_other_self(tmp_path: Path) -> None:
    one = machine(tmp_path)
    one.log_xid(0, 48)
    by_name = {device.name: device for device in pool_of(one).devices}
    assert by_name["gpu-vfio-0"].taints == by_name["gpu-0"].taints != ()


def test_without_iommufd_it_says_so(tmp_path: Path) -> None:
    one = machine(tmp_path)
    one.bus.configure(iommufd=False)
    assert not functions(one.bus)[0].iommufd
    assert not one.bus.has_iommufd


def test_the_systems_own_id_database_counts(tmp_path: Path) -> None:
    one = machine(tmp_path)
    file = one.driver_root / "usr/share/misc/pci.ids"
    file.parent.mkdir(parents=True)
    file.write_text(
        "# comment\n10dd  Other\n\t2330  not this\n10de  NVIDIA Corporation\n\t2330  GH100 [of this system]\n"
        "\t\t10de 16c1  a subsystem\n10df  Emulex\n\t2330  nor this\n"
    )
    assert functions(one.bus)[0].model == "GH100 [of this system]"


@pytest.mark.parametrize(
    ("registers", "size"),
    [
        ("0x0000000010000000 0x0000000010ffffff 0x0000000000040200\n", 0),  # 32 bits wide
        ("0x1000000000 0x1fffffffff 0x14220c\n0x0 0x0 0x0\n", 64 * GIGABYTE),
        ("0x1000000000 0x1fffffffff 0x14220c\n0x0 0x0 0x0\n0x2000000000 0x2001ffffff 0x14220c\n", 128 * GIGABYTE),
        ("0x0 0x0 0x0\n" * 6 + "0x1000000000 0x1fffffffff 0x14220c\n", 0),  # of virtual functions
        ("", 0),
        ("garbage\n", 0),
    ],
)
def test_addressable_memory_is_what_64_bit_registers_span_rounded_up(registers: str, size: int) -> None:
    assert passthrough._addressable(registers) == size


# --- which driver ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "module", "driver"),
    [("dgx-h100", "vfio_pci", "vfio-pci"), ("gh200", "nvgrace_gpu_vfio_pci", "nvgrace-gpu-vfio-pci")],
)
def test_the_kernel_says_which_vfio_driver_suits_a_gpu(tmp_path: Path, model: str, module: str, driver: str) -> None:
    one = machine(tmp_path, model)
    (function, *_) = functions(one.bus)
    assert vfio_module(one.bus, function.bus_id) == module
    one.bus.load_module(module)
    assert vfio_driver(one.bus, module) == driver


def test_a_kernel_without_a_table_of_aliases_has_the_plain_driver(tmp_path: Path) -> None:
    one = machine(tmp_path, "gh200")
    address = functions(one.bus)[0].bus_id
    (one.driver_root / "proc/sys/kernel/osrelease").write_text("6.1\n")
    assert vfio_module(one.bus, address) == "vfio_pci"


# --- the simulated kernel -------------------------------------------------------------------------------------------


def refused(number: int) -> object:
    return pytest.raises(OSError, match=rf"^\[Errno {number}\]")


def test_a_gpu_goes_from_driver_to_driver(tmp_path: Path) -> None:
    one = machine(tmp_path)
    to_vfio(one, A)
    root = one.driver_root
    assert (one.bus.driver(A), one.bus.overridden(A), one.bus.group(A)) == ("vfio-pci", "vfio-pci", "10")
    assert A not in [gpu.bus_id for gpu in one.devices()]
    assert [gpu.index for gpu in one.devices()] == list(range(7)), "NVIDIA's driver counts the GPUs that it has"
    assert not (root / f"proc/driver/nvidia/gpus/{A}").exists()
    legacy, own = one.bus.vfio_nodes(A)
    assert legacy is not None and own is not None
    assert (legacy.path, own.path) == ("/dev/vfio/10", "/dev/vfio/devices/vfio0")
    for node in (legacy, own):
        assert node_numbers(root / node.path.lstrip("/")) == ("c", node.major, node.minor)
    one.bus.override(A, "")
    one.bus.unbind(A)
    assert one.bus.driver(A) == "" and one.bus.vfio_nodes(A) == (None, None)
    one.bus.bind(A, "nvidia")
    assert one.devices()[0].bus_id == A
    assert (root / f"proc/driver/nvidia/gpus/{A}/information").exists()
    assert not (root / "dev/vfio/10").exists()


def test_what_a_kernel_refuses_is_refused_with_its_number(tmp_path: Path) -> None:
    one = machine(tmp_path)
    bus = one.bus
    with refused(errno.ENOENT):
        bus.bind(A, "vfio-pci")  # not loaded
    bus.load_module("vfio_pci")
    with refused(errno.ENODEV):
        bus.bind(A, "vfio-pci")  # does not match without an override
    bus.override(A, "vfio-pci")
    with refused(errno.EBUSY):
        bus.bind(A, "vfio-pci")  # another driver has it
    with refused(errno.ENODEV):
        bus.store(f"{DRIVERS}/vfio-pci/unbind", A)  # that one does not have it
    with refused(errno.ENODEV):
        bus.store(f"{DRIVERS}/nvidia/unbind", "0000:ff:00.0")
    one.set_persistence(A, False)
    bus.unbind(A)
    with refused(errno.ENODEV):
        bus.bind(A, "nvidia")  # the override keeps it away
    bus.refuse(A, "vfio-pci")
    with refused(errno.EIO):
        bus.bind(A, "vfio-pci")
    bus.refuse(A, "")
    bus.configure(iommu=False)
    with refused(errno.EINVAL):
        bus.bind(A, "vfio-pci")
    with refused(errno.EACCES):
        bus.store(f"{DEVICES}/{A}/vendor", "0x1234")
    assert bus.group(A) == "" and not bus.has_iommu


def test_a_module_that_the_kernel_lacks_is_named(tmp_path: Path) -> None:
    one = machine(tmp_path)
    one.bus.configure(missing_modules=("vfio_pci",))
    with pytest.raises(DrakkarError, match="kernel module vfio_pci cannot be loaded: FATAL"):
        one.bus.load_module("vfio_pci")


def test_taking_a_gpu_that_is_in_use_blocks_until_it_is_not(tmp_path: Path) -> None:
    one = machine(tmp_path)
    one.bus.hold("/dev/nvidia0", 4711, "python")
    assert (one.driver_root / "proc/4711/fd/3").readlink() == Path("/dev/nvidia0")
    writer = threading.Thread(target=one.bus.unbind, args=(A,))
    writer.start()
    writer.join(0.1)
    assert writer.is_alive() and one.bus.driver(A) == "nvidia"
    machine(tmp_path).bus.let_go(4711)  # another process tells
    writer.join(5)
    assert not writer.is_alive() and one.bus.driver(A) == ""


def test_the_lock_is_granted_only_while_nobody_uses_the_gpu(tmp_path: Path) -> None:
    one = machine(tmp_path)
    lock = f"/proc/driver/nvidia/gpus/{A}/unbindLock"
    one.bus.store(lock, "1")
    assert one.bus.text(lock) == "0", "persistence mode uses it"
    one.set_persistence(A, False)
    one.bus.hold("/dev/nvidia0", 4711, "python")
    one.bus.store(lock, "1")
    assert one.bus.text(lock) == "0"
    one.bus.let_go(4711)
    one.bus.store(lock, "1")
    assert one.bus.text(lock) == "1"
    one.bus.store(lock, "0")
    assert one.bus.text(lock) == "0"
    one.bus.unbind(A)
    with refused(errno.ENOENT):
        one.bus.store(lock, "1")


def test_a_returning_gpu_gets_the_lowest_minor_that_is_free(tmp_path: Path) -> None:
    one = machine(tmp_path)
    for address in (A, B):
        to_vfio(one, address)
    for address in (B, A):
        one.bus.override(address, "")
        one.bus.unbind(address)
        one.bus.bind(address, "nvidia")
    assert [(gpu.bus_id, gpu.minor) for gpu in one.devices()[:3]] == [(A, 1), (B, 0), ("0000:52:00.0", 2)]
    assert [function.name for function in functions(one.bus)][:2] == ["gpu-vfio-0", "gpu-vfio-1"]


def test_indices_of_nvidias_driver_are_those_that_changes_take(tmp_path: Path) -> None:
    one = machine(tmp_path)
    to_vfio(one, A)
    made = one.create_mig(0, "1g.10gb")
    assert one.devices()[0].bus_id == B and one.devices()[0].mig_instances == (made,)
    one.set_time_slice(0, 2)
    one.lose_gpu(0)
    assert one.devices()[0].lost and one.devices()[0].bus_id == B
    with pytest.raises(DrakkarError, match="has no GPU 7"):
        one.set_exclusive(7, True)


def test_a_reload_leaves_passed_through_gpus_alone_and_a_reboot_does_not(tmp_path: Path) -> None:
    one = machine(tmp_path)
    to_vfio(one, A)
    one.unload_driver()
    assert one.devices() == () and one.bus.driver(A) == "vfio-pci" and one.bus.driver(B) == ""
    one.load_driver()
    assert len(one.devices()) == 7 and one.bus.driver(A) == "vfio-pci" and one.bus.driver(B) == "nvidia"
    one.reboot()
    assert len(one.devices()) == 8 and one.bus.driver(A) == "nvidia" and one.bus.overridden(A) == ""
    assert not one.bus.has_driver("vfio-pci")


def test_another_process_sees_the_same_bus(tmp_path: Path) -> None:
    one = machine(tmp_path)
    to_vfio(one, A)
    other = machine(tmp_path)
    assert other.bus.driver(A) == "vfio-pci"
    assert [gpu.bus_id for gpu in other.devices()] == [gpu.bus_id for gpu in one.devices()]
    other.bus.override(A, "")
    other.bus.unbind(A)
    assert one.poll() and one.bus.driver(A) == ""


def test_functions_of_a_group_are_listed_with_class_and_driver(tmp_path: Path) -> None:
    one = machine(tmp_path)
    one.bus.add_function(A, "0000:1b:00.1", kind="0x040300", driver="snd_hda_intel")
    one.bus.join(B, A)
    found = [(each.address, each.driver, each.is_bridge) for each in one.bus.members("10")]
    assert found == [(A, "nvidia", False), ("0000:1b:00.1", "snd_hda_intel", False), (B, "nvidia", False)]
    assert one.bus.members("11") == []
    assert [function.bus_id for function in functions(one.bus)] == [gpu.bus_id for gpu in one.devices()], "no audio"


def test_writes_of_a_real_bus_go_to_the_files(tmp_path: Path) -> None:
    bus = PciBus(tmp_path)
    folder = tmp_path / "sys/bus/pci/devices" / A
    folder.mkdir(parents=True)
    (folder / "driver_override").write_text("(null)\n")
    assert bus.overridden(A) == ""
    bus.override(A, "vfio-pci")
    assert (folder / "driver_override").read_text() == "vfio-pci\n"
    bus.unbind(A)  # has none: nothing to do
    with refused(errno.ENOENT):
        bus.bind(A, "vfio-pci")
    with pytest.raises(DrakkarError, match="kernel module no_such cannot be loaded"):
        bus.load_module("no_such")
