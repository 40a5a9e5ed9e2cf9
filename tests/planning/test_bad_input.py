"""Snapshots that are damaged: whatever is cut, exchanged or added, every command answers or says one clear sentence.

Each mutation changes one value somewhere in the objects; what is damaged is named, and the rest is still planned with.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from drakkar.cli.root import root
from drakkar.diagnosis.explain import explain
from drakkar.diagnosis.render import text
from drakkar.errors import DrakkarError
from drakkar.evidence.recorded import load, relied_on
from drakkar.evidence.snapshot import Manifest, Snapshot
from drakkar.fleet.devices import Fleet
from drakkar.fleet.tallies import tallies
from drakkar.fleet.who import who
from drakkar.planning.capacity import capacity_of
from drakkar.planning.plan import plan, scene_of
from drakkar.planning.render import capacity_text, plan_text
from tools.vectors._clusters import manifests_of, snapshot_of

CLUSTER = {
    "nodes": {"n1": "l4", "n2": {"model": "h100-pcie", "partitions": True}, "n3": {"model": "gh200", "shared": "10Gi"}},
    "pods": [
        {"name": "a", "on": "n1", "devices": ["gpu-0", "gpu-1"], "cpu": "1", "priority": 3, "owner": "ReplicaSet/web"},
        {"name": "b", "on": "n2", "devices": ["gpu-0-mig-1g10gb-19-1"]},
        {"name": "c", "on": "n3", "devices": ["gpu-0@40Gi"]},
    ],
    "waiting": [{"name": "train", "count": 9, "cpu": "2"}],
    "objects": [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
         "spec": {"deviceSelector": {"pool": "n1", "device": "gpu-3"}, "taint": {"key": "x", "effect": "NoSchedule"}}},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "ml"},
         "spec": {"hard": {"pods": "50"}}, "status": {"used": {"pods": "1"}}},
    ],
}  # fmt: skip
WANTED = manifests_of({"wants": [{"name": "serve", "kind": "Deployment", "replicas": 3, "count": 1, "cpu": "1"}]})
BAD = (None, 0, -1, 1.5, True, "", "x", "9" * 40, [], [None], {}, {"": None}, "\ud800", "a" * 3000, 2**70, [[[]]])
SELECTORS = (
    "device.driver ==", "(" * 400 + "1" + ")" * 400, "[1,2,3].map(x, [1,2,3].map(y, x*y))", "device.nothing",
    "'" + "a" * 11000 + "' == ''", "device.driver.matches('(a+)+$')",
    "lists.range(1000).all(x, lists.range(1000).all(y, lists.range(1000).all(z, x + y + z >= 0)))",
)  # fmt: skip

Path_ = tuple[Any, ...]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every place in a value."""
    if path:
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def mutated(objects: list[Any], pick: random.Random) -> list[Any]:
    """The objects with one or two values exchanged, cut or doubled."""
    objects = copy.deepcopy(objects)
    for _ in range(pick.randint(1, 2)):
        number = pick.randrange(len(objects))
        path = pick.choice(list(places(objects[number])) or [()])
        holder = objects[number]
        for step in path[:-1]:
            holder = holder[step]
        if not path:
            continue
        what = pick.random()
        if path[-1] == "expression":
            holder[path[-1]] = pick.choice(SELECTORS)
        elif what < 0.6:
            holder[path[-1]] = pick.choice(BAD)
        elif what < 0.8:
            del holder[path[-1]]
        elif isinstance(holder, dict):
            holder[f"{path[-1]}x"] = holder.pop(path[-1])
        else:
            holder.append(copy.deepcopy(holder[path[-1]]))
    return objects


def everything(snapshot: Snapshot) -> Iterator[Callable[[], object]]:
    """What people ask of a snapshot."""
    for target in ("pod/train", "pod/a", "claim/a-gpu", "node/n1"):
        yield lambda target=target: text(explain(snapshot, target, namespace="ml"))
    yield lambda: text(explain(snapshot, "pod/train", namespace="ml", node="n2"))
    yield lambda: [tally.to_dict() for by in ("node", "class", "product") for tally in tallies(Fleet(snapshot), by)]
    yield lambda: who(Fleet(snapshot), "pod/a", namespace="ml").to_dict()
    yield lambda: who(Fleet(snapshot), "gpu-0", namespace="ml").to_dict()
    yield lambda: plan_text(plan(scene_of(snapshot, WANTED, namespace="ml", without=["n1"])))
    yield lambda: capacity_text(capacity_of(scene_of(snapshot).cluster))


def ask_everything(snapshot: Snapshot) -> None:
    for ask in everything(snapshot):
        try:
            ask()
        except DrakkarError as error:
            assert error.message


OBJECTS = json.loads(json.dumps(list(snapshot_of(CLUSTER).objects)))


@pytest.mark.parametrize("seed", range(24))
def test_a_damaged_snapshot_is_answered_or_refused_in_one_sentence(seed: int) -> None:
    pick = random.Random(seed)
    ask_everything(relied_on(Snapshot(objects=tuple(mutated(OBJECTS, pick)))))


@pytest.mark.parametrize("seed", range(12))
def test_damaged_manifests_are_planned_or_refused_in_one_sentence(seed: int) -> None:
    wants = [
        {"name": name, "kind": kind} for name, kind in (("j", "CronJob"), ("d", "DaemonSet"), ("s", "StatefulSet"))
    ]
    objects = [one.object for one in (*WANTED, *manifests_of({"wants": [*wants, {"name": "p", "match": "x/y"}]}))]
    snapshot = relied_on(Snapshot(objects=tuple(OBJECTS)))
    pick = random.Random(seed)
    for _ in range(4):
        manifests = [Manifest("f", n, obj) for n, obj in enumerate(mutated(objects, pick)) if isinstance(obj, dict)]
        try:
            json.dumps(plan(scene_of(snapshot, manifests, namespace="ml")).to_dict())
        except DrakkarError as error:
            assert error.message


def test_a_damaged_device_hides_no_other() -> None:
    objects = copy.deepcopy(OBJECTS)
    piece = next(obj for obj in objects if obj["kind"] == "ResourceSlice" and obj["spec"]["nodeName"] == "n1")
    damaged = piece["spec"]["devices"][0]["name"]
    piece["spec"]["devices"][0]["capacity"]["memory"]["value"] = "lots"
    snapshot = relied_on(Snapshot(objects=tuple(objects)))
    names = {device.key.device for device in Fleet(snapshot).devices if device.node == "n1"}
    assert damaged not in names
    assert names
    (problem,) = snapshot.unread
    assert problem.startswith(f"ResourceSlice/{piece['metadata']['name']}: spec.devices[0].capacity[memory].value: ")
    assert problem.endswith("(it is 'lots')")


def test_a_damaged_object_is_named_and_the_others_are_used() -> None:
    objects = copy.deepcopy(OBJECTS)
    next(obj for obj in objects if obj["kind"] == "Node" and obj["metadata"]["name"] == "n1")["spec"] = ["no"]
    snapshot = relied_on(Snapshot(objects=tuple(objects)))
    assert snapshot.unread == ("Node/n1: spec: expected `object | null`, got `array`",)
    assert plan(scene_of(snapshot, WANTED, namespace="ml")).outcomes


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "3", "a: [", '{"kind": 5}', "kind: Pod\n---\n- x\n", "\x00\x01"]
)
def test_a_file_that_is_no_snapshot(tmp_path: Path, content: str) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(content)
    for words in (["free"], ["who", "gpu-0"], ["explain", "pod/a"], ["plan", "--capacity"]):
        found = CliRunner().invoke(root, [*words, "--on", str(file)])
        assert isinstance(found.exception, DrakkarError), (words, found.output, found.exception)


def test_a_list_as_kubectl_prints_it(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    assert len(load(file).objects) == len(OBJECTS)
    file.write_text("\n".join(json.dumps(obj) for obj in OBJECTS))
    assert len(load(file).objects) == len(OBJECTS)
    found = CliRunner().invoke(root, ["plan", "--capacity", "--on", str(file), "-o", "json"])
    assert found.exit_code == 0
    assert json.loads(found.stdout)["rows"]


def test_slices_of_an_older_version_are_read(tmp_path: Path) -> None:
    from drakkar.api.conversion import convert

    old = [convert(obj, "v1beta1") if obj["apiVersion"].startswith("resource.k8s.io/") else obj for obj in OBJECTS]
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": old}))
    assert len(Fleet(load(file)).devices) == len(Fleet(relied_on(Snapshot(objects=tuple(OBJECTS)))).devices)
