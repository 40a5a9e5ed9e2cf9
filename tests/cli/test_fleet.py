"""`drakkar up --fleet FILE` as somebody types it."""

from __future__ import annotations

import json
import textwrap

import pytest

from tests.cli.conftest import World

FLEET = """
nodes:
- model: t4
  count: 2
  name: inference-{zone}
  zones: [north, south]
  labels: {example.com/where: "{zone}"}
  taints: ["example.com/only=inference:NoSchedule"]
workloads:
- pods
- apiVersion: widgets.example.com/v1
  kind: Widget
  metadata: {name: w, namespace: team}
faults:
- {after: 0s, fault: gpu-lost, zone: south, gpu: 0}
"""
PODS = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.widgets.example.com}
spec:
  group: widgets.example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team}
spec:
  tolerations: [{key: example.com/only, operator: Exists}]
  nodeSelector: {example.com/where: north}
  containers: [{name: c, image: x, command: [sleep, "100"]}]
"""


@pytest.mark.kubectl
def test_nodes_workloads_and_faults(world: World) -> None:
    (world.folder / "pods").mkdir()
    (world.folder / "pods/all.yaml").write_text(PODS)
    file = world.folder / "fleet.yaml"
    file.write_text(FLEET)
    data = world.folder / "data"
    world.up("--runtime", "process", "--data", data, "--fleet", file)
    world.kubectl("wait", "--for=condition=Ready", "pod/p", "-n", "team", "--timeout=30s")
    assert "inference-north" in world.kubectl("get", "pod", "p", "-n", "team", "-o", "wide").stdout
    assert world.kubectl("get", "widgets", "-n", "team", "-o", "name").stdout == "widget.widgets.example.com/w\n"
    node = json.loads(world.kubectl("get", "node", "inference-south", "-o", "json").stdout)
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "south"
    assert {"key": "example.com/only", "value": "inference", "effect": "NoSchedule"} in node["spec"]["taints"]
    world.until("get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].taints[*].key}", prints="nvidia")
    status = json.loads(world.drakkar("status", "--output", "json").stdout)
    status = status[0] if isinstance(status, list) else status
    assert {n["name"]: n["devices"][0]["lost"] for n in status["nodes"]} == {
        "inference-north": False,
        "inference-south": True,
    }

    assert world.drakkar("down").returncode == 0
    world.up("--runtime", "process", "--data", data)  # the nodes are remembered, with what they registered with
    remembered = json.loads((data / "nodes.json").read_bytes())
    assert [
        (each["name"], each["labels"]["example.com/where"], each["taints"][0]["effect"]) for each in remembered
    ] == [
        ("inference-north", "north", "NoSchedule"),
        ("inference-south", "south", "NoSchedule"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes: [{model: t5}]", "nodes[0].model"),
        ("workloads: [{apiVersion: v1, kind: Pot, metadata: {name: a}}]", "no kind 'Pot' in version 'v1'"),
        ("workloads: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}]", "spec.containers: Required value"),
        ("workloads: [{apiVersion: v1, kind: Pod, metadata: {}}]", "metadata.name"),
        ("workloads: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}]", "workloads[0]"),
    ],
)
def test_what_cannot_start_says_where(world: World, text: str, told: str) -> None:
    file = world.folder / "fleet.yaml"
    file.write_text(textwrap.dedent(text))
    done = world.drakkar("up", *(["--detach"] if "Pot" in text else []), "--runtime", "process", "--fleet", file)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert told in done.stderr and "fleet.yaml" in done.stderr
    assert "no embedded cluster" in world.drakkar("status").stdout
