"""PCI functions as sysfs shows them: the root they hang on, and the NUMA nodes around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from drakkar.hardware.pci import read_function
from drakkar.vendors.nvidia.kernel import pci_gpus

ADDRESS = "0000:1b:00.0"


def function(root: Path, target: str = f"pci0000:15/0000:15:01.0/{ADDRESS}", **files: str) -> Path:
    folder = root / "sys/devices" / target
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / folder.name).symlink_to(f"../../../devices/{target}")
    return folder


def nodes(root: Path, distances: list[str], cpus: list[str], sockets: dict[int, int]) -> None:
    for number, (row, listed) in enumerate(zip(distances, cpus, strict=True)):
        folder = root / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "distance").write_text(f"{row}\n")
        (folder / "cpulist").write_text(f"{listed}\n")
    for cpu, socket in sockets.items():
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{socket}\n")


def test_the_root_is_the_first_one_on_the_way_to_a_function(tmp_path: Path) -> None:
    function(tmp_path, f"pci0000:00/0000:00:0e.0/pci0001:00/0001:00:01.0/{ADDRESS}")
    assert read_function(tmp_path, ADDRESS).root == "pci0000:00"


@pytest.mark.parametrize(
    ("distances", "cpus", "sockets", "expected"),
    [
        # two sockets, each cut in two: the sibling is as near as any
        (
            ["10 12 32 32", "12 10 32 32", "32 32 10 12", "32 32 12 10"],
            ["0-3", "4-7", "8-11", "12-15"],
            {0: 0, 4: 0, 8: 1, 12: 1},
            (1,),
        ),
        # two whole sockets: the other one is nearest, and another socket
        (["10 21", "21 10"], ["0-7", "8-15"], {0: 0, 8: 1}, ()),
        # memory without CPUs is of no socket, and counts
        (["10 20", "20 10"], ["0-7", ""], {0: 0}, (1,)),
        # a kernel that tells no sockets: whatever is as near
        (["10 12 12", "12 10 12", "12 12 10"], ["0", "1", "2"], {}, (1, 2)),
        (["10"], ["0-7"], {0: 0}, ()),
        ([""], ["0-7"], {0: 0}, ()),
    ],
)
def test_numa_neighbours_are_those_of_the_socket_that_are_as_near_as_any(
    tmp_path: Path, distances: list[str], cpus: list[str], sockets: dict[int, int], expected: tuple[int, ...]
) -> None:
    function(tmp_path, numa_node="0")
    nodes(tmp_path, distances, cpus, sockets)
    found = read_function(tmp_path, ADDRESS)
    assert (found.numa_node, found.numa_neighbours) == (0, expected)


def test_a_function_of_no_node_has_no_neighbours(tmp_path: Path) -> None:
    function(tmp_path, numa_node="-1")
    nodes(tmp_path, ["10 12", "12 10"], ["0", "1"], {})
    assert read_function(tmp_path, ADDRESS).numa_neighbours == ()


def test_virtual_functions_are_not_counted_among_the_gpus(tmp_path: Path) -> None:
    function(tmp_path, **{"vendor": "0x10de", "class": "0x030200"})
    for number in (4, 5):
        virtual = function(tmp_path, f"pci0000:15/0000:1b:00.{number}", **{"vendor": "0x10de", "class": "0x030200"})
        (virtual / "physfn").symlink_to(f"../0000:15:01.0/{ADDRESS}")
    assert pci_gpus(tmp_path) == [ADDRESS]
