"""v1, v1beta2 and v1beta1 hold the same: any way round ends where it began."""

from typing import Any

import pytest

from drakkar.api.conversion import VERSIONS, convert
from drakkar.api.defaulting import default
from drakkar.errors import DrakkarError

CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "n"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "one",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "allocationMode": "ExactCount",
                        "count": 2,
                        "adminAccess": True,
                        "selectors": [{"cel": {"expression": "true"}}],
                        "tolerations": [{"operator": "Exists"}],
                        "capacity": {"requests": {"memory": "1Gi"}},
                    },
                },
                {"name": "two", "firstAvailable": [{"name": "big", "deviceClassName": "gpu", "count": 1}]},
            ]
        }
    },
}
SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.example.com",
        "devices": [{"name": "gpu-0", "attributes": {"a": {"int": 1}}, "capacity": {"memory": {"value": "1Gi"}}}],
    },
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("obj", [CLAIM, SLICE], ids=["claim", "slice"])
def test_there_and_back(obj: dict[str, Any], version: str) -> None:
    assert convert(convert(obj, version), "v1") == obj


def test_v1beta1_keeps_requests_flat_and_devices_under_basic() -> None:
    request = convert(CLAIM, "v1beta1")["spec"]["devices"]["requests"][0]
    assert request["deviceClassName"] == "gpu"
    assert request["count"] == 2
    assert "exactly" not in request
    device = convert(SLICE, "v1beta1")["spec"]["devices"][0]
    assert device == {"name": "gpu-0", "basic": {key: SLICE["spec"]["devices"][0][key] for key in device["basic"]}}
    assert set(device["basic"]) == {"attributes", "capacity"}


def test_templates_are_converted_inside() -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": {"devices": {"requests": [{"name": "one", "deviceClassName": "gpu"}]}}},
    }
    converted = convert(template, "v1")
    assert converted["spec"]["spec"]["devices"]["requests"] == [{"name": "one", "exactly": {"deviceClassName": "gpu"}}]
    assert convert(converted, "v1beta1") == template


def test_the_argument_is_left_as_it_was() -> None:
    before = repr(CLAIM)
    convert(CLAIM, "v1beta1")["spec"]["devices"]["requests"].clear()
    assert repr(CLAIM) == before


def test_defaults_are_filled_in_whatever_the_version() -> None:
    flat = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "spec": {"devices": {"requests": [{"name": "one", "deviceClassName": "gpu"}]}},
    }
    request = default(flat, now="2026-01-01T00:00:00Z")["spec"]["devices"]["requests"][0]
    assert request == {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


@pytest.mark.parametrize(
    ("api_version", "version"),
    [("resource.k8s.io/v1", "v2"), ("resource.k8s.io/v1alpha3", "v1"), ("v1", "v1"), ("", "v1")],
)
def test_unknown_versions_are_named(api_version: str, version: str) -> None:
    with pytest.raises(DrakkarError, match="cannot be converted") as caught:
        convert({"apiVersion": api_version, "kind": "ResourceClaim", "metadata": {"name": "c"}}, version)
    assert caught.value.reason == "UnknownVersion"
