"""Shares of a GPU's memory: the hook of each container, MPS instead, and a slice that says what enforces them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gpu_node import GpuNode, running
from test_gpu_mps import config, folders, log, until

from drakkar.cli.driver import command
from drakkar.vendors.nvidia.published import PublishOptions

MEMORY = PublishOptions(shares="memory")
BY_MPS = PublishOptions(shares="memory", enforcement="mps")
STRICT = PublishOptions(shares="memory", enforcement="cgroup")


def enforcing(tmp_path: Path, options: PublishOptions = MEMORY, model: str = "dgx-h100") -> GpuNode:
    """A node whose driver is of the first branch that limits memory."""
    node = GpuNode(tmp_path, model, options=options)
    node.build()
    node.machine.load_driver("615.43.02", "13.3")
    return node


def consumed(memory: str, share: str = "s1") -> dict[str, Any]:
    return {"shareID": share, "consumedCapacity": {"memory": memory}}


def hooks(node: GpuNode, uid: str) -> list[dict[str, Any]]:
    spec = node.spec(uid)
    assert spec is not None
    return [hook for device in spec["devices"] for hook in device["containerEdits"].get("hooks", ())]


def told(devices: list[dict[str, Any]]) -> set[str]:
    return {device["attributes"].get("drakkar.dev/memoryEnforcement", {}).get("string", "-") for device in devices}


def container(tmp_path: Path, name: str, all_hooks: list[dict[str, Any]], *variables: str) -> Path:
    """A container as a runtime has it when it runs hooks; its first process is this one."""
    bundle = tmp_path / name
    (bundle / "rootfs").mkdir(parents=True)
    configuration = {
        "root": {"path": "rootfs"},
        "process": {"env": list(variables)},
        "hooks": {"createRuntime": [{key: hook[key] for key in ("path", "args")} for hook in all_hooks]},
    }
    (bundle / "config.json").write_text(json.dumps(configuration))
    return bundle


def run(hook: dict[str, Any], bundle: Path) -> subprocess.CompletedProcess[str]:
    state = json.dumps({"ociVersion": "1.0.2", "id": bundle.name, "pid": os.getpid(), "bundle": str(bundle)})
    return subprocess.run(
        [hook["path"], *hook["args"][1:]], input=state, capture_output=True, text=True, timeout=30, check=False
    )


def test_containers_of_a_share_are_held_to_it_by_the_driver(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(enforcing(tmp_path)) as node:
            assert told(await node.published()) == {"cgroup"}
            gpu = node.machine.devices()[3]
            uid = node.claim("c", "gpu-3", pods=("p",), **consumed("10Gi"))
            assert not (await node.prepare("c", uid)).error
            (hook,) = hooks(node, uid)
            assert hook["hookName"] == "createRuntime"
            assert hook["args"][-4:] == ["--gpu-id", gpu.uuid, "--limit", "10240"]
            bundle = container(tmp_path, "box", [hook])
            ended = run(hook, bundle)
            assert ended.returncode == 0, ended.stderr
            assert node.machine.memory_limits() == {"box": {gpu.uuid: 10240}}
            assert (bundle / "rootfs/etc/nvidia-smi/limits" / gpu.uuid).read_text() == "10240\n"
            assert not (await node.unprepare("c", uid)).error
            assert node.files() == []  # and with the file the hook

    asyncio.run(main())


def test_claims_of_one_container_on_one_gpu_add_up_and_its_variables_can_only_ask_for_less(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(enforcing(tmp_path)) as node:
            first = node.claim("a", "gpu-0", pods=("p",), **consumed("10Gi", "s1"))
            second = node.claim("b", "gpu-0", pods=("p",), **consumed("6Gi", "s2"))
            for name, uid in (("a", first), ("b", second)):
                assert not (await node.prepare(name, uid)).error
            both = hooks(node, first) + hooks(node, second)
            cases = {
                "plain": ((), 16384),
                "less": (("NVIDIA_GPU_MEMORY_LIMIT=4096",), 4096),
                "more": (("NVIDIA_GPU_MEMORY_LIMIT=999999",), 16384),
            }
            (gpu,) = {hook["args"][hook["args"].index("--gpu-id") + 1] for hook in both}
            for name, (variables, limit) in cases.items():
                bundle = container(tmp_path, name, both, *variables)
                for hook in both:
                    assert run(hook, bundle).returncode == 0
                assert node.machine.memory_limits()[name] == {gpu: limit}
            bundle = container(tmp_path, "greedy", both, "NVIDIA_GPU_MEMORY_REQUEST=20480")
            ended = run(both[0], bundle)
            assert (ended.returncode, "more than the claim's share (16384 MiB)" in ended.stderr) == (1, True)

    asyncio.run(main())


def test_two_shares_of_one_claim_on_one_gpu_are_one_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(enforcing(tmp_path)) as node:
            uid = node.claim("c", "gpu-0", "gpu-0", **consumed("3Gi"))
            assert not (await node.prepare("c", uid)).error
            (hook,) = hooks(node, uid)
            assert hook["args"][-1] == "6144"

    asyncio.run(main())


@pytest.mark.parametrize("amount", ["0", None])
def test_who_asked_for_no_memory_has_no_limit(tmp_path: Path, amount: str | None) -> None:
    async def main() -> None:
        async with running(enforcing(tmp_path, PublishOptions(shares=4))) as node:
            capacity = {"shares": "1"} | ({"memory": amount} if amount else {})
            uid = node.claim("c", "gpu-0", shareID="s", consumedCapacity=capacity)
            assert not (await node.prepare("c", uid)).error
            assert hooks(node, uid) == []

    asyncio.run(main())


def test_an_older_driver_enforces_nothing_and_the_slice_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path, options=MEMORY)) as node:
            assert told(await node.published()) == {"none"}
            uid = node.claim("c", "gpu-0", **consumed("10Gi"))
            assert not (await node.prepare("c", uid)).error
            assert hooks(node, uid) == []

    asyncio.run(main())


def test_whole_devices_say_nothing_about_shares(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            assert told(await node.published()) == {"-"}

    asyncio.run(main())


def test_partitions_are_not_limited_by_group(tmp_path: Path) -> None:
    async def main() -> None:
        node = enforcing(tmp_path)
        node.machine.create_mig(0, "3g.40gb")
        async with running(node):
            by_type = {(device["attributes"]["type"]["string"], *told([device])) for device in await node.published()}
            assert by_type == {("gpu", "cgroup"), ("mig", "none")}

    asyncio.run(main())


def test_claims_share_a_partition_that_is_made_for_the_first_and_ends_with_the_last(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path, options=PublishOptions(dynamic_mig=True, shares="memory"))
        async with running(node):
            name = "gpu-2-mig-3g40gb-9-4"
            device = next(one for one in await node.published() if one["name"] == name)
            assert device["allowMultipleAllocations"] and device["consumesCounters"]
            assert device["capacity"]["memory"]["requestPolicy"]["default"] == device["capacity"]["memory"]["value"]
            uids = [node.claim(f"c{number}", name, **consumed("10Gi", f"s{number}")) for number in range(2)]
            for number, uid in enumerate(uids):
                assert (await node.prepare(f"c{number}", uid)).error == ""
            (made,) = node.machine.devices()[2].mig_instances
            assert (await node.unprepare("c0", uids[0])).error == ""
            assert node.machine.devices()[2].mig_instances == (made,)
            assert (await node.unprepare("c1", uids[1])).error == ""
            assert node.machine.devices()[2].mig_instances == ()

    asyncio.run(main())


def test_a_reload_to_a_branch_with_limits_gives_prepared_claims_their_hook(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path, options=MEMORY)) as node:
            uid = node.claim("c", "gpu-0", **consumed("10Gi"))
            assert not (await node.prepare("c", uid)).error
            node.machine.load_driver("615.43.02", "13.3")
            await until(lambda: len(hooks(node, uid)) == 1)
            assert told(await node.published()) == {"cgroup"}
            node.machine.load_driver("580.95.05", "13.0")
            await until(lambda: not hooks(node, uid))

    asyncio.run(main())


def test_mps_enforces_shares_where_it_is_told_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path, options=BY_MPS)) as node:
            assert told(await node.published()) == {"mps"}
            one = node.claim("one", "gpu-0", pods=("p",), **consumed("10Gi", "s1"))
            two = node.claim("two", "gpu-0", pods=("p",), **consumed("20Gi", "s2"))
            for name, uid in (("one", one), ("two", two)):
                assert not (await node.prepare(name, uid)).error
            uuid = node.machine.devices()[0].uuid
            limits = {folder.name[:36]: log(folder) for folder in folders(node)}
            await until(lambda: all("set_default_device_pinned_mem_limit" in log(folder) for folder in folders(node)))
            limits = {folder.name.rpartition("-")[0]: log(folder) for folder in folders(node)}
            assert f"set_default_device_pinned_mem_limit {uuid} 10240M" in limits[one]
            assert f"set_default_device_pinned_mem_limit {uuid} 20480M" in limits[two]
            assert not node.machine.devices()[0].exclusive  # each claim has its daemon on the same GPU
            assert not (await node.unprepare("one", one)).error
            assert [folder.name.rpartition("-")[0] for folder in folders(node)] == [two]
            assert not (await node.unprepare("two", two)).error
            assert not folders(node)

    asyncio.run(main())


def test_a_limit_in_the_parameters_makes_a_share_smaller_but_not_larger(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path, options=BY_MPS)) as node:
            for name, asked, limit in (("less", "4Gi", "4096M"), ("more", "40Gi", "10240M")):
                parameters = config(defaultPinnedDeviceMemoryLimit=asked)
                uid = node.claim(name, "gpu-0" if name == "less" else "gpu-1", configs=[parameters], **consumed("10Gi"))
                assert not (await node.prepare(name, uid)).error
                (folder,) = (one for one in folders(node) if one.name.startswith(uid))
                await until(lambda folder=folder: "set_default_device_pinned_mem_limit" in log(folder))
                assert limit in log(folder)

    asyncio.run(main())


def test_what_cannot_be_enforced_is_refused_where_that_is_demanded(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path, options=STRICT)) as node:
            (reason,) = (one for one in node.driver.node.not_ready() if "no devices" in one)
            assert "driver 580.95.05 has no memory limits: branch R615" in reason
            uid = node.claim("c", "gpu-0", **consumed("10Gi"))
            assert "cannot be enforced" in (await node.prepare("c", uid)).error
            node.machine.load_driver("615.43.02", "13.3")
            assert told(await node.published()) == {"cgroup"}
            assert not (await node.prepare("c", uid)).error

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "memory", "configs", "said"),
    [
        (MEMORY, "ten", [], "consumedCapacity.memory 'ten' is no quantity"),
        (BY_MPS, "1Gi", [{"strategy": "TimeSlicing"}], "sharing.strategy TimeSlicing does not go together"),
        (MEMORY, "1Gi", [{"strategy": "MPS"}], "does not go together with shares"),
    ],
)
def test_wrong_shares_are_told(
    tmp_path: Path, options: PublishOptions, memory: str, configs: list[dict[str, Any]], said: str
) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path, options=options)) as node:
            parameters = [
                {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": one} for one in configs
            ]
            uid = node.claim("c", "gpu-0", configs=parameters, **consumed(memory))
            assert said in (await node.prepare("c", uid)).error
            assert not node.files() and not node.driver.claims

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--enforce-memory=mps"], "--enforce-memory wants --shares"),
        (["--shares=memory", "--enforce-memory=always"], "is not one of 'auto', 'cgroup', 'mps', 'none'"),
        (["--ignore-xids=48,all"], "'all' is not the number of an XID"),
        (["--shares=0"], "is not memory, unlimited or a positive number"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_starts(
    tmp_path: Path, options: list[str], said: str
) -> None:
    machine = ["--machine=dgx-h100", f"--machine-dir={tmp_path}"]
    done = CliRunner().invoke(command, ["gpu", *machine, f"--plugins-dir={tmp_path / 'p'}", *options])
    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "p").exists()
