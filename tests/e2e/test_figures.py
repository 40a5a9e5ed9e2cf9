"""Figures on the real kubelet, each held to what the project promises for two quiet cores.

`python -m bench.realkube` measures more often and prints a table; here one run says whether the promise holds.
"""

from __future__ import annotations

import time

from tests.e2e.conftest import PATIENCE, World
from tests.e2e.test_lifecycle import TEMPLATE, pod

#: Two calls of kubectl stand in the time; bench.realkube watches instead.
_KUBECTL = 1.0

#: At rest the driver has 60 MB (bench.realkube); with claims, connections and some history it may have a tenth more.
_HOLDING = 66_000_000


def test_eight_pods_are_ready_soon_after_apply(world: World) -> None:
    driver = world.drivers("plain")
    names = [f"pod{number}" for number in range(8)]
    world.apply(TEMPLATE)
    begun = time.monotonic()
    world.apply(*map(pod, names))
    world.ready(*names)
    took = time.monotonic() - begun
    print(f"8 pods with template claims: {took:.2f} s from apply to Ready")
    print(f"resident memory of the driver, 8 claims held: {driver.resident_bytes() / 1e6:.1f} MB")
    assert took < (1.3 + _KUBECTL) * PATIENCE
    assert driver.resident_bytes() < _HOLDING


def test_slices_are_published_within_a_second_of_the_start(world: World) -> None:
    driver = world.drivers("plain")
    driver.end()
    world.kubectl("delete", "resourceslices", "--all")
    driver.start()
    print(f"from start to published slices: {driver.started_in:.2f} s")
    assert driver.started_in < 1.0 * PATIENCE
