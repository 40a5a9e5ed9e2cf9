"""Who holds what, asked by device, UUID, node, pod and claim."""

from __future__ import annotations

import pytest

from drakkar.errors import DrakkarError
from drakkar.fleet.devices import Fleet
from drakkar.fleet.who import Answer, who
from tests.diagnosis.world import claim, node, pod, world


def _ask(target: str) -> Answer:
    snapshot = world(
        claim("a", held="n1/gpu-0", users=("p",)),
        claim("gone", held="n1/gpu-9", users=("p",)),
        pod("p", claim_name="a", on="n1", phase="Running"),
        node("n3"),
    )
    return who(Fleet(snapshot), target, namespace="ml")


@pytest.mark.parametrize(
    ("target", "devices", "claims"),
    [
        ("gpu-0", ["n1/gpu-0", "n2/gpu-0"], ["ml/a"]),
        ("device/n2/gpu-0", ["n2/gpu-0"], []),
        ("gpu/n1/gpu-0", ["n1/gpu-0"], ["ml/a"]),
        ("device/gpu.nvidia.com/n1/gpu-0", ["n1/gpu-0"], ["ml/a"]),
        ("GPU-gpu-0", ["n1/gpu-0", "n2/gpu-0"], ["ml/a"]),
        ("node/n1", ["n1/gpu-0"], ["ml/a"]),
        ("node/n3", [], []),
        ("pod/p", ["n1/gpu-0"], ["ml/a", "ml/gone"]),
        ("pod/ml/p", ["n1/gpu-0"], ["ml/a", "ml/gone"]),
        ("claim/a", ["n1/gpu-0"], ["ml/a"]),
        ("claim/gone", [], ["ml/gone"]),
    ],
)
def test_a_target_gives_its_devices_and_holdings(target: str, devices: list[str], claims: list[str]) -> None:
    answer = _ask(target)
    assert [f"{device.node}/{device.key.device}" for device in answer.devices] == devices
    assert [holding.claim for holding in answer.holdings] == claims


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("gpu-1", "no device is named 'gpu-1'; did you mean 'gpu-0'?"),
        ("node/n9", "there is no node 'n9'"),
        ("pod/q", "there is no Pod 'q' in namespace ml"),
        ("claim/other/a", "there is no ResourceClaim 'a' in namespace other"),
        ("service/x", "'service/x' is no target"),
        ("pod/", "'pod/' is no target"),
    ],
)
def test_what_is_not_there_gets_a_sentence(target: str, says: str) -> None:
    with pytest.raises(DrakkarError) as raised:
        _ask(target)
    assert raised.value.message == says
