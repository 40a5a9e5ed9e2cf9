"""`drakkar plan`, and how it ends: 0 fits, 1 does not, 4 cannot be answered, 2 was asked wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from drakkar.cli.root import root
from drakkar.errors import DrakkarError
from tools.vectors._clusters import snapshot_of, wanted

SMALL = {"nodes": {"n1": "l4"}, "pods": [{"name": "a", "on": "n1", "devices": ["gpu-0"]}]}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({"kind": "List", "items": list(snapshot_of(SMALL).objects)}))
    return file


def manifests(folder: Path, **entry) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.yaml").write_text(yaml.safe_dump_all(wanted(entry)))
    return folder


def run(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(root, ["plan", *map(str, words)], input=stdin)


def test_a_folder_fits(tmp_path: Path, cluster: Path) -> None:
    folder = manifests(tmp_path / "m", name="serve", kind="Deployment", replicas=3)
    found = run("-f", folder, "--on", cluster)
    assert (found.exit_code, found.stdout.splitlines()[0]) == (0, "all 3 pods fit: 3 on n1")


def test_standard_input_and_json(tmp_path: Path, cluster: Path) -> None:
    text = (manifests(tmp_path / "m", name="serve", count=4) / "a.yaml").read_text()
    found = run("-f", "-", "--on", cluster, "-o", "json", stdin=text)
    answer = json.loads(found.stdout)
    assert found.exit_code == 1
    assert not answer["fits"]
    assert answer["room"][0]["pods"][0]["pod"] == "ml/a"
    assert yaml.safe_load(run("-f", "-", "--on", cluster, "-o", "yaml", stdin=text).stdout) == answer


def test_a_namespace_for_those_without(tmp_path: Path, cluster: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}"
    )
    assert "other/p" in run("-f", tmp_path / "p.yaml", "--on", cluster, "-n", "other").stdout


@pytest.mark.parametrize(
    "words",
    [(), ("--surge", "1", "--capacity"), ("--share", "memory=1Gi", "-f", "x"), ("--capacity", "--rollout", "deploy/x"),
     ("--capacity", "--share", "memory"), ("--capacity", "--share", "memory=much")],
)  # fmt: skip
def test_asked_wrongly(words: tuple[str, ...], cluster: Path) -> None:
    assert run(*words, "--on", cluster).exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "m.yaml:"),
        ("- 1", "m.yaml:1: no object"),
        ("metadata: {name: x}", "m.yaml:1: an object without a kind"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}",
            "spec.containers: at least one container is required",
        ),
        ("{apiVersion: v1, kind: Pod, metadata: {}, spec: {}}", "metadata.name: name or generateName is required"),
        ("{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: three}}", "spec.replicas"),
        ("{apiVersion: resource.k8s.io/v1beta1, kind: ResourceClaim, metadata: {name: c}, spec: [1]}", "ResourceClaim"),
    ],
)
def test_a_manifest_that_is_none(tmp_path: Path, cluster: Path, text: str, message: str) -> None:
    (tmp_path / "m.yaml").write_text(text)
    found = run("-f", tmp_path / "m.yaml", "--on", cluster)
    assert isinstance(found.exception, DrakkarError), found.output
    assert message in found.exception.message
    assert found.exception.exit_status == 4


def test_files_that_are_not_there(tmp_path: Path, cluster: Path) -> None:
    for path in (tmp_path / "nothing.yaml", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        found = run("-f", path, "--on", cluster)
        assert isinstance(found.exception, DrakkarError)
        assert str(path) in found.exception.message


def test_capacity_and_rollout(tmp_path: Path, cluster: Path) -> None:
    rows = json.loads(run("--capacity", "--on", cluster, "-o", "json").stdout)["rows"]
    assert [(row["class"], row["fits"]) for row in rows] == [("gpu.nvidia.com", 3)]
    folder = manifests(tmp_path / "m", name="serve", kind="Deployment", replicas=3)
    found = run("-f", folder, "--rollout", "deploy/serve", "-n", "ml", "--on", cluster)
    assert (found.exit_code, "it would end with one of" in found.stdout) == (1, True)
    missing = run("--rollout", "deploy/other", "-n", "ml", "--on", cluster)
    assert isinstance(missing.exception, DrakkarError)


def test_nothing_is_written_to_the_objects_handed_in(cluster: Path) -> None:
    from drakkar.planning.plan import plan, scene_of
    from tools.vectors._clusters import manifests_of

    snapshot = snapshot_of(SMALL)
    before = json.dumps(list(snapshot.objects))
    plan(scene_of(snapshot, manifests_of({"wants": [{"name": "x", "count": 4}]}), namespace="ml", with_nodes=["n1"]))
    assert json.dumps(list(snapshot.objects)) == before


def test_a_trial_takes_everything_back() -> None:
    from drakkar.planning.capacity import capacity_of
    from drakkar.planning.plan import scene_of
    from drakkar.planning.rollout import rollout_of
    from tools.vectors._clusters import manifests_of

    (manifest,) = [
        one
        for one in manifests_of({"wants": [{"name": "x", "kind": "Deployment", "replicas": 3}]})
        if one.object["kind"] == "Deployment"
    ]
    scene = scene_of(snapshot_of(SMALL), manifests_of({"wants": [{"name": "x", "kind": "Deployment"}]}), namespace="ml")
    before = (
        capacity_of(scene.cluster).to_dict(),
        {pod.uid for pod in scene.cluster.placed()},
        dict(scene.cluster.claims),
    )
    with scene.cluster.trial():
        scene.cluster.drop_node("n1")
        assert not capacity_of(scene.cluster).rows
    rollout_of(scene.cluster, {**manifest.object, "metadata": {"name": "x", "namespace": "ml"}})
    after = (
        capacity_of(scene.cluster).to_dict(),
        {pod.uid for pod in scene.cluster.placed()},
        dict(scene.cluster.claims),
    )
    assert before == after
