"""Kubernetes' protobuf bodies: what is written can be read, and bytes written elsewhere are understood."""

from typing import Any

import pytest

from drakkar.cluster.machinery import protobuf
from drakkar.cluster.machinery.kinds import DecodeError, kind_of

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "labels": {"a": "b", "c": ""},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "containers": [
            {
                "name": "é",
                "image": "i",
                "command": ["x", ""],
                "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "claims": [{"name": "gpu"}]},
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 10},
                "readinessProbe": {"tcpSocket": {"port": 8080}},
            }
        ],
        "terminationGracePeriodSeconds": 30,
        "hostNetwork": True,
        "priority": -5,
        "enableServiceLinks": False,
    },
    "status": {"startTime": None},
}


def typed(obj: dict[str, Any]) -> dict[str, Any]:
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = kind_of(group, version, obj["kind"])
    assert kind is not None
    return kind.shape(obj).object


OBJECTS = [
    POD,
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "generation": 3, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"uuid": {"string": "x"}, "index": {"int": 0}, "ok": {"bool": False}},
                    "capacity": {"memory": {"value": "80Gi"}},
                    "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}],
                }
            ],
        },
    },
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.123456Z", "leaseDurationSeconds": 40},
    },
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "AAEC"}, "type": "Opaque"},
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
        },
    },
]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: obj["kind"])
def test_there_and_back(obj: dict[str, Any]) -> None:
    wanted = typed(obj)
    assert typed(protobuf.decode(protobuf.encode(wanted))) == wanted


def test_bytes_of_another_encoder() -> None:
    # k8s\0, Unknown{typeMeta{apiVersion "v1", kind "ConfigMap"}, raw: ConfigMap{metadata{name "c"}, data{"a": "b"}}}
    raw = bytes.fromhex("0a030a0163" + "12060a016112 0162".replace(" ", ""))
    meta = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\x00\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(raw)]) + raw + b"\x1a\x00\x22\x00"
    found = protobuf.decode(body)
    assert found["apiVersion"] == "v1"
    assert found["kind"] == "ConfigMap"
    assert found["metadata"]["name"] == "c"
    assert found["data"] == {"a": "b"}


def test_a_time_without_bytes_is_none() -> None:
    # What client-go sends for `metav1.Time{}`: ConfigMap{metadata{name "c", creationTimestamp (field 8) {}}}
    meta = b"\x0a\x02v1\x12\x09ConfigMap"
    raw = bytes.fromhex("0a050a01634200")
    body = b"k8s\x00\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(raw)]) + raw + b"\x1a\x00\x22\x00"
    assert protobuf.decode(body)["metadata"] == {"name": "c"}


def test_unknown_fields_are_skipped() -> None:
    raw = bytes.fromhex("0a030a0163" + "f8ff0301" + "fa ff 03 01 78".replace(" ", ""))
    meta = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\x00\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(raw)]) + raw
    assert protobuf.decode(body)["metadata"]["name"] == "c"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00",
        b"k8s\x00\xff",
        b"k8s\x00\x0a\x7f",
        b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x03\x0a\x05\x0a",
        b"k8s\x00\x0a\x08\x0a\x02v9\x12\x02Xx\x12\x00",
    ],
)
def test_broken_bodies_are_errors(body: bytes) -> None:
    kind = kind_of("", "v1", "ConfigMap")
    assert kind is not None
    with pytest.raises(DecodeError):
        kind.decode(body, "application/vnd.kubernetes.protobuf")


@pytest.mark.parametrize("length", range(5, 200, 7))
def test_cut_bodies_never_escape(length: int) -> None:
    body = protobuf.encode(typed(POD))[:length]
    try:
        protobuf.decode(body)
    except protobuf.ProtobufError:
        return
