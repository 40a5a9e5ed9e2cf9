"""What must go before the driver may."""

from __future__ import annotations

from drakkar.evidence.snapshot import Snapshot
from drakkar.migration.preflight import blockers
from drakkar.migration.preflight.uninstall import waiting
from tests.migration.preflight.worlds import claim, node, pod

CLASS = {
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
}


def test_nothing_holds_anything() -> None:
    assert blockers(Snapshot(objects=(node(), pod("p"), claim("unused")))) == []


def test_a_pod_goes_and_its_generated_claim_with_it() -> None:
    objects = (pod("p"), claim("p-gpu-x", "gpu-0", users=["p"], owner="p"))
    (found,) = blockers(Snapshot(objects=objects))
    assert (found.kind, found.name, found.node) == ("Pod", "p", "n1")
    assert found.why == "holds n1/gpu-0 by claim p-gpu-x"
    assert found.command == "kubectl delete -n default pod/p"


def test_a_claim_of_its_own_goes_after_its_pods() -> None:
    objects = (pod("p"), pod("q"), claim("shared", "gpu-0", users=["p", "q"]))
    assert [(one.kind, one.name) for one in blockers(Snapshot(objects=objects))] == [
        ("Pod", "p"),
        ("Pod", "q"),
        ("ResourceClaim", "shared"),
    ]


def test_a_claim_that_nobody_uses_any_more_goes_too() -> None:
    objects = (pod("p", phase="Succeeded"), claim("p-gpu", "gpu-1", users=["p"], owner="p"))
    (found,) = blockers(Snapshot(objects=objects))
    assert (found.kind, found.why) == ("ResourceClaim", "is allocated n1/gpu-1")


def test_the_outermost_maker_of_pods_comes_first() -> None:
    deployment = {"kind": "Deployment", "metadata": {"name": "serve", "namespace": "default", "uid": "d"}}
    replicas = {
        "kind": "ReplicaSet",
        "metadata": {
            "name": "serve-1",
            "namespace": "default",
            "uid": "r",
            "ownerReferences": [{"kind": "Deployment", "name": "serve", "uid": "d", "controller": True}],
        },
    }
    owner = {"kind": "ReplicaSet", "name": "serve-1", "uid": "r", "controller": True}
    pods = [pod("a", owner=owner), pod("b", owner=owner)]
    claims = [claim(f"{name}-gpu", f"gpu-{name}", users=[name], owner=name) for name in "ab"]
    found = blockers(Snapshot(objects=(deployment, replicas, *pods, *claims)))
    assert [(one.kind, one.name) for one in found] == [("Deployment", "serve"), ("Pod", "a"), ("Pod", "b")]
    assert found[0].command == "kubectl scale -n default deployment/serve --replicas=0"


def test_a_maker_that_was_not_read_is_named_all_the_same() -> None:
    owner = {"kind": "RayCluster", "name": "ray", "uid": "x", "controller": True}
    objects = (pod("p", owner=owner), claim("p-gpu", "gpu-0", users=["p"], owner="p"))
    found = blockers(Snapshot(objects=objects))
    assert (found[0].kind, found[0].command) == ("RayCluster", "end what owns it: raycluster/ray in default")


def test_a_pod_with_two_claims_is_one_blocker() -> None:
    objects = (pod("p"), claim("one", "gpu-0", users=["p"], owner="p"), claim("two", "gpu-1", users=["p"], owner="p"))
    (found,) = blockers(Snapshot(objects=objects))
    assert found.why == "holds n1/gpu-0 by claim one, n1/gpu-1 by claim two"


def test_other_drivers_devices_do_not_count() -> None:
    objects = (pod("p"), claim("lamp", "lamp-0", users=["p"], owner="p", driver="lamps.example.com"))
    assert blockers(Snapshot(objects=objects)) == []
    assert len(blockers(Snapshot(objects=objects), "lamps.example.com")) == 1


def test_pods_that_would_wait_for_ever() -> None:
    entry = {"name": "gpu", "resourceClaimName": "c"}
    objects = (CLASS, claim("c"), pod("p", node_name="", phase="Pending", claims=[entry]), pod("q", claims=[entry]))
    assert [one["metadata"]["name"] for one in waiting(Snapshot(objects=objects))] == ["p"]
