"""One GPU, several claims: who gets it, who waits for whom and how long, and who may share it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from gpu_node import CLAIMS, PODS, GpuNode, on

from drakkar.kube.clock import FakeClock
from drakkar.kube.transport import ApiResponse

FORBIDDEN = ApiResponse(403, {}, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"})


def test_one_device_never_goes_to_two_claims(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        one, two = node.claim("one", "gpu-0", pods=("p",)), node.claim("two", "gpu-0")
        assert (await node.prepare("one", one)).error == ""
        error = (await node.prepare("two", two)).error
        assert f"gpu-0 is already allocated to different claim {one}" in error
        assert "in use by pod team-a/p" in error
        assert list(node.driver.claims) == [one]

    on(GpuNode(tmp_path), story)


@pytest.mark.parametrize(
    "goes_away",
    [
        lambda node: node.api.remove(f"{CLAIMS}/old"),
        lambda node: node.api.remove(f"{PODS}/p"),
        lambda node: node.api.put(f"{PODS}/p", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        lambda node: node.api.put(f"{PODS}/p", {"status": {"phase": "Succeeded"}}),
        lambda node: node.api.put(f"{CLAIMS}/old", {"status": {}}),
        lambda node: node.api.fail.update({f"GET {CLAIMS}/old": FORBIDDEN}),
    ],
)
def test_a_device_of_a_claim_that_goes_away_is_handed_over_in_the_call(
    tmp_path: Path, goes_away: Callable[[GpuNode], object]
) -> None:
    async def story(node: GpuNode) -> None:
        old, new = node.claim("old", "gpu-0", pods=("p",)), node.claim("new", "gpu-0", pods=("q",))
        assert (await node.prepare("old", old)).error == ""
        goes_away(node)
        waiting = asyncio.ensure_future(node.prepare("new", new))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert (await node.unprepare("old", old)).error == ""
        assert (await waiting).error == ""
        assert list(node.driver.claims) == [new]

    on(GpuNode(tmp_path), story)


@pytest.mark.parametrize("status", [403, 429, 503])
@pytest.mark.parametrize("of", ["new", "old", "pod"])
def test_a_moments_trouble_of_the_api_server_is_no_failed_prepare(tmp_path: Path, of: str, status: int) -> None:
    """The kubelet would come back after 60 to 90 s; neither the claim, nor its holder, nor the holder's pod is lost."""

    async def story(node: GpuNode) -> None:
        old, new = node.claim("old", "gpu-0", pods=("p",)), node.claim("new", "gpu-0", pods=("q",))
        assert (await node.prepare("old", old)).error == ""
        node.api.put(f"{PODS}/p", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        trouble = {"kind": "Status", "code": status, "reason": "Trouble", "message": "later"}
        path = f"{PODS}/p" if of == "pod" else f"{CLAIMS}/{of}"
        node.api.fail[f"GET {path}"] = ApiResponse(status, {}, trouble)
        waiting = asyncio.ensure_future(node.prepare("new", new))
        for _ in range(100_000):
            if not node.api.fail:
                break
            await asyncio.sleep(0)
        assert (await node.unprepare("old", old)).error == ""
        assert (await waiting).error == ""
        assert list(node.driver.claims) == [new]

    on(GpuNode(tmp_path), story)


def test_the_wait_for_a_holder_is_bounded(tmp_path: Path) -> None:
    clock = FakeClock()

    async def story(node: GpuNode) -> None:
        old, new = node.claim("old", "gpu-0"), node.claim("new", "gpu-0")
        assert (await node.prepare("old", old)).error == ""
        node.api.remove(f"{CLAIMS}/old")
        waiting = asyncio.ensure_future(node.prepare("new", new))
        while not waiting.done():
            await clock.advance(1)
            await asyncio.sleep(0.001)
        assert "not released within 30 s" in (await waiting).error

    on(GpuNode(tmp_path, clock=clock), story)


def test_admin_access_neither_waits_nor_holds(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        user, admin = node.claim("user", "gpu-0", pods=("p",)), node.claim("admin", "gpu-0", adminAccess=True)
        assert (await node.prepare("user", user)).error == ""
        assert [one.device_name for one in (await node.prepare("admin", admin)).devices] == ["gpu-0"]
        assert (await node.unprepare("user", user)).error == ""
        other = node.claim("other", "gpu-0")
        assert (await node.prepare("other", other)).error == ""

    on(GpuNode(tmp_path), story)


def slicing(interval: str) -> list[dict[str, Any]]:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return [{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}]


def test_shares_of_one_device_go_to_many_claims_with_equal_parameters(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        one = node.claim("one", "gpu-0", pods=("p",), shareID="s1", configs=slicing("Long"))
        two = node.claim("two", "gpu-0", pods=("p",), shareID="s2", configs=slicing("Long"))
        three = node.claim("three", "gpu-0", shareID="s3", configs=slicing("Short"))
        whole = node.claim("whole", "gpu-0")
        assert (await node.prepare("one", one)).devices[0].share_id == "s1"
        assert (await node.prepare("two", two)).devices[0].share_id == "s2"
        assert "conflicting configuration" in (await node.prepare("three", three)).error
        assert "already allocated" in (await node.prepare("whole", whole)).error
        await node.unprepare("one", one)
        assert node.machine.gpus()[0].time_slice == 3, "the other claim still has its time slice"
        await node.unprepare("two", two)
        assert node.machine.gpus()[0].time_slice == 0

    on(GpuNode(tmp_path), story)


def test_of_two_claims_at_once_one_gets_the_device(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        uids = {name: node.claim(name, "gpu-0", "gpu-1", pods=("p",)) for name in ("a", "b", "c", "d")}
        answers = await asyncio.gather(*(node.prepare(name, uid) for name, uid in uids.items()))
        assert sorted(bool(answer.error) for answer in answers) == [False, True, True, True]
        assert len(node.driver.claims) == len(node.files()) == 1

    on(GpuNode(tmp_path), story)


def test_claims_that_wait_for_one_holder_get_the_device_one_after_the_other(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        old = node.claim("old", "gpu-0", pods=("p",))
        await node.prepare("old", old)
        node.api.remove(f"{CLAIMS}/old")
        uids = {name: node.claim(name, "gpu-0", pods=(name,)) for name in ("a", "b")}
        waiting = [asyncio.ensure_future(node.prepare(name, uid)) for name, uid in uids.items()]
        await asyncio.sleep(0.05)
        await node.unprepare("old", old)
        answers = [await answer for answer in waiting]
        assert sorted(bool(answer.error) for answer in answers) == [False, True]
        assert "in use by pod" in "".join(answer.error for answer in answers)

    on(GpuNode(tmp_path), story)


def test_a_caller_that_gives_up_does_not_undo_the_work(tmp_path: Path) -> None:
    async def story(node: GpuNode) -> None:
        old, new = node.claim("old", "gpu-0"), node.claim("new", "gpu-0")
        await node.prepare("old", old)
        node.api.remove(f"{CLAIMS}/old")
        with pytest.raises(grpc.aio.AioRpcError):
            await node.prepare("new", new, timeout=0.1)
        await node.unprepare("old", old)
        for _ in range(100):
            if node.files():
                break
            await asyncio.sleep(0.01)
        assert list(node.driver.claims) == [new]
        assert (await node.prepare("new", new)).error == ""

    on(GpuNode(tmp_path), story)
