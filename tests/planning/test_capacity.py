"""Capacity is what the allocator would give: handed out claim by claim until it refuses."""

from __future__ import annotations

import random

import pytest

from drakkar.allocation import Allocation, allocate
from drakkar.planning.capacity import capacity_of
from drakkar.planning.plan import scene_of
from tools.vectors._clusters import snapshot_of

PROFILES = {"1g.10gb": ("19", 7), "1g.20gb": ("15", 8), "2g.20gb": ("14", 6), "3g.40gb": ("9", 8), "4g.40gb": ("5", 4)}


def world(seed: int):
    pick = random.Random(seed)
    pods = []
    for gpu in range(4):
        for number in range(pick.randint(0, 2)):
            profile, (code, last) = pick.choice(list(PROFILES.items()))
            start = pick.randrange(0, last, int(profile[0]) if profile[0] in "24" else 4 if profile[0] == "3" else 1)
            pods.append((gpu, number, f"gpu-{gpu}-mig-{profile.replace('.', '')}-{code}-{start}"))
    held = [{"name": f"p{gpu}-{number}", "on": "n1", "devices": [device]} for gpu, number, device in pods]
    whole = [{"name": "w", "on": "n2", "devices": [f"gpu-{each}" for each in range(pick.randint(1, 4))]}]
    return {"nodes": {"n1": {"model": "h100-pcie", "partitions": True}, "n2": "l4"}, "pods": held + whole}


@pytest.mark.parametrize("seed", range(8))
def test_as_many_fit_as_the_allocator_gives(seed: int) -> None:
    cluster = scene_of(snapshot_of(world(seed))).cluster
    before = [row.to_dict() for row in capacity_of(cluster).rows]
    for row in capacity_of(cluster).rows:
        selector = f"device.attributes['gpu.nvidia.com'].productName == '{row.kind.product}'"
        if row.kind.type.startswith("mig "):
            profile = row.kind.type.removeprefix("mig ")
            selector += f" && device.attributes['gpu.nvidia.com'].profile == '{profile}'"
        exactly = {"deviceClassName": row.class_name, "allocationMode": "ExactCount", "count": 1,
                   "selectors": [{"cel": {"expression": selector}}]}  # fmt: skip
        for node in ("n1", "n2"):
            state = cluster.devices.state.copy()
            count = 0
            while True:
                claim = {
                    "metadata": {"namespace": "x", "name": f"c{count}", "uid": f"c{count}"},
                    "spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
                }
                found = allocate(state, [claim], cluster.view.nodes[node].node)
                if not isinstance(found, Allocation):
                    break
                state.assume(claim, found.results[0])
                count += 1
            assert row.by_node.get(node, 0) == count, (row.kind, node)
        assert not row.whole or row.whole >= row.fits
        assert bool(row.remark) == (row.whole > row.fits)
    assert [row.to_dict() for row in capacity_of(cluster).rows] == before
