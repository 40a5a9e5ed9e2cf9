"""The state of each device, and what the free ones are good for, in worlds of a few objects."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.evidence.snapshot import Snapshot
from drakkar.fleet.devices import Fleet
from drakkar.fleet.tallies import Tally, tallies
from tests.diagnosis.world import claim, device_class, gpu, node, piece, pod, world

Object = dict[str, Any]


def _states(snapshot: Snapshot) -> dict[str, str]:
    return {f"{device.node}/{device.key.device}": device.state for device in Fleet(snapshot).devices}


def _reasons(snapshot: Snapshot, name: str) -> tuple[str, ...]:
    return next(device.reasons for device in Fleet(snapshot).devices if f"{device.node}/{device.key.device}" == name)


def _taint_rule(driver: str, pool: str) -> Object:
    taint = {"key": "maintenance", "value": "fans", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": driver, "pool": pool}, "taint": taint}
    return {"kind": "DeviceTaintRule", "metadata": {"name": "rule"}, "spec": spec}


def test_a_device_is_held_or_free() -> None:
    assert _states(world(claim("a", held="n1/gpu-0"))) == {"n1/gpu-0": "held", "n2/gpu-0": "free"}


def test_admin_access_takes_nothing() -> None:
    watching = claim("a", held="n1/gpu-0")
    watching["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert _states(world(watching))["n1/gpu-0"] == "free"


@pytest.mark.parametrize(("effect", "state"), [("NoSchedule", "tainted"), ("NoExecute", "tainted"), ("None", "free")])
def test_only_a_taint_that_refuses_counts(effect: str, state: str) -> None:
    tainted = piece("n1", gpu("gpu-0", taints=[{"key": "hot", "effect": effect}]))
    assert _states(world(tainted))["n1/gpu-0"] == state


def test_a_rule_taints_devices_it_selects_and_no_others() -> None:
    snapshot = world(_taint_rule("gpu.nvidia.com", "n2"))
    assert _states(snapshot) == {"n1/gpu-0": "free", "n2/gpu-0": "tainted"}
    assert _reasons(snapshot, "n2/gpu-0") == ("maintenance=fans:NoSchedule",)


def test_a_held_device_stays_held_whatever_its_taints() -> None:
    snapshot = world(claim("a", held="n2/gpu-0"), _taint_rule("gpu.nvidia.com", "n2"))
    assert _states(snapshot)["n2/gpu-0"] == "held"
    assert _reasons(snapshot, "n2/gpu-0") == ("maintenance=fans:NoSchedule",)


def _cordoned() -> Object:
    closed = node("n1")
    closed["spec"]["unschedulable"] = True
    return closed


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (_cordoned(), "the node is cordoned"),
        (node("n1", ready=False), "the node is not ready"),
        (piece("n1", gpu("gpu-0"), count=2), "pool has 1 of 2 slices"),
    ],
)
def test_a_device_that_nobody_holds_and_nobody_can_have_is_stranded(changed: Object, why: str) -> None:
    snapshot = world(changed)
    assert _states(snapshot) == {"n1/gpu-0": "stranded", "n2/gpu-0": "free"}
    assert _reasons(snapshot, "n1/gpu-0") == (why,)


def test_devices_of_a_node_that_is_gone_are_stranded_unless_nodes_could_not_be_read() -> None:
    lonely = Snapshot(objects=(piece("n1", gpu("gpu-0")),))
    assert _states(lonely) == {"n1/gpu-0": "stranded"}
    blind = Snapshot(objects=lonely.objects, unread=("nodes: forbidden",))
    assert _states(blind) == {"n1/gpu-0": "free"}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = piece("n1", gpu("gpu-0"), gpu("gpu-1"), generation=1)
    old["metadata"]["name"] = "n1-old"
    snapshot = Snapshot(objects=(node("n1"), old, piece("n1", gpu("gpu-7"), generation=2)))
    assert _states(snapshot) == {"n1/gpu-7": "free"}


def _partition(name: str, slices: int) -> Object:
    consumed = {"counterSet": "gpu-0", "counters": {"slices": {"value": str(slices)}}}
    return gpu(name, consumesCounters=[consumed])


def _partitioned() -> Object:
    """One GPU with seven slices, as a whole, as two parts of four and of three, and as seven parts of one."""
    found = piece(
        "n1", _partition("whole", 7), _partition("four", 4), _partition("three", 3),
        *(_partition(f"one-{index}", 1) for index in range(7)),
    )  # fmt: skip
    found["spec"]["sharedCounters"] = [{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}]
    return found


def test_partitions_that_a_held_one_leaves_no_room_for_are_stranded() -> None:
    snapshot = world(_partitioned(), claim("a", held="n1/four"))
    states = _states(snapshot)
    assert (states["n1/four"], states["n1/whole"], states["n1/three"]) == ("held", "stranded", "free")
    assert _reasons(snapshot, "n1/whole") == ("what is in use leaves too little of gpu-0/slices",)


def test_free_partitions_are_counted_as_they_can_be_had_together() -> None:
    (tally,) = (tally for tally in tallies(Fleet(world(_partitioned()))) if tally.group == "n1")
    assert tally.states["free"] == 10
    assert tally.free == 1  # the whole comes first and takes everything
    (held,) = (
        tally for tally in tallies(Fleet(world(_partitioned(), claim("a", held="n1/four")))) if tally.group == "n1"
    )
    assert held.free == 1  # three, then nothing is left for the ones


def test_tallies_by_node_product_and_class() -> None:
    snapshot = world(
        piece("n1", gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2", product="NVIDIA T4")),
        device_class("big", "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A100'"),
        device_class("broken", "device."),
        device_class("failing", "device.attributes['gpu.nvidia.com'].nothing == 1"),
        claim("a", held="n1/gpu-0"),
    )
    fleet = Fleet(snapshot)

    def counts(by: Any) -> dict[str, tuple[int, int, int]]:
        return {tally.group: (tally.total, tally.states["held"], tally.free) for tally in tallies(fleet, by)}

    assert counts("node") == {"n1": (3, 1, 2), "n2": (1, 0, 1)}
    assert counts("product") == {"NVIDIA A100": (3, 1, 2), "NVIDIA T4": (1, 0, 1)}
    assert counts("class") == {"gpu.nvidia.com": (4, 1, 3), "big": (3, 1, 2)}


@pytest.mark.parametrize(
    ("free", "size", "fits", "fragmentation"),
    [
        ({"a": 8}, 8, 1, 0.0),
        ({"a": 7, "b": 1}, 8, 0, 1.0),
        ({"a": 3, "b": 3}, 2, 2, 1 / 3),
        ({"a": 1, "b": 1}, 1, 2, 0.0),
        ({}, 4, 0, 0.0),
    ],
)
def test_fragmentation_is_what_requests_of_a_size_leave_over(
    free: dict[str, int], size: int, fits: int, fragmentation: float
) -> None:
    tally = Tally("g", "d", "gpu", {"free": sum(free.values())}, free)
    assert tally.fits(size) == fits
    assert tally.fragmentation(size) == pytest.approx(fragmentation)


def test_a_pods_containers_are_named_by_claim_and_request() -> None:
    spec = {
        "containers": [
            {"name": "main", "resources": {"claims": [{"name": "gpu"}]}},
            {"name": "other", "resources": {"claims": [{"name": "gpu", "request": "nic"}]}},
            {"name": "none"},
        ]
    }
    user = pod("p", claim_name="a", on="n1", phase="Running", spec=spec)
    (holding,) = Fleet(world(user, claim("a", held="n1/gpu-0", users=("p",)))).holdings
    assert (holding.claim, holding.node, holding.since) == ("ml/a", "n1", "2026-01-01T00:10:00Z")
    (use,) = holding.pods
    assert [(container.name, container.started) for container in use.containers] == [("main", "2026-01-01T00:20:00Z")]


def test_an_extended_resource_is_traced_to_its_container() -> None:
    user = pod("p", on="n1", phase="Running")
    user["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "a",
        "requestMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}],
    }
    (holding,) = Fleet(world(user, claim("a", held="n1/gpu-0", users=("p",)))).holdings
    assert [container.name for container in holding.pods[0].containers] == ["main"]


def test_a_lost_device_is_one_whose_driver_says_so() -> None:
    lost = piece("n1", gpu("gpu-0", taints=[{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}]))
    devices = Fleet(world(lost)).devices
    assert [device.lost for device in devices] == [True, False]
