"""Environment, references and expansion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from drakkar.cluster.kubelet.environment import ConfigError, Downward, environment, expand

POD = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"app": "x", "b": 'q"'},
        "annotations": {"a": "1"},
    },
    "spec": {
        "nodeName": "n",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}],
    },
}


class Objects:
    async def config_map(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return {"data": {"key": "value", "other": "2"}} if name == "map" else None

    async def secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return {"data": {"password": "c2VjcmV0"}} if name == "hidden" else None


def resolve(container: dict[str, Any]) -> dict[str, str]:
    downward = Downward(POD, "127.0.0.1", "127.0.0.2", {"cpu": "8", "memory": "1Gi"})
    return asyncio.run(environment({"name": "c"} | container, Objects(), downward))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "12"),
        ("$$(A)", "$(A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A $", "$A $"),
        ("$(A", "$(A"),
        ("$$$$", "$$"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_values_are_expanded_from_those_before() -> None:
    env = [{"name": "A", "value": "a"}, {"name": "B", "value": "$(A)b $(C)"}, {"name": "C", "value": "c"}]
    assert resolve({"env": env}) == {"A": "a", "B": "ab $(C)", "C": "c"}


def test_references() -> None:
    def ref(name: str, **source: Any) -> dict[str, Any]:
        return {"name": name, "valueFrom": source}

    env = [
        ref("POD", fieldRef={"fieldPath": "metadata.name"}),
        ref("APP", fieldRef={"fieldPath": "metadata.labels['app']"}),
        ref("IP", fieldRef={"fieldPath": "status.podIP"}),
        ref("HOST", fieldRef={"fieldPath": "status.hostIP"}),
        ref("KEY", configMapKeyRef={"name": "map", "key": "key"}),
        ref("PASSWORD", secretKeyRef={"name": "hidden", "key": "password"}),
        ref("GONE", secretKeyRef={"name": "none", "key": "x", "optional": True}),
        ref("CPU", resourceFieldRef={"containerName": "c", "resource": "requests.cpu"}),
        ref("MILLI", resourceFieldRef={"containerName": "c", "resource": "requests.cpu", "divisor": "1m"}),
        ref("MEMORY", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
    ]
    assert resolve({"env": env}) == {
        "POD": "p",
        "APP": "x",
        "IP": "127.0.0.2",
        "HOST": "127.0.0.1",
        "KEY": "value",
        "PASSWORD": "secret",
        "CPU": "1",
        "MILLI": "250",
        "MEMORY": "1024",
    }


def test_whole_objects_with_a_prefix_come_first() -> None:
    container = {
        "envFrom": [{"prefix": "M_", "configMapRef": {"name": "map"}}, {"secretRef": {"name": "x", "optional": True}}],
        "env": [{"name": "M_key", "value": "own"}],
    }
    assert resolve(container) == {"M_key": "own", "M_other": "2"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, 'configmap "none" not found'),
        ({"configMapKeyRef": {"name": "map", "key": "k"}}, "couldn't find key k in ConfigMap ns/map"),
        ({"secretKeyRef": {"name": "hidden", "key": "k"}}, "couldn't find key k in Secret ns/hidden"),
        ({"fieldRef": {"fieldPath": "spec.what"}}, "unsupported fieldPath: spec.what"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"env": [{"name": "A", "valueFrom": source}]})
    assert caught.value.message == message


def test_labels_as_a_file() -> None:
    assert Downward(POD, "", "", {}).field("metadata.labels") == 'app="x"\nb="q\\""'
