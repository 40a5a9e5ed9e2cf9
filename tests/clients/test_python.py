"""The Python clients that people use: the official one, lightkube, and operators made with kopf."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes
import lightkube
import pytest
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.stream import stream
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Node, Pod

from drakkar.testing.clusters import EmbeddedCluster

SLEEPING = {"containers": [{"name": "c", "image": "busybox", "command": ["sleep", "60"]}]}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "gpu"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
}


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


@pytest.fixture
def official(cluster: EmbeddedCluster) -> kubernetes.client.ApiClient:
    return kubernetes.config.new_client_from_config(str(cluster.kubeconfig))


def test_the_official_client(official: kubernetes.client.ApiClient) -> None:
    core, version = kubernetes.client.CoreV1Api(official), kubernetes.client.VersionApi(official)
    assert version.get_code().minor == "37"
    assert [node.metadata.name for node in core.list_node().items] == ["t4-0"]
    made = core.create_namespaced_config_map("default", {"metadata": {"name": "official"}, "data": {"a": "1"}})
    watch = kubernetes.watch.Watch()
    events = watch.stream(
        core.list_namespaced_config_map,
        "default",
        field_selector="metadata.name=official",
        resource_version=made.metadata.resource_version,
        timeout_seconds=10,
    )
    core.patch_namespaced_config_map("official", "default", {"data": {"b": "2"}})
    event = next(iter(events))
    watch.stop()
    assert (event["type"], event["object"].data) == ("MODIFIED", {"a": "1", "b": "2"})
    made.data = {"a": "stale"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("official", "default", made)
    assert caught.value.status == 409 and json.loads(caught.value.body)["reason"] == "Conflict"
    core.delete_namespaced_config_map("official", "default")
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map("official", "default")
    assert caught.value.status == 404


def test_the_official_client_runs_a_pod_with_a_gpu_and_looks_into_it(official: kubernetes.client.ApiClient) -> None:
    core = kubernetes.client.CoreV1Api(official)
    dynamic = DynamicClient(official)
    claims = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
    claims.create(body=CLAIM, namespace="default")
    container = {**SLEEPING["containers"][0], "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "terminationGracePeriodSeconds": 0,
    }
    core.create_namespaced_pod("default", {"metadata": {"name": "looked-into"}, "spec": spec})
    until(lambda: core.read_namespaced_pod("looked-into", "default").status.phase == "Running")
    call = {"command": ["nvidia-smi", "-L"], "stdout": True, "stderr": True, "stdin": False, "tty": False}
    listed = stream(core.connect_get_namespaced_pod_exec, "looked-into", "default", **call)
    assert listed.startswith("GPU 0: Tesla T4 (UUID: GPU-") and listed.count("UUID") == 1
    (result,) = claims.get(name="gpu", namespace="default").status.allocation.devices.results
    assert (result.driver, result.pool) == ("gpu.nvidia.com", "t4-0")
    core.delete_namespaced_pod("looked-into", "default")
    claims.delete(name="gpu", namespace="default")
    until(lambda: "gpu" not in [one.metadata.name for one in claims.get(namespace="default").items])


def test_lightkube(cluster: EmbeddedCluster) -> None:
    config = lightkube.KubeConfig.from_file(str(cluster.kubeconfig))
    client = lightkube.Client(config=config, field_manager="lightkube-test")
    assert [node.metadata.name for node in client.list(Node)] == ["t4-0"]
    labels = {"app": "light"}
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels=labels),
        spec=PodSpec(containers=[Container(name="c", image="busybox", command=["sleep", "60"])]),
    )
    wanted = Deployment(
        metadata=ObjectMeta(name="light", namespace="default"),
        spec=DeploymentSpec(replicas=2, selector=LabelSelector(matchLabels=labels), template=template),
    )
    client.apply(wanted)
    until(lambda: client.get(Deployment, "light").status.readyReplicas == 2)
    assert len(list(client.list(Pod, namespace="default", labels=labels))) == 2
    client.patch(Deployment, "light", {"spec": {"replicas": 0}})
    until(lambda: not list(client.list(Pod, namespace="default", labels=labels)))
    client.apply(ConfigMap(metadata=ObjectMeta(name="owned", namespace="default"), data={"a": "1"}))
    with pytest.raises(ApiError) as caught:
        client.apply(
            ConfigMap(metadata=ObjectMeta(name="owned", namespace="default"), data={"a": "2"}), field_manager="other"
        )
    assert caught.value.status.code == 409 and "conflict with" in str(caught.value.status.message)
    client.delete(Deployment, "light")
    generic = create_namespaced_resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
    client.create(generic(CLAIM | {"metadata": {"name": "by-lightkube", "namespace": "default"}}))
    (request,) = client.get(generic, "by-lightkube").spec["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    client.delete(generic, "by-lightkube")


OPERATOR = """
import kopf

@kopf.on.create("lamps.example.com", "v1", "lamps")
def create(spec, body, patch, **_):
    if spec.get("colour") == "black":
        kopf.warn(body, reason="NoLight", message="there is no black light")
        raise kopf.PermanentError("there is no black light")
    patch.status["shines"] = spec["colour"]

@kopf.on.field("lamps.example.com", "v1", "lamps", field="spec.colour")
def change(new, old, patch, **_):
    if old is not None:
        patch.status["shines"] = f"{new} after {old}"

@kopf.on.delete("lamps.example.com", "v1", "lamps")
def delete(name, **_):
    pass
"""

DEFINITION = {
    "metadata": {"name": "lamps.lamps.example.com"},
    "spec": {
        "group": "lamps.example.com",
        "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"colour": {"type": "string"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def test_an_operator_made_with_kopf(cluster: EmbeddedCluster, official: Any, tmp_path: Path) -> None:
    extensions = kubernetes.client.ApiextensionsV1Api(official)
    extensions.create_custom_resource_definition(DEFINITION)
    objects = kubernetes.client.CustomObjectsApi(official)
    where = ("lamps.example.com", "v1", "default", "lamps")
    file = tmp_path / "operator_of_lamps.py"
    file.write_text(OPERATOR)
    log = (tmp_path / "log").open("w+")
    operator = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", "default", str(file)],
        env=cluster.environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        lamp = {
            "apiVersion": "lamps.example.com/v1",
            "kind": "Lamp",
            "metadata": {"name": "l"},
            "spec": {"colour": "red"},
        }

        def shines(name: str = "l") -> Any:
            return (objects.get_namespaced_custom_object(*where, name).get("status") or {}).get("shines")

        until(lambda: _created(objects, where, lamp))
        until(lambda: shines() == "red", 40)
        assert objects.get_namespaced_custom_object(*where, "l")["metadata"]["finalizers"]
        objects.patch_namespaced_custom_object(*where, "l", {"spec": {"colour": "blue"}})
        until(lambda: shines() == "blue after red", 40)
        objects.create_namespaced_custom_object(*where, lamp | {"metadata": {"name": "b"}, "spec": {"colour": "black"}})
        core = kubernetes.client.CoreV1Api(official)

        def messages() -> list[str]:
            return [event.message or "" for event in core.list_namespaced_event("default").items]

        until(lambda: any("there is no black light" in message for message in messages()), 40)
        objects.delete_namespaced_custom_object(*where, "l")
        until(lambda: "l" not in [one["metadata"]["name"] for one in _listed(objects, where)], 40)
    except AssertionError as error:
        log.seek(0)
        raise AssertionError(log.read()[-3000:]) from error
    finally:
        operator.terminate()
        operator.wait(20)
        log.close()


def _created(objects: Any, where: tuple[str, ...], lamp: dict[str, Any]) -> bool:
    """A definition is served a moment after it was made."""
    try:
        objects.create_namespaced_custom_object(*where, lamp)
    except ApiException as error:
        assert error.status == 404
        return False
    return True


def _listed(objects: Any, where: tuple[str, ...]) -> list[dict[str, Any]]:
    return list(objects.list_namespaced_custom_object(*where)["items"])
