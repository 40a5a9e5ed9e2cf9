"""What generation does beyond NVIDIA's: hosts without NVML, limits of runtimes, watching, and clear errors."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from drakkar.cli.cdi import generate as generating
from drakkar.cli.cdi.transform import command as transforming
from drakkar.cli.cdi.watch import Keeper
from drakkar.cli.cdi.watch import command as watching
from drakkar.errors import DrakkarError
from drakkar.hardware.lookup import Root
from drakkar.injection.spec import CdiSpec
from drakkar.vendors.nvidia.cdi import ld_cache
from drakkar.vendors.nvidia.cdi.soname import soname
from tests.conftest import missing
from tests.vendors import cdi_hosts
from tests.vendors.nvml import VARIABLE

HOOK = "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook"


class Host:
    """The tree of a host that has what it should have, until the test takes something away."""

    def __init__(self, folder: Path, name: str) -> None:
        self.root, self.served = cdi_hosts.build(name, folder)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(generating.command, [f"--driver-root={self.root}", HOOK, *words])

    def made(self, *words: str) -> dict[str, Any]:
        result = self.run(*words)
        assert result.exception is None, result.exception
        CdiSpec.parse(result.stdout, profile="strict")
        tree: dict[str, Any] = yaml.safe_load(result.stdout)
        return tree

    def refused(self, *words: str) -> DrakkarError:
        error = self.run(*words).exception
        assert isinstance(error, DrakkarError), error
        return error


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if os.geteuid() != 0:
        missing("root", "needs root: trees have device nodes with owners")

    def build(name: str) -> Host:
        one = Host(tmp_path, name)
        monkeypatch.setenv(VARIABLE, str(one.served))
        return one

    return build


def names(tree: dict[str, Any]) -> list[str]:
    return [device["name"] for device in tree["devices"]]


def test_without_nvml_the_kernel_names_the_same_gpus(host: Any) -> None:
    one = host("rhel-l40s")
    with_nvml = one.made()
    for library in one.root.rglob("libnvidia-ml*"):
        library.unlink()
    result = one.run()
    assert "libnvidia-ml.so.1 cannot be used" in result.stderr
    without = yaml.safe_load(result.stdout)
    assert without["devices"] == with_nvml["devices"]


def test_a_gpu_off_the_bus_is_left_out_and_named(host: Any) -> None:
    one = host("rhel-l40s")
    one.served.write_text(one.served.read_text() + "lost\t2\t1\n")
    result = one.run("--device-name-strategy=index")
    assert names(yaml.safe_load(result.stdout)) == ["0", "1", "3", "all"]
    assert "GPU 2 (0000:b1:00.0) has fallen off the bus: left out" in result.stderr


def test_a_gpu_without_a_node_is_left_out_and_named(host: Any) -> None:
    one = host("rhel-l40s")
    (one.root / "dev/nvidia1").unlink()
    for node in ("card1", "renderD129"):
        (one.root / "dev/dri" / node).unlink()
    result = one.run("--device-name-strategy=index")
    assert names(yaml.safe_load(result.stdout)) == ["0", "2", "3", "all"]
    assert "has no device node below" in result.stderr


@pytest.mark.parametrize("version", ["0.5.0", "0.6.0", "v0.7.0", "1.1.0"])
def test_an_older_runtime_gets_what_it_can_read(host: Any, version: str) -> None:
    tree = host("rhel-l40s").made(f"--max-cdi-version={version}")
    assert tree["cdiVersion"] == ("0.7.0" if version in ("v0.7.0", "1.1.0") else "0.5.0")
    assert ("additionalGids" in str(tree)) == (version in ("v0.7.0", "1.1.0"))


def test_what_an_older_runtime_cannot_have_is_refused_with_the_reason(host: Any) -> None:
    one = host("rhel-l40s")
    error = one.refused("--max-cdi-version=0.4.0", "--device-name-strategy=type-index")
    assert error.message.startswith("deviceNodes.hostPath in ")
    assert error.next_step == "use --max-cdi-version 0.5.0 or a newer consumer"
    assert "one of 0.3.0" in one.refused("--max-cdi-version=2.0.0").expected


def test_numbers_can_be_left_to_the_runtime(host: Any) -> None:
    tree = host("smallest-t4").made("--no-device-numbers")
    nodes = [node for one in (tree, *tree["devices"]) for node in one["containerEdits"].get("deviceNodes", ())]
    assert nodes
    assert not any("major" in node or "minor" in node for node in nodes)


def test_wsl_has_one_device_and_its_driver_store(host: Any) -> None:
    one = host("wsl")
    tree = one.made()
    assert names(tree) == ["all"]
    assert tree["devices"][0]["containerEdits"]["deviceNodes"][0]["path"] == "/dev/dxg"
    mounted = [Path(mount["containerPath"]).name for mount in tree["containerEdits"]["mounts"]]
    assert {"libdxcore.so", "libcuda.so.1.1", "nvcubins.bin", "extra.dll", "libnvcuvid.so.1"} <= set(mounted)
    assert "igd.dll" not in mounted
    assert [hook["args"][1] for hook in tree["containerEdits"]["hooks"]] == ["create-symlinks", "update-ldcache"]
    assert tree == one.made("--mode=wsl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device-id=9"], "there is no GPU or MIG device '9'"),
        (["--disable-hook=nonsense"], "there is no hook 'nonsense'"),
        (["--enable-hook=all"], "all hooks cannot be enabled at once"),
        (["--feature-flag=x"], "there is no feature 'x'"),
        (["--mode=gds"], "there are no device nodes for mode gds"),
        (["--mode=imex", "--device-id=x"], "'x' is no IMEX channel"),
        (["--mode=imex", "--device-id=7"], "there is no IMEX channel 7"),
        (["--mode=wsl"], "there is no driver store with NVIDIA's driver"),
        (["--mode=csv"], "no CSV file lists anything for containers"),
        (["--mode=mig-caps", "--device-id=x"], "'x' is no MIG capability"),
        (["--output=/nonexistent/x.yml"], "runtimes read .json and .yaml only"),
        (["--output=/tmp/x.json", "--format=yaml"], "--format yaml does not fit the file's name"),
        (["--cdi-vendor=-"], 'invalid vendor. "-", should start with letter'),
    ],
)
def test_what_cannot_be_made_is_one_clear_sentence(host: Any, words: list[str], message: str) -> None:
    assert message in host("smallest-t4").refused(*words).message


def test_a_driver_root_without_a_driver_says_what_is_missing(tmp_path: Path) -> None:
    error = CliRunner().invoke(generating.command, [f"--driver-root={tmp_path}", f"--sys-root={tmp_path}"]).exception
    assert isinstance(error, DrakkarError)
    assert "the NVIDIA kernel module is not loaded; there is no libnvidia-ml.so.1 below" in error.message


def test_a_file_is_written_for_everybody_to_read_in_the_format_of_its_name(host: Any, tmp_path: Path) -> None:
    one = host("smallest-t4")
    result = one.run(f"--output={tmp_path}/cdi/nvidia.json")
    assert "nvidia.com/gpu with 3 devices" in result.stderr
    written = tmp_path / "cdi/nvidia.json"
    assert written.stat().st_mode & 0o777 == 0o644
    assert written.read_text().startswith("{")
    assert sorted(CdiSpec.load(written).devices) == names(one.made())


# --- watching -------------------------------------------------------------------------------------------------------


@pytest.fixture
def keeper(host: Any, tmp_path: Path) -> Any:
    made: list[Keeper] = []

    def keep(name: str, *words: str) -> tuple[Host, Keeper, Path]:
        one = host(name)
        output = tmp_path / "cdi/nvidia.yaml"
        with generating.command.make_context("generate", [f"--driver-root={one.root}", HOOK, *words]) as context:
            asked = {key: value for key, value in context.params.items() if key not in ("form", "output")}
        made.append(Keeper(asked, output))
        return one, made[-1], output

    yield keep
    for one in made:
        one.close()


def test_a_file_follows_mig_nodes_and_the_driver_and_says_what_changed(keeper: Any) -> None:
    one, watch, output = keeper("ubuntu-dgx-h100", "--device-name-strategy=index")
    (line,) = watch.look()
    assert line.startswith(f"{output} written: 11 devices: 0, 1:0, 1:1, 1:2, 2, 3 and 5 more")
    assert list(watch.look()) == []
    before = output.stat().st_ino
    one.served.write_text(one.served.read_text() + "gone\t1\t2\n")
    (line,) = watch.look()
    assert "1 device gone: 1:2" in line
    assert output.stat().st_ino != before
    (one.root / "dev/nvidia-uvm").unlink()
    (line,) = watch.look()
    assert "1 node gone: /dev/nvidia-uvm (510:0)" in line
    output.unlink()
    (line,) = watch.look()
    assert output.exists()


def test_without_a_driver_the_file_stays_and_the_reason_is_said_once(keeper: Any) -> None:
    one, watch, output = keeper("smallest-t4")
    loaded = one.served.read_text()
    one.served.write_text(loaded + "answer\tnvmlInit_v2\t9\n")
    first = list(watch.look())
    one.served.write_text(loaded)
    (line,) = watch.look()
    text = output.read_text()
    assert (first, line.partition(":")[0]) == ([], f"{output} written") or first[0].startswith("waiting: ")
    one.served.write_text(loaded + "answer\tnvmlDeviceGetCount_v2\t9\n")
    (line,) = watch.look()
    assert line == (
        "waiting: NVML does not answer: nvmlDeviceGetCount_v2: the NVIDIA kernel module is not loaded"
        " (the file stays as it is)"
    )
    assert list(watch.look()) == []
    assert output.read_text() == text


def test_watch_once_waits_for_the_driver_and_ends(host: Any, tmp_path: Path) -> None:
    one = host("smallest-t4")
    words = [f"--driver-root={one.root}", HOOK, f"--output={tmp_path}/nvidia.yaml", "--once", "--interval=0.1"]
    result = CliRunner().invoke(watching, words)
    assert (result.exit_code, result.exception) == (0, None)
    assert result.stdout.split(" ", 1)[1].startswith(f"{tmp_path}/nvidia.yaml written: 3 devices: ")
    again = CliRunner().invoke(watching, words)
    assert (again.exit_code, again.stdout) == (0, "")  # the file was right already


def test_a_written_file_moves_to_another_root(host: Any, tmp_path: Path) -> None:
    one = host("smallest-t4")
    one.run(f"--output={tmp_path}/a.yaml")
    words = ["root", f"--from={one.root}", "--to=/run/nvidia/driver", f"--input={tmp_path}/a.yaml"]
    result = CliRunner().invoke(transforming, [*words, f"--output={tmp_path}/b.json"])
    assert result.exception is None
    moved = CdiSpec.load(tmp_path / "b.json").to_dict()
    hosts = {mount["hostPath"] for mount in moved["containerEdits"]["mounts"]} - {"/dev/null"}
    assert {path.startswith("/run/nvidia/driver/usr/") for path in hosts} == {True}
    printed = CliRunner().invoke(transforming, words)
    assert yaml.safe_load(printed.stdout) == moved
    wrong = CliRunner().invoke(transforming, ["root", "--from=/", "--to=/", f"--input={tmp_path}/gone.yaml"])
    assert isinstance(wrong.exception, DrakkarError)


# --- reading files --------------------------------------------------------------------------------------------------


def test_a_damaged_loader_cache_is_an_empty_one() -> None:
    whole = cdi_hosts.ld_cache(["/opt/a/liba.so.1", "/opt/b/libb.so.1"])
    assert ld_cache.libraries(whole) == ["/opt/a/liba.so.1", "/opt/b/libb.so.1"]
    for length in range(0, len(whole), 7):
        ld_cache.libraries(whole[:length])
    for position in range(0, 120):
        ld_cache.libraries(whole[:position] + b"\xff" + whole[position + 1 :])
    assert ld_cache.libraries(whole.replace(struct.pack("<20sI", b"glibc-ld.so.cache1.1", 4), bytes(24))) == []


def test_a_soname_is_read_and_anything_else_is_none(tmp_path: Path) -> None:
    library = cdi_hosts.library("libx.so.1")
    file = tmp_path / "libx.so.1.2"
    file.write_bytes(library)
    assert soname(str(file)) == "libx.so.1"
    file.write_bytes(cdi_hosts.library(""))
    assert soname(str(file)) == "libx.so.1.2"
    assert soname(str(tmp_path / "gone")) is None
    for length in range(0, len(library), 53):
        file.write_bytes(library[:length])
        soname(str(file))
    file.write_text("simulated\n")
    assert soname(str(file)) is None


def test_links_below_a_root_stay_below_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/real.so").write_text("x")
    for name, target in {"a": "/lib/real.so", "b": "../lib/a", "c": "../../../../lib/real.so", "loop": "loop"}.items():
        (tmp_path / "lib" / name).symlink_to(target)
    root = Root(tmp_path)
    assert root.find("*", ("/lib",)) == [str(tmp_path / "lib" / name) for name in ("a", "b", "c", "real.so")]
    assert {root.resolve(str(tmp_path / "lib" / name)) for name in "abc"} == {str(tmp_path / "lib/real.so")}
