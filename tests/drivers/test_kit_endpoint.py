"""What a driver shows over HTTP and in its log, on a node that the kubelet calls."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path

import aiohttp
import pytest
from gpu_node import GpuNode, running

from drakkar.drivers.kit import logs
from drakkar.drivers.kit.endpoint import Endpoint, parse_address
from drakkar.errors import DrakkarError
from drakkar.preparation.values import ClaimRef, ClaimUID


async def _get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


def _values(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_metrics_count_what_the_kubelet_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(GpuNode(tmp_path)) as node:
            await node.published()
            endpoint = Endpoint(node.driver.node)
            port = await endpoint.start("127.0.0.1", 0)
            try:
                before = _values((await _get(port, "/metrics"))[1])
                good, bad = node.claim("good", "gpu-0"), node.claim("bad", "gpu-77")
                assert not (await node.prepare("good", good)).error
                assert (await node.prepare("bad", bad)).error
                assert not (await node.unprepare("other", "unknown")).error
                after = _values((await _get(port, "/metrics"))[1])
            finally:
                await endpoint.stop()
        operation = '{driver="gpu.nvidia.com",operation="%s"}'
        total = "nvidia_dra_requests_total" + operation
        assert [before[total % each] for each in ("prepare", "unprepare")] == [0, 0]
        assert [after[total % each] for each in ("prepare", "unprepare")] == [1, 1]
        assert after["nvidia_dra_request_duration_seconds_count" + operation % "prepare"] == 1
        buckets = [
            value
            for name, value in after.items()
            if re.match(r'nvidia_dra_request_duration_seconds_bucket\{.*operation="prepare"', name)
        ]
        assert buckets == sorted(buckets) and buckets[-1] == 1 and len(buckets) == 10
        error = '{driver="gpu.nvidia.com",error_type="%s"}'
        assert after["nvidia_dra_node_prepare_errors_total" + error % "prepare_devices"] == 1
        assert after["nvidia_dra_node_prepare_errors_total" + error % "lock_acquire"] == 0
        prepared = 'nvidia_dra_prepared_devices{node="n1",driver="gpu.nvidia.com",device_type="%s"}'
        assert [after[prepared % kind] for kind in ("gpu", "mig", "vfio")] == [1, 0, 0]
        assert after["drakkar_dra_failed_request_duration_seconds_count" + operation % "prepare"] == 1
        assert after['drakkar_dra_published_devices{node="n1",driver="gpu.nvidia.com"}'] == 8
        assert after['drakkar_dra_slice_age_seconds{node="n1",driver="gpu.nvidia.com"}'] >= 0
        healthy = 'drakkar_dra_device_health{node="n1",driver="gpu.nvidia.com",pool="n1",device="gpu-3"}'
        assert after[healthy] == 1
        assert after['drakkar_dra_lock_wait_seconds_count{driver="gpu.nvidia.com"}'] > 0

    asyncio.run(main())


def test_ready_says_what_is_missing_and_the_state_says_everything(tmp_path: Path) -> None:
    async def main() -> None:
        node = GpuNode(tmp_path)
        node.build()
        endpoint = Endpoint(node.driver.node)
        port = await endpoint.start("127.0.0.1", 0)
        try:
            assert await _get(port, "/healthz") == (200, "ok\n")
            status, text = await _get(port, "/readyz")
            assert status == 503 and text.splitlines() == ["not registered yet", "the devices are not published yet"]
            await node.driver.start()
            await asyncio.wait_for(node.driver.publisher.settled(), 10)
            assert (await _get(port, "/readyz")) == (503, "not registered yet\n")
            node.driver.registered.set()
            assert (await _get(port, "/readyz")) == (200, "ok\n")
            uid = node.claim("c", "gpu-5")
            await node.driver.node.prepare([ClaimRef(ClaimUID(uid), "c", "team-a")])
            state = json.loads((await _get(port, "/debug/state"))[1])
            assert state["claims"] == [
                {
                    "uid": uid, "namespace": "team-a", "name": "c", "state": "prepared", "devices": ["gpu-5"],
                    "shared": [], "cdiDeviceIDs": [f"k8s.gpu.nvidia.com/claim={uid}-gpu-5"],
                }
            ]  # fmt: skip
            assert state["pool"]["devices"] == [f"gpu-{number}" for number in range(8)]
            assert (await _get(port, "/nothing"))[0] == 404
        finally:
            await endpoint.stop()
            await node.driver.stop()

    asyncio.run(main())


def test_addresses(tmp_path: Path) -> None:
    assert parse_address(":8080") == ("", 8080)
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_address("[::1]:9") == ("::1", 9)
    for wrong in ("", "8080", ":", ":x", ":65536", "host:-1"):
        with pytest.raises(DrakkarError, match="is no address"):
            parse_address(wrong)

    async def main() -> None:
        node = GpuNode(tmp_path)
        node.build()
        first, second = Endpoint(node.driver.node), Endpoint(node.driver.node)
        port = await first.start("127.0.0.1", 0)
        try:
            with pytest.raises(DrakkarError, match=f"cannot listen on 127.0.0.1:{port}"):
                await second.start("127.0.0.1", port)
        finally:
            await first.stop()

    asyncio.run(main())


def test_a_log_line_has_its_claim_node_and_devices_as_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> str:
        async with running(GpuNode(tmp_path)) as node:
            uid = node.claim("c", "gpu-2")
            await node.prepare("c", uid)
            return uid

    with caplog.at_level(logging.INFO):
        uid = asyncio.run(main())
    record = next(record for record in caplog.records if record.getMessage() == "prepare: done")
    line = json.loads(logs.JsonLines().format(record))
    assert (line["claim"], line["claimUID"], line["node"], line["devices"]) == ("team-a/c", uid, "n1", ["gpu-2"])
    assert line["seconds"] > 0 and line["level"] == "info"
    assert f"prepare: done claim=team-a/c claimUID={uid} node=n1 devices=gpu-2" in logs.TextLines().format(record)
