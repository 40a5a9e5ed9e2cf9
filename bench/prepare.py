"""NodePrepareResources over the socket, durable, with the embedded API; p99 is judged by this disk's own barriers."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path
from typing import Any

import uvloop

from bench._tables import Figure, show
from bench.cluster import Embedded
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.kubeconfig import load
from drakkar.kube.resources import RESOURCE_CLAIMS
from drakkar.preparation import stubs
from drakkar.rpc import Channel

NODE = "dgx-h100-0"
_ROUNDS = 3


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


async def _allocated_claims(kubeconfig: Path, node: str, count: int) -> list[dict[str, Any]]:
    """Claims as a scheduler leaves them: one GPU each, one after the other over the eight."""
    client, made = Client(HttpsTransport(load(kubeconfig))), []
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    for number in range(count):
        claim = await client.create(
            RESOURCE_CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"c{number}", "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            },
        )
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{number % 8}"}
        status = {"allocation": {"devices": {"results": [result]}}}
        made.append(await client.update(RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status"))
    await client.close()
    return made


def prepare_times(
    kubeconfig: Path, socket: Path, node: str, count: int
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of prepare, prepare again and unprepare for `count` claims of `node`, each `_ROUNDS` times.

    This is the kubelet's side, in a process of its own as kubelet is: a gRPC channel to the driver's socket, which it
    keeps. The server's own work on so many claims made at once falls into the first round, which is not left out.
    """
    claims = asyncio.run(_allocated_claims(kubeconfig, node, count))
    rows = uvloop.run(_call(socket, claims))
    fresh, again, undone = (list(column) for column in zip(*rows, strict=True))
    return fresh, again, undone


async def _call(socket: Path, claims: list[dict[str, Any]]) -> list[list[float]]:
    api = stubs.dra("v1")
    async with Channel(socket) as channel:

        async def timed(method: stubs.Method, claim: dict[str, Any]) -> float:
            uid = claim["metadata"]["uid"]
            request = method.request(
                claims=[api.messages.Claim(uid=uid, name=claim["metadata"]["name"], namespace="default")]
            )
            begun = time.perf_counter()
            answer = await channel.call(method, request)
            took = (time.perf_counter() - begun) * 1000
            assert not answer.claims[uid].error, answer
            return took

        await channel.call(api.unprepare, api.unprepare.request())  # a kubelet's channel is open and was used
        return [
            [await timed(method, claim) for method in (api.prepare, api.prepare, api.unprepare)]
            for claim in claims * _ROUNDS
        ]


def main(runs: int) -> bool:
    # The driver's journal lies on the disk, never on a tmpfs; the API server keeps no log, since its barriers are not
    # the driver's.
    cluster = Embedded("dgx-h100", parent="/var/tmp")
    try:
        cluster.ready()
        barriers = fdatasync_times(Path(cluster.folder))
        socket = cluster.runtime_folder / "n" / NODE / "plugins/gpu.nvidia.com/dra.sock"
        kubeconfig = Path(cluster.environment["KUBECONFIG"])
        fresh, again, undone = prepare_times(kubeconfig, socket, NODE, 40 * runs)
        barriers += fdatasync_times(Path(cluster.folder))
    finally:
        cluster.end()
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
