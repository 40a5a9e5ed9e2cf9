"""Directory trees of machines: device nodes and stand-ins, majors, links, PCI functions."""

import os
from pathlib import Path

import pytest

from drakkar.hardware import pci, tree
from drakkar.hardware.machine import DeviceNode


def test_a_node_is_a_device_for_root_and_a_stand_in_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = DeviceNode("/dev/lamp0", 195, 3)
    monkeypatch.setattr(tree, "can_make_nodes", lambda: False)
    tree.make_node(tmp_path, node)
    assert (tmp_path / "dev/lamp0").read_text() == "c 195 3\n"
    assert tree.node_numbers(tmp_path / "dev/lamp0") == ("c", 195, 3)
    monkeypatch.undo()
    if os.geteuid() == 0:
        tree.make_node(tmp_path, node)
        assert (tmp_path / "dev/lamp0").is_char_device()
        assert (tmp_path / "dev/lamp0").stat().st_mode & 0o777 == 0o666
        assert tree.node_numbers(tmp_path / "dev/lamp0") == ("c", 195, 3)
    tree.remove_node(tmp_path, "/dev/lamp0")
    tree.remove_node(tmp_path, "/dev/lamp0")
    assert tree.node_numbers(tmp_path / "dev/lamp0") is None


@pytest.mark.parametrize("content", ["", "x 1 2", "c 1", "c one two", "rubbish " * 10])
def test_other_files_are_no_nodes(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    assert tree.node_numbers(tmp_path / "file") is None
    assert tree.node_numbers(tmp_path) is None


def test_majors_are_handed_out_from_254_down_around_what_the_host_uses(tmp_path: Path) -> None:
    proc = tmp_path / "devices"
    proc.write_text("Character devices:\n  1 mem\n253 hidraw\n\nBlock devices:\n252 virtblk\n")
    assert tree.free_majors(["a", "b", "c"], proc_devices=proc) == {"a": 254, "b": 252, "c": 251}
    full = "".join(f"{number} x\n" for number in range(234, 255))
    proc.write_text(f"Character devices:\n{full}\nBlock devices:\n")
    assert tree.free_majors(["a"], proc_devices=proc) == {"a": 511}
    assert tree.free_majors(["a"], proc_devices=tmp_path / "none") == {"a": 254}


def test_a_link_and_a_file_can_be_written_over(tmp_path: Path) -> None:
    tree.make_links(tmp_path, {"/lib/a.so": "a.so.1"})
    tree.make_links(tmp_path, {"/lib/a.so": "a.so.2"})
    assert (tmp_path / "lib/a.so").readlink() == Path("a.so.2")
    tree.write_files(tmp_path, {"/proc/x": "one two", "/proc/y": b"\0"})
    tree.write_files(tmp_path, {"/proc/x": "three"})
    assert (tmp_path / "proc/x").read_text() == "three"
    tree.replace_file(tmp_path / "proc/x", "four", mode=0o600)
    assert (tmp_path / "proc/x").read_text() == "four"
    assert sorted(path.name for path in (tmp_path / "proc").iterdir()) == ["x", "y"]


def test_a_pci_function_below_bridges_and_a_missing_one(tmp_path: Path) -> None:
    folder = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0"
    tree.write_files(tmp_path, {f"{folder}/numa_node": "-1\n", f"{folder}/vendor": "0x10de\n"})
    tree.make_links(tmp_path, {"/sys/bus/pci/devices/0000:1b:00.0": f"../../..{folder.removeprefix('/sys')}"})
    function = pci.read_function(tmp_path, "0000:1b:00.0")
    assert (function.root, function.numa_node, function.vendor, function.driver) == ("pci0000:15", None, "0x10de", None)
    assert pci.read_function(tmp_path, "0000:ff:00.0").root is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("0008:01:00.0", "0008:01:00.0"),
        ("nonsense", None),
        ("1b:00.9", None),
    ],
)
def test_addresses_in_any_spelling(text: str, address: str | None) -> None:
    assert pci.sysfs_address(text) == address
    if address is not None:
        assert pci.sysfs_address(pci.nvml_address(address)) == address
