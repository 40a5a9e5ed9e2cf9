"""The container's nvidia-smi, in a private root made of what an injection would have put there."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from drakkar.hardware import tree
from drakkar.hardware.machine import DeviceNode
from drakkar.vendors.nvidia import files
from drakkar.vendors.nvidia.simulated import SimulatedMachine, build_machine

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


class Container:
    """A root with the driver's files and the device nodes that the container was given."""

    def __init__(self, folder: Path, machine: SimulatedMachine, *, access: str = "") -> None:
        self.root = folder / "container"
        self.machine = machine
        self.access = access
        driver = machine.driver_root
        for path in (
            *files.libraries(machine.driver_version, machine.architecture),
            files.SMI_PATH,
            files.SMI_DATA_FOLDER,
        ):
            target = self.root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(driver / path.lstrip("/"))
        (self.root / "dev").mkdir()

    def give(self, *nodes: DeviceNode, access: str = "") -> "Container":
        for node in nodes:
            path = self.root / node.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{node.kind} {node.major} {node.minor} {access or 'rw'}\n")
        return self

    def run(
        self, *arguments: str, shell: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = str(self.root / "usr/bin/nvidia-smi")
        start = {"": [program], "busybox": ["busybox", "sh", program]}.get(shell, [shell, program])
        variables = {"PATH": os.environ["PATH"]} | (env or {})
        return subprocess.run([*start, *arguments], capture_output=True, text=True, env=variables, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedMachine:
    return build_machine("dgx-h100", "n1", tmp_path / "machine")


def with_gpus(folder: Path, machine: SimulatedMachine, *minors: int) -> Container:
    nodes = [node for gpu in machine.gpus() if gpu.minor in minors for node in gpu.nodes]
    return Container(folder, machine).give(*machine.control_nodes(), *nodes)


def test_the_list_shows_what_the_nodes_numbers_say(tmp_path: Path, machine: SimulatedMachine) -> None:
    result = with_gpus(tmp_path, machine, 3, 5).run("-L")
    three, five = machine.gpus()[3], machine.gpus()[5]
    assert result.returncode == 0, result.stderr
    assert result.stdout == (
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {three.uuid})\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: {five.uuid})\n"
    )


def test_a_nodes_name_and_the_environment_mean_nothing(tmp_path: Path, machine: SimulatedMachine) -> None:
    container = Container(tmp_path, machine).give(*machine.control_nodes(), DeviceNode("/dev/nvidia0", 195, 6))
    everything = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1,2"}
    assert container.run("-L", env=everything).stdout.count("GPU-") == 1
    assert machine.gpus()[6].uuid in container.run("-L").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="real device nodes need root")
def test_real_nodes_are_opened_and_an_absent_driver_is_fine(tmp_path: Path, machine: SimulatedMachine) -> None:
    container = Container(tmp_path, machine)
    for node in (*machine.control_nodes(), *machine.gpus()[2].nodes):
        tree.make_node(container.root, node)
    result = container.run("-L")
    assert machine.gpus()[2].uuid in result.stdout
    assert (result.returncode, result.stderr) == (0, "")


def test_no_node_is_no_device(tmp_path: Path, machine: SimulatedMachine) -> None:
    result = Container(tmp_path, machine).run("-L")
    assert (result.returncode, result.stdout) == (6, "No devices were found\n")
    control_only = Container(tmp_path / "b", machine).give(*machine.control_nodes()).run()
    assert (control_only.returncode, control_only.stdout) == (6, "No devices were found\n")


def test_a_refused_node_is_said_to_be_refused(tmp_path: Path, machine: SimulatedMachine) -> None:
    gpu = machine.gpus()[0]
    refused = Container(tmp_path, machine).give(*machine.control_nodes()).give(*gpu.nodes, access="none")
    result = refused.run("-L")
    assert (result.returncode, result.stdout) == (255, "Failed to initialize NVML: Unknown Error\n")
    assert "/dev/nvidia0 (195:0) cannot be opened: the device cgroup" in result.stderr
    beside = refused.give(*machine.gpus()[1].nodes).run("-L")
    assert beside.returncode == 0
    assert machine.gpus()[1].uuid in beside.stdout and gpu.uuid not in beside.stdout
    control = Container(tmp_path / "c", machine).give(*gpu.nodes).give(*machine.control_nodes(), access="none")
    assert control.run("-L").returncode == 255


def test_a_lost_gpu_fails_the_table_and_its_neighbours_still_answer(tmp_path: Path, machine: SimulatedMachine) -> None:
    container = with_gpus(tmp_path, machine, 0, 1)
    machine.lose_gpu(0)
    sentence = "Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error\n"
    table, listing = container.run(), container.run("-L")
    assert (table.returncode, table.stdout) == (15, sentence)
    assert listing.stdout == sentence + "No devices were found\n"
    assert machine.gpus()[1].uuid in container.run("-i", "1", "-L").stdout
    machine.recover_gpu(0)
    assert container.run("-L").returncode == 0


def test_driver_and_library_must_be_there_and_of_one_version(tmp_path: Path, machine: SimulatedMachine) -> None:
    container = with_gpus(tmp_path, machine, 0)
    machine.unload_driver()
    assert container.run().returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in container.run().stdout
    machine.load_driver("590.48.01", "13.1")
    library = container.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
    library.unlink()
    library.write_text("the one that was mounted before")
    mismatch = container.run()
    assert (mismatch.returncode, mismatch.stdout.splitlines()) == (
        18, ["Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 580.95"],
    )  # fmt: skip
    library.unlink()
    assert container.run().returncode == 12
    assert "couldn't find libnvidia-ml.so" in container.run().stdout


def test_the_table_keeps_its_frame(tmp_path: Path, machine: SimulatedMachine) -> None:
    machine.create_mig(1, "3g.40gb")
    machine.create_mig(1, "1g.10gb+me")
    nodes = [node for one in machine.gpus()[1].mig_instances for node in one.nodes]
    container = with_gpus(tmp_path, machine, 0).give(*nodes)
    result = container.run()
    lines = result.stdout.splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} {7}", lines[0])
    assert "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |" in lines
    assert "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |" in lines
    assert "|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                   On |" in lines
    assert "| N/A   29C    P0             77W /  700W |       0MiB /  81559MiB |     N/A      Default |" in lines
    assert "|  1    2   0   0  |               0MiB / 40448MiB    | 60      0 |  3   0    3    0    3 |" in lines
    assert "|                  |               0MiB / 24739MiB    |           |                       |" in lines
    assert "|  No running processes found                                                             |" in lines


def test_long_names_are_cut_with_three_dots(tmp_path: Path) -> None:
    machine = build_machine("rtx-pro-6000", "n1", tmp_path / "machine")
    result = with_gpus(tmp_path, machine, 0).run()
    assert "NVIDIA RTX PRO 6000 Blac..." in result.stdout
    assert {len(line) for line in result.stdout.splitlines()[1:] if line} == {91}


def test_mig_devices_need_both_capability_nodes(tmp_path: Path, machine: SimulatedMachine) -> None:
    one, two = machine.create_mig(1, "3g.40gb"), machine.create_mig(1, "1g.10gb")
    container = Container(tmp_path, machine).give(*machine.control_nodes(), *one.nodes, *two.nodes[:2])
    lines = container.run("-L").stdout.splitlines()
    assert lines[1:] == [f"  MIG 3g.40gb     Device  0: (UUID: {one.uuid})"]
    bare = Container(tmp_path / "bare", machine).give(*machine.control_nodes(), one.nodes[0])
    assert "No MIG devices found" in bare.run().stdout


def test_csv_queries(tmp_path: Path, machine: SimulatedMachine) -> None:
    machine.set_mig_mode(1, True)
    container = with_gpus(tmp_path, machine, 0, 1)
    zero, one = machine.gpus()[:2]
    fields = "--query-gpu=index,name,uuid,pci.bus_id,memory.total,utilization.gpu,mig.mode.current,compute_cap,count"
    assert container.run(fields, "--format=csv").stdout.splitlines() == [
        "index, name, uuid, pci.bus_id, memory.total [MiB], utilization.gpu [%], mig.mode.current, compute_cap, count",
        f"0, NVIDIA H100 80GB HBM3, {zero.uuid}, 00000000:1B:00.0, 81559 MiB, 0 %, Disabled, 9.0, 2",
        f"1, NVIDIA H100 80GB HBM3, {one.uuid}, 00000000:43:00.0, 81559 MiB, [N/A], Enabled, 9.0, 2",
    ]
    bare = container.run("--query-gpu=memory.total,utilization.gpu", "--format=csv,noheader,nounits")
    assert bare.stdout == "81559, 0\n81559, [N/A]\n"
    units = container.run("--query-gpu=memory.total", "--format=csv,nounits", "-i", one.uuid)
    assert units.stdout == "memory.total [MiB]\n81559\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--query-gpu=memory.totl", "--format=csv"], 'Field "memory.totl" is not a valid field to query.'),
        (["--query-gpu=$(id)", "--format=csv"], "is not a valid field to query."),
        (["--query-gpu=name"], '"--format=csv" is required'),
        (["--no-such-option"], "Invalid combination of input arguments"),
        (["-i"], "Invalid combination of input arguments"),
    ],
)
def test_bad_arguments_exit_with_2(tmp_path: Path, machine: SimulatedMachine, arguments: list[str], text: str) -> None:
    result = with_gpus(tmp_path, machine, 0).run(*arguments)
    assert result.returncode == 2
    assert text in result.stdout
    assert "uid=" not in result.stdout


def test_the_page_and_the_version(tmp_path: Path, machine: SimulatedMachine) -> None:
    machine.create_mig(0, "1g.10gb")
    nodes = machine.gpus()[0].mig_instances[0].nodes
    container = with_gpus(tmp_path, machine, 0, 2).give(*nodes)
    page = container.run("-q").stdout.splitlines()
    assert "Attached GPUs                                          : 2" in page
    assert "GPU 00000000:52:00.0" in page
    assert f"    GPU UUID                                           : {machine.gpus()[2].uuid}" in page
    assert "        Total                                          : 81559 MiB" in page
    assert "        GPU Instance ID                                : 13" in page
    assert "            Total                                      : 9984 MiB" in page
    assert {line.index(": ") for line in page if ": " in line} == {55}
    assert container.run("--version").stdout.splitlines() == [
        "NVIDIA-SMI version  : 580.95.05", "NVML version        : 580.95",
        "DRIVER version      : 580.95.05", "CUDA Version        : 13.0",
    ]  # fmt: skip


def test_a_root_with_a_blank_in_its_path(tmp_path: Path, machine: SimulatedMachine) -> None:
    folder = tmp_path / "a folder"
    container = with_gpus(folder, machine, 2).give(*machine.gpus()[3].nodes, access="none")
    result = container.run("-L")
    assert machine.gpus()[2].uuid in result.stdout
    assert result.stderr.startswith("nvidia-smi: /dev/nvidia3 (195:3) cannot be opened")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_says_the_same(tmp_path: Path, machine: SimulatedMachine, shell: str) -> None:
    machine.create_mig(1, "3g.40gb")
    container = with_gpus(tmp_path, machine, 0).give(*machine.gpus()[1].mig_instances[0].nodes)
    container.give(*machine.gpus()[4].nodes, access="none")
    for arguments in (["-L"], ["-q"], ["--query-gpu=name,uuid", "--format=csv"], ["--version"]):
        own, other = container.run(*arguments), container.run(*arguments, shell=shell)
        clean = [re.sub(r"Timestamp.*", "", result.stdout) for result in (own, other)]
        assert clean[0] == clean[1]
        assert (own.returncode, own.stderr) == (other.returncode, other.stderr)
