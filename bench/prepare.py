"""NodePrepareResources over the socket, durable, with the embedded API; p99 is judged by this disk's own barriers."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import uvloop

from bench._tables import Figure, show


def fdatasync_times(folder: Path, count: int = 200) -> list[float]:
    """Milliseconds of `fdatasync` after a small append, on the disk that holds `folder`."""
    found = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(b"x" * 300)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append((time.perf_counter() - begun) * 1000)
    return found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def _prepare_times(folder: Path, count: int) -> tuple[list[float], list[float], list[float]]:
    import grpc.aio

    from drakkar.cluster.cluster import Cluster
    from drakkar.cluster.requests import NodeRequest
    from drakkar.cluster.places import occupied, places
    from drakkar.kube.resources import RESOURCE_CLAIMS
    from drakkar.preparation import stubs

    # The driver's journal lies on the disk; the API server keeps no log, since its barriers are not the driver's.
    where = replace(places("bench", folder / "data"), durable=False)
    fresh: list[float] = []
    again: list[float] = []
    undone: list[float] = []
    with occupied(where):
        cluster = Cluster(where, [NodeRequest("n", "dgx-h100")], runtime="process")
        await cluster.start()
        api = stubs.dra("v1")
        socket = where.node_root("n") / "plugins/gpu.nvidia.com/dra.sock"
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            calls = {
                method: channel.unary_unary(
                    method.path,
                    request_serializer=method.request.SerializeToString,
                    response_deserializer=method.response.FromString,
                )
                for method in (api.prepare, api.unprepare)
            }

            async def timed(method: stubs.Method, claim: dict[str, dict[str, str]], into: list[float]) -> None:
                metadata = claim["metadata"]
                request = method.request(
                    claims=[api.messages.Claim(uid=metadata["uid"], name=metadata["name"], namespace="default")]
                )
                begun = time.perf_counter()
                answer = await calls[method](request)
                into.append((time.perf_counter() - begun) * 1000)
                assert not answer.claims[metadata["uid"]].error, answer

            for number in range(count):
                claim = await cluster.client.create(
                    RESOURCE_CLAIMS,
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceClaim",
                        "metadata": {"name": f"c{number}", "namespace": "default"},
                        "spec": {
                            "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
                        },
                    },
                )
                claim["metadata"].setdefault("uid", "")
                result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": f"gpu-{number % 8}"}
                await cluster.client.update(
                    RESOURCE_CLAIMS,
                    {**claim, "status": {"allocation": {"devices": {"results": [result]}}}},
                    subresource="status",
                )
                await timed(api.prepare, claim, fresh)
                await timed(api.prepare, claim, again)
                await timed(api.unprepare, claim, undone)
        await cluster.stop()
    return fresh, again, undone


def main(runs: int) -> bool:
    # Journals lie where --data points, so the disk under test is the one that holds this clone, not a tmpfs.
    with tempfile.TemporaryDirectory(prefix=".dkp-", dir=".") as name:
        folder = Path(name).absolute()
        barriers = fdatasync_times(folder)
        fresh, again, undone = uvloop.run(_prepare_times(folder, 40 * runs))  # the loop that `drakkar up` runs on
        barriers += fdatasync_times(folder)
    bound = 4 + 2 * percentile(barriers, 0.99)
    print(
        f"fdatasync on this disk: p50 {statistics.median(barriers):.2f} ms, p99 {percentile(barriers, 0.99):.2f} ms\n"
    )
    return show(
        [
            Figure("prepare a new claim, p50", [statistics.median(fresh)], "ms", 3),
            Figure("prepare a new claim, p99 (4 ms + 2 x fdatasync p99)", [percentile(fresh, 0.99)], "ms", bound),
            Figure("prepare again, p50", [statistics.median(again)], "ms", 1.5),
            Figure("unprepare, p50", [statistics.median(undone)], "ms", 3),
        ]
    )
