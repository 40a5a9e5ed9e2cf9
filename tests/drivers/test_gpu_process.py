"""The GPU driver as a process of its own."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_api import FakeApi

from drakkar.cli.driver import command
from drakkar.drivers.gpu import process
from drakkar.drivers.gpu.classes import device_classes
from drakkar.drivers.gpu.driver import GpuDriver
from drakkar.errors import DrakkarError
from drakkar.kube.client import Client
from drakkar.vendors.nvidia.published import PublishOptions
from drakkar.vendors.nvidia.simulated import build_machine

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def places(folder: Path) -> process.Paths:
    return process.Paths(folder / "p", folder / "r", folder / "cdi")


def test_it_serves_until_told_to_stop_and_leaves_its_slices(tmp_path: Path) -> None:
    async def main() -> None:
        api = FakeApi()
        api.put("/api/v1/nodes/n1", {"kind": "Node"})
        machine = build_machine("l40s", "n1", tmp_path / "machine")
        stop = asyncio.Event()
        seen: list[list[str]] = []

        def ready(driver: GpuDriver) -> None:
            seen.append(sorted(path.name for path in tmp_path.rglob("*.sock")))
            stop.set()

        serving = process.serve(machine, Client(api), "n1", places(tmp_path), on_ready=ready, stop=stop)
        await asyncio.wait_for(serving, 20)
        assert seen == [["dra.sock", "gpu.nvidia.com-reg.sock"]]
        assert not list(tmp_path.rglob("*.sock"))
        assert len(api.under(SLICES)) == 1
        assert (tmp_path / "p" / "gpu.nvidia.com" / "claims.journal").exists()

    asyncio.run(main())


def test_a_second_driver_of_the_name_and_a_bad_folder_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        api = FakeApi()
        machine = build_machine("t4", "n1", tmp_path / "machine")
        first = GpuDriver(
            machine,
            node_name="n1",
            client=Client(api),
            plugins_dir=tmp_path / "p",
            registry_dir=tmp_path / "r",
            cdi_dir=tmp_path / "cdi",
            state_dir=tmp_path / "s",
        )
        await first.start()
        try:
            with pytest.raises(DrakkarError, match="another plugin of driver gpu"):
                await process.serve(machine, Client(api), "n1", places(tmp_path))
        finally:
            await first.stop()
        (tmp_path / "file").write_text("")
        wrong = process.Paths(tmp_path / "file" / "p", tmp_path / "r", tmp_path / "cdi")
        with pytest.raises(DrakkarError) as caught:
            await process.serve(machine, Client(api), "n1", wrong)
        assert str(tmp_path / "file") in f"{caught.value.message} {caught.value.subject}"

    asyncio.run(main())


def test_classes_are_those_of_nvidias_chart() -> None:
    classes = {obj["metadata"]["name"]: obj["spec"] for obj in device_classes()}
    assert list(classes) == ["gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"]
    assert classes["gpu.nvidia.com"]["extendedResourceName"] == "nvidia.com/gpu"
    assert classes["mig.nvidia.com"]["selectors"] == [
        {
            "cel": {
                "expression": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
            }
        }
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], PublishOptions(extras=True)),
        (["--list-attributes"], PublishOptions(extras=True, list_attributes=True)),
        (["--ignore-xids=48, 63"], PublishOptions(extras=True, ignored_xids=frozenset({48, 63}))),
        (["--dynamic-mig", "--shares=1000"], PublishOptions(extras=True, dynamic_mig=True, shares=1000)),
        (["--passthrough", "--shares=memory"], PublishOptions(extras=True, passthrough=True, shares="memory")),
    ],
)
def test_the_commands_options_are_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: PublishOptions
) -> None:
    asked: list[PublishOptions] = []
    monkeypatch.setattr(process, "run", lambda machine, *, options, **_: asked.append(options))
    done = CliRunner().invoke(command, ["gpu", "--machine=l40s", f"--machine-dir={tmp_path}", *words])
    assert (done.exit_code, asked) == (0, [expected])
