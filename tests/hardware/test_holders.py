"""Who has a device node open, on this host and in a made-up /proc."""

import mmap
import os
from pathlib import Path

import pytest

from drakkar.hardware.holders import Holder, holders
from drakkar.hardware.machine import DeviceNode

ZERO = DeviceNode("/dev/zero", 1, 5)
GPU = DeviceNode("/dev/nvidia0", 195, 0)


def test_a_process_that_has_a_node_open_is_named_by_number_and_command() -> None:
    own = Path("/proc/self/comm").read_text().strip()
    descriptor = os.open("/dev/zero", os.O_RDONLY)
    try:
        assert Holder(os.getpid(), own) in holders(Path("/"), [ZERO])
    finally:
        os.close(descriptor)
    assert os.getpid() not in [one.pid for one in holders(Path("/"), [ZERO])]


def test_a_node_is_recognised_by_its_numbers_under_another_folder(tmp_path: Path) -> None:
    node = tmp_path / "zero"
    try:
        os.mknod(node, 0o600 | 0o020000, os.makedev(1, 5))
        descriptor = os.open(node, os.O_RDONLY)
    except PermissionError:
        pytest.skip("needs root that may open device nodes it makes; runs as root outside of user namespaces")
    try:
        assert os.getpid() in [one.pid for one in holders(Path("/"), [ZERO])]
        assert os.getpid() not in [one.pid for one in holders(Path("/"), [DeviceNode("/dev/zero", 1, 99)])]
    finally:
        os.close(descriptor)


def test_a_mapping_holds_a_node_after_its_descriptor_is_closed() -> None:
    descriptor = os.open("/dev/zero", os.O_RDWR)
    memory = mmap.mmap(descriptor, 4096, flags=mmap.MAP_PRIVATE)
    os.close(descriptor)
    mapped = [one.pid for one in holders(Path("/"), [ZERO])]
    memory.close()
    assert os.getpid() in mapped
    assert os.getpid() not in [one.pid for one in holders(Path("/"), [ZERO])]


def process(root: Path, pid: int, command: str, **descriptors: str) -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{command}\n")
    for number, target in descriptors.items():
        (folder / "fd" / number[1:]).symlink_to(target)


def test_processes_below_a_root_are_those_of_its_proc(tmp_path: Path) -> None:
    process(tmp_path, 4711, "dcgm-exporter", d3="/dev/nvidiactl", d7="/dev/nvidia0")
    process(tmp_path, 12, "python", d3="/dev/nvidia1", d4="socket:[17]", d5="/dev/nvidia0 (deleted)")
    process(tmp_path, 13, "bash")
    (tmp_path / "proc/self").symlink_to("13")
    (tmp_path / "proc/999").mkdir()
    assert holders(tmp_path, [GPU]) == [Holder(4711, "dcgm-exporter")]
    assert str(holders(tmp_path, [GPU])[0]) == "dcgm-exporter (process 4711)"
    assert holders(tmp_path, []) == []
    assert holders(tmp_path / "nowhere", [GPU]) == []


def test_a_command_that_is_not_text_is_made_printable(tmp_path: Path) -> None:
    process(tmp_path, 1, "x", d0="/dev/nvidia0")
    (tmp_path / "proc/1/comm").write_bytes(b"\x1b[31mred\xff\n")
    (holder,) = holders(tmp_path, [GPU])
    assert holder.command == "?[31mred\ufffd"
    (tmp_path / "proc/1/comm").unlink()
    assert holders(tmp_path, [GPU])[0].command == "a process without a name"
