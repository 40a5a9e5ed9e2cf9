"""A trial cluster that follows a living one is what one made of the same objects is, and trials leave no trace."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from drakkar.scheduling.placement import Placement
from drakkar.scheduling.pods import PodFacts
from drakkar.scheduling.trial import TrialCluster

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLASS = {"metadata": {"name": "gpu", "uid": "class"}, "spec": {}}
ORDER = ("Namespace", "DeviceClass", "DeviceTaintRule", "ResourceSlice", "ResourceClaim", "Node", "Pod")


def node(name: str, cpu: int = 8) -> Object:
    status = {"allocatable": {"cpu": str(cpu), "memory": "8Gi", "pods": "10"}}
    return {"kind": "Node", "metadata": {"name": name, "uid": name}, "spec": {}, "status": status}


def piece(name: str, devices: int = 2) -> Object:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": f"gpu-{number}"} for number in range(devices)]
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": name, "devices": listed}
    return {"kind": "ResourceSlice", "metadata": {"name": f"{name}-0", "uid": f"slice-{name}"}, "spec": spec}


def claim(name: str, version: int, *, owner: str = "", held: tuple[str, str] | None = None, users: Any = ()) -> Object:
    metadata: Object = {"name": name, "namespace": "ml", "uid": f"claim-{name}", "resourceVersion": str(version)}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": f"pod-{owner}", "controller": True}]
    request = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    status: Object = {}
    if held is not None:
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": held[0], "device": held[1]}
        field = {"key": "metadata.name", "operator": "In", "values": [held[0]]}
        status["allocation"] = {
            "devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }  # fmt: skip
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"pod-{user}"} for user in users]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": spec, "status": status}


def pod(name: str, *, on: str = "", phase: str = "Pending", claims: bool = True) -> Object:
    statuses = [{"name": "g", "resourceClaimName": name}] if claims else []
    entries = [{"name": "g", "resourceClaimTemplateName": "t"}] if claims else []
    spec = {
        "nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
        "resourceClaims": entries,
    }  # fmt: skip
    metadata = {"name": name, "namespace": "ml", "uid": f"pod-{name}"}
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, "resourceClaimStatuses": statuses},
    }


def made_of(objects: dict[tuple[str, str], Object]) -> TrialCluster:
    by_kind: dict[str, list[Object]] = {}
    for (kind, _), obj in sorted(objects.items()):
        by_kind.setdefault(kind, []).append(obj)
    return TrialCluster(lambda kind: by_kind.get(kind, []), now=NOW, monotonic=lambda: 0.0)


def shape(cluster: TrialCluster) -> Object:
    """All that a trial could leave behind, and what each waiting pod is answered."""
    answers = {}
    for facts in cluster.waiting:
        _, found = cluster.try_pod(facts)
        if isinstance(found, Placement):
            answers[facts.name] = (found.node_name, str(found.devices.allocations))
        else:
            answers[facts.name] = ("", "")
    return {
        "nodes": {
            state.name: (sorted(state.pods), {name: value for name, value in state.requested.items() if value})
            for state in sorted(cluster.view.existing(), key=lambda one: one.name)
        },
        "claims": {key: one.get("status") for key, one in sorted(cluster.claims.items())},
        "held": {
            facts.name: sorted(one["metadata"]["name"] for one in cluster.claims_of(facts))
            for facts in cluster.placed()
        },
        "slices": {name: len(cluster.slices_of(name)) for name in ("n0", "n1", "n2")},
        "answers": answers,
    }


def changes(chance: Random) -> Any:
    """An endless life of a small cluster: (kind, name, the object or None where it is gone)."""
    version = 0
    free = {(f"n{number}", f"gpu-{device}") for number in range(3) for device in range(2)}
    bound: dict[str, tuple[str, str]] = {}
    known: set[str] = set()
    gone: set[str] = set()
    while True:
        version += 1
        name = f"p{chance.randrange(6)}"
        match chance.choice(["new", "bind", "end", "delete", "node", "slice"]):
            case "new" if name not in known:
                known.add(name)
                yield "ResourceClaim", name, claim(name, version, owner=name)
                yield "Pod", name, pod(name)
            case "bind" if name in known and name not in bound and free:
                place = chance.choice(sorted(free))
                free.discard(place)
                bound[name] = place
                yield "ResourceClaim", name, claim(name, version, owner=name, held=place, users=[name])
                yield "Pod", name, pod(name, on=place[0])
            case "end" if name in bound:
                yield "Pod", name, pod(name, on=bound[name][0], phase="Succeeded")
                free.add(bound.pop(name))
                yield "ResourceClaim", name, claim(name, version, owner=name)
                known.discard(name)
                yield "Pod", name, None
                yield "ResourceClaim", name, None
            case "delete" if name in known and name not in bound:
                known.discard(name)
                yield "Pod", name, None
                yield "ResourceClaim", name, None
            case "node":
                which = f"n{chance.randrange(3)}"
                if which in gone or not any(place[0] == which for place in bound.values()):
                    yield "Node", which, node(which, chance.choice([4, 8])) if which in gone else None
                    gone ^= {which}
            case "slice":
                which = f"n{chance.randrange(3)}"
                if not any(place[0] == which for place in bound.values()):
                    yield "ResourceSlice", which, piece(which) if chance.random() < 0.7 else None


@pytest.mark.parametrize("seed", range(12))
def test_following_is_the_same_as_beginning_anew(seed: int) -> None:
    chance = Random(seed)
    objects: dict[tuple[str, str], Object] = {("DeviceClass", "gpu"): CLASS}
    for number in range(3):
        objects["Node", f"n{number}"] = node(f"n{number}")
        objects["ResourceSlice", f"n{number}"] = piece(f"n{number}")
    following = made_of(objects)
    for count, (kind, name, obj) in zip(range(150), changes(chance), strict=False):
        before = objects.pop((kind, name), None)
        if obj is not None:
            objects[kind, name] = obj
            following.take(kind, obj)
        elif before is not None:
            following.forget(kind, before)
        if count % 10 == 0:
            whole = shape(following)
            assert whole == shape(made_of(objects))
            life_of_trials(following, chance)
            assert shape(following) == whole
    assert not following.problems


def life_of_trials(cluster: TrialCluster, chance: Random) -> None:
    """Whatever is tried out, one trial inside another, is taken back."""
    with cluster.trial():
        for facts in list(cluster.placed()):
            if chance.random() < 0.5:
                cluster.remove(facts)
        with cluster.trial() as inner:
            for obj in (node("new"), piece("new")):
                cluster.add(obj)
            for facts in cluster.waiting:
                found = cluster.try_on(facts, "new")
                if isinstance(found, Placement):
                    cluster.place(facts, "new", found.devices)
            if chance.random() < 0.5:
                inner.keep()
        for name in ("n0", "n1"):
            cluster.drop_node(name)
        for facts in cluster.waiting:
            _, answer = cluster.try_pod(facts)
            if isinstance(answer, Placement):
                cluster.place(facts, answer.node_name, answer.devices)


def test_what_cannot_be_read_is_named_and_hides_nothing() -> None:
    cluster = made_of({("Node", "n0"): node("n0")})
    bad = claim("x", 1)
    bad["spec"]["devices"]["requests"][0]["exactly"]["count"] = "many"
    cluster.take("Pod", {**pod("p", claims=False), "spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}})
    assert len(cluster.problems) == 1 and "Pod/ml/p" in cluster.problems[0]
    cluster.take("Pod", pod("q", claims=False))
    assert [facts.name for facts in cluster.waiting] == ["q"]


def test_one_node_is_asked() -> None:
    cluster = made_of({("Node", "n0"): node("n0"), ("Node", "n1"): node("n1", cpu=1)})
    facts = PodFacts(pod("p", claims=False))
    assert isinstance(cluster.try_on(facts, "n0"), Placement)
    refused = cluster.try_on(facts, "n1")
    assert not isinstance(refused, Placement) and refused.reasons == ("Insufficient cpu",)


def test_what_is_kept_lasts_until_the_trial_around_it_ends() -> None:
    cluster = made_of({("Node", "n0"): node("n0")})
    with cluster.trial():
        with cluster.trial() as inner:
            cluster.add(node("kept"))
            inner.keep()
        with cluster.trial():
            cluster.add(node("not kept"))
        assert [state.name for state in cluster.view.existing()] == ["n0", "kept"]
    assert [state.name for state in cluster.view.existing()] == ["n0"]


def test_who_uses_a_claim_is_said_by_the_pod_or_by_the_claim_and_ends_with_the_pod() -> None:
    cluster = made_of({("Node", "n0"): node("n0"), ("ResourceSlice", "n0"): piece("n0"), ("DeviceClass", "gpu"): CLASS})
    own = claim("a", 1, owner="a", held=("n0", "gpu-0"), users=["a"])
    other = claim("special", 2, held=("n0", "gpu-1"), users=["a"])
    cluster.take("Pod", pod("a", on="n0"))
    cluster.take("ResourceClaim", own)
    cluster.take("ResourceClaim", other)  # for extended resources: the pod does not name it
    [facts] = cluster.placed()
    assert sorted(one["metadata"]["name"] for one in cluster.claims_of(facts)) == ["a", "special"]
    cluster.forget("Pod", pod("a", on="n0"))
    assert cluster.users_of(own) == cluster.users_of(other) == []
