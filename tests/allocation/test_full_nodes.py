"""Full nodes are passed over without being prepared, and only as long as they are full."""

from typing import Any

import pytest

from drakkar.allocation import AllocationError, ClusterState, Pod
from tests.allocation.objects import claim, cluster, device, held, request, slice_of

Json = dict[str, Any]

NODES: list[Json] = [{"metadata": {"name": name}} for name in ("n1", "n2")]


def node_slice(name: str, *devices: str) -> Json:
    return slice_of([device(each) for each in devices], name=f"{name}-slice", pool=name, node=name)


def two_full_nodes() -> ClusterState:
    claims = [held(f"{node}-{name}", name, pool=node) for node in ("n1", "n2") for name in ("gpu-0", "gpu-1")]
    return cluster(*(node_slice(node, "gpu-0", "gpu-1") for node in ("n1", "n2")), claims=tuple(claims))


def taken(state: ClusterState, **fields: Any) -> str | None:
    found = Pod(state, [claim(request(**fields))]).on_first(NODES)
    return None if found is None else str(found[0]["metadata"]["name"])


def test_a_full_cluster_is_refused_again_and_again() -> None:
    state = two_full_nodes()
    assert [taken(state) for _ in range(3)] == [None, None, None]


def test_a_device_that_comes_free_is_found() -> None:
    state = two_full_nodes()
    assert taken(state) is None
    state.remove_claim(held("n2-gpu-1"))
    assert taken(state) == "n2"
    state.upsert_claim(held("n2-gpu-1", "gpu-1", pool="n2"))
    assert taken(state) is None


def test_a_device_that_is_added_is_found() -> None:
    state = two_full_nodes()
    assert taken(state) is None
    state.upsert_slice(node_slice("n1", "gpu-0", "gpu-1", "gpu-2"))
    assert taken(state) == "n1"


def test_a_slice_for_all_nodes_is_found() -> None:
    state = two_full_nodes()
    assert taken(state) is None
    state.upsert_slice(slice_of([device("nic-0")], name="everywhere", pool="shared", node="", allNodes=True))
    assert taken(state) == "n1"


def test_admin_access_gets_a_device_in_use() -> None:
    state = two_full_nodes()
    assert taken(state) is None
    assert taken(state, adminAccess=True) == "n1"


def test_a_claim_without_requests_fits_anywhere() -> None:
    found = Pod(two_full_nodes(), [claim()]).on_first(NODES)
    assert found is not None and found[0] is NODES[0]


def test_a_share_leaves_a_device_open() -> None:
    shared = device("gpu-0", capacity={"memory": "10Gi"}, allowMultipleAllocations=True)
    holder = held("h", "gpu-0", pool="n1", shareID="s1", consumedCapacity={"memory": "2Gi"})
    state = cluster(slice_of([shared], name="n1-slice", pool="n1", node="n1"), claims=(holder,))
    assert taken(state, capacity={"requests": {"memory": "4Gi"}}) == "n1"


def test_a_node_with_too_little_left_is_passed_over_until_enough_is_free() -> None:
    state = two_full_nodes()
    state.remove_claim(held("n1-gpu-0"))
    assert [taken(state, count=2) for _ in range(2)] == [None, None]
    assert taken(state) == "n1"
    state.remove_claim(held("n1-gpu-1"))
    assert taken(state, count=2) == "n1"


def test_a_selector_that_fails_on_a_free_device_is_an_error_all_the_same() -> None:
    state = two_full_nodes()
    state.remove_claim(held("n1-gpu-0"))
    with pytest.raises(AllocationError, match="no such key: missing"):
        taken(state, count=2, selectors=("device.attributes['dra.example.com'].missing == 1",))


def test_what_a_class_selects_may_change() -> None:
    state = two_full_nodes()
    state.remove_claim(held("n1-gpu-0"))
    assert taken(state, count=2) is None
    state.upsert_class({"metadata": {"name": "any"}, "spec": {"selectors": [{"cel": {"expression": "nonsense"}}]}})
    with pytest.raises(AllocationError, match="undeclared reference to 'nonsense'"):
        taken(state, count=2)
