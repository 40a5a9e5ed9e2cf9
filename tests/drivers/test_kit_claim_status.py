"""The status of a claim says which hardware it has; written behind the answer, and never in its way."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from gpu_node import CLAIMS, DRIVER, GpuNode, running
from small_api import FakeApi

from drakkar.kube.clock import FakeClock
from drakkar.kube.transport import ApiRequest, ApiResponse
from drakkar.vendors.nvidia.published import PublishOptions


class Statuses(FakeApi):
    """Keeps what is applied to `status`; `answers` come first, one for each attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[ApiRequest] = []
        self.answers: list[int] = []

    def _patch(self, request: ApiRequest) -> ApiResponse:
        if not request.path.endswith("/status"):
            return super()._patch(request)
        self.applied.append(request)
        code = self.answers.pop(0) if self.answers else 200
        return ApiResponse(code, {}, {"kind": "Status", "code": code, "reason": "X", "message": "told so"})


class Node(GpuNode):
    api: Statuses

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, api=Statuses(), claim_status=True, **options)

    async def settled(self) -> None:
        status = self.driver.node._status
        assert status is not None
        await asyncio.wait_for(status.settled(), 10)


def devices(request: ApiRequest) -> list[dict[str, Any]]:
    return list(request.body["status"]["devices"])


def test_a_prepared_claim_tells_its_hardware_by_apply(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Node(tmp_path)) as node:
            uid = node.claim("train", "gpu-3", shareID="11111111-1111-4111-8111-111111111111")
            assert not (await node.prepare("train", uid)).error
            await node.settled()
            (request,) = node.api.applied
            assert request.path == f"{CLAIMS}/train/status"
            assert (request.query["fieldManager"], request.query["force"]) == (DRIVER, "true")
            assert request.body["metadata"] == {"name": "train", "namespace": "team-a", "uid": uid}
            (entry,) = devices(request)
            gpu = node.machine.devices()[3]
            assert (entry["driver"], entry["pool"], entry["device"]) == (DRIVER, "n1", "gpu-3")
            assert entry["shareID"] == "11111111-1111-4111-8111-111111111111"
            assert entry["data"]["uuid"] == gpu.uuid
            assert entry["data"]["resource.kubernetes.io/pciBusID"] == gpu.bus_id
            (condition,) = entry["conditions"]
            assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "Prepared")
            assert not (await node.prepare("train", uid)).error  # told once
            await node.settled()
            assert len(node.api.applied) == 1

    asyncio.run(main())


def test_the_uuid_of_a_mig_device_made_for_a_claim_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Node(tmp_path, options=PublishOptions(dynamic_mig=True))) as node:
            uid = node.claim("c", "gpu-0-mig-1g10gb-19-2")
            assert not (await node.prepare("c", uid)).error
            await node.settled()
            (entry,) = devices(node.api.applied[0])
            assert entry["data"]["uuid"] == node.machine.devices()[0].mig_instances[0].uuid

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answers", "attempts", "said"),
    [
        ([500, 200], 2, ""),
        ([404], 1, ""),
        ([409], 1, ""),
        ([403, 403], 2, "its status is not written: told so"),
        ([500, 500, 500, 500], 4, "its status is not written: told so"),
    ],
)
def test_it_is_tried_again_and_given_up_with_a_word(
    tmp_path: Path, answers: list[int], attempts: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = FakeClock()
        node = Node(tmp_path, clock=clock)
        async with running(node):
            node.api.answers = answers
            uid = node.claim("c", "gpu-0")
            assert not (await node.prepare("c", uid)).error
            for _ in range(400):
                if not node.driver.node._status._tasks:  # type: ignore[union-attr]
                    break
                await clock.advance(1)
                await asyncio.sleep(0.002)
            assert len(node.api.applied) == attempts
            assert not (await node.unprepare("c", uid)).error

    with caplog.at_level(logging.WARNING, "drakkar.drivers.kit.claim_status"):
        asyncio.run(main())
    assert bool(caplog.text) == bool(said)
    assert said in caplog.text


def test_without_the_option_nothing_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        api = Statuses()
        async with running(GpuNode(tmp_path, api=api)) as node:
            uid = node.claim("c", "gpu-0")
            assert not (await node.prepare("c", uid)).error
            assert api.applied == []

    asyncio.run(main())
