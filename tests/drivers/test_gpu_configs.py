"""GpuConfig and MigDeviceConfig: what is understood, what is refused, and which of several counts."""

from typing import Any

import pytest

from drakkar.drivers.gpu.configs import API_VERSION, DeviceConfig, MpsLimits, config_for, decode
from drakkar.drivers.kit import OpaqueConfig, PreparationError

PATH = "status.allocation.devices.config[0].opaque.parameters"


def parameters(kind: str = "GpuConfig", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind} | fields


def slicing(interval: Any) -> dict[str, Any]:
    return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (parameters(), DeviceConfig("GpuConfig")),
        (parameters(sharing=slicing("Long")), DeviceConfig("GpuConfig", "TimeSlicing", "Long")),
        (parameters(sharing={"strategy": "TimeSlicing"}), DeviceConfig("GpuConfig", "TimeSlicing", "Default")),
        (
            parameters(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
            DeviceConfig("GpuConfig", "TimeSlicing", "Default"),
        ),
        (
            parameters(
                "MigDeviceConfig",
                sharing={
                    "strategy": "MPS",
                    "mpsConfig": {
                        "defaultActiveThreadPercentage": 50,
                        "defaultPinnedDeviceMemoryLimit": "10Gi",
                        "defaultPerDevicePinnedMemoryLimit": {"0": "1536Mi"},
                        "multiUser": True,
                    },
                },
            ),
            DeviceConfig("MigDeviceConfig", "MPS", mps=MpsLimits(50, {"": 10240, "0": 1536}, True)),
        ),
        (parameters("VfioDeviceConfig", iommu={"backendPolicy": "PreferIommuFD"}), DeviceConfig("VfioDeviceConfig")),
    ],
)
def test_what_users_write_is_understood(given: dict[str, Any], wanted: DeviceConfig) -> None:
    assert decode(given, PATH) == wanted


def mps(**limits: Any) -> dict[str, Any]:
    return parameters(sharing={"strategy": "MPS", "mpsConfig": limits})


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({}, ".apiVersion", "not supported"),
        ({"apiVersion": "resource.nvidia.com/v1"}, ".apiVersion", "not supported"),
        (parameters("GPUConfig"), ".kind", "unknown"),
        (parameters(shraing={}), ".shraing", 'unknown field "shraing"'),
        (parameters(sharing=[]), ".sharing", "no object"),
        (parameters(sharing={}), ".sharing.strategy", "unknown"),
        (parameters(sharing={"strategy": "timeslicing"}), ".sharing.strategy", "unknown"),
        (parameters(sharing=slicing("long")), ".sharing.timeSlicingConfig.interval", "unknown"),
        (parameters(sharing=slicing(["Long"])), ".sharing.timeSlicingConfig.interval", "unknown"),
        (parameters(sharing=slicing({})), ".sharing.timeSlicingConfig.interval", "unknown"),
        (parameters(sharing={"strategy": ["MPS"]}), ".sharing.strategy", "unknown"),
        (parameters() | {"kind": ["GpuConfig"]}, ".kind", "unknown"),
        (
            parameters(sharing=slicing("Long") | {"mpsConfig": {}}),
            ".sharing.mpsConfig",
            "does not go together",
        ),
        (mps(defaultActiveThreadPercentage=101), ".sharing.mpsConfig.defaultActiveThreadPercentage", "no percentage"),
        (mps(defaultActiveThreadPercentage=True), ".sharing.mpsConfig.defaultActiveThreadPercentage", "no percentage"),
        (mps(defaultPinnedDeviceMemoryLimit="1Ki"), ".sharing.mpsConfig.defaultPinnedDeviceMemoryLimit", "too small"),
        (mps(defaultPinnedDeviceMemoryLimit="x"), ".sharing.mpsConfig.defaultPinnedDeviceMemoryLimit", "no quantity"),
        (
            mps(defaultPerDevicePinnedMemoryLimit={"first": "1Gi"}),
            ".sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[first]",
            "names no device",
        ),
        (mps(multiUser="yes"), ".sharing.mpsConfig.multiUser", "no boolean"),
        (parameters("VfioDeviceConfig", iommu={"backend": "x"}), ".iommu.backend", "unknown field"),
        (parameters("VfioDeviceConfig", sharing={}), ".sharing", "unknown field"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(given: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(PreparationError) as caught:
        decode(given, PATH)
    assert caught.value.message.startswith(f"{PATH}{field}: ")
    assert problem in caught.value.message
    assert caught.value.subject == PATH + field


def config(source: str, interval: str, *requests: str, kind: str = "GpuConfig") -> OpaqueConfig:
    return OpaqueConfig(source, requests, parameters(kind, sharing=slicing(interval)), PATH)


@pytest.mark.parametrize(
    ("configs", "interval"),
    [
        ([], "Default"),
        ([config("FromClass", "Short")], "Short"),
        ([config("FromClass", "Short"), config("FromClaim", "Long")], "Long"),
        ([config("FromClaim", "Long", "gpu"), config("FromClaim", "Short", "other")], "Long"),
        ([config("FromClaim", "Long", "gpu"), config("FromClaim", "Short", "gpu/big")], "Short"),
        ([config("FromClaim", "Long"), config("FromClaim", "Short", kind="MigDeviceConfig")], "Long"),
    ],
)
def test_the_last_config_that_names_the_request_or_fits_the_type_counts(
    configs: list[OpaqueConfig], interval: str
) -> None:
    assert config_for(configs, "gpu/big", "gpu-0", "gpu").interval == interval


def test_a_config_for_another_type_of_device_is_refused_when_it_names_the_request() -> None:
    wrong = config("FromClaim", "Long", "gpu")
    with pytest.raises(PreparationError, match="cannot apply GpuConfig to device gpu-0-mig-x of type mig"):
        config_for([wrong], "gpu", "gpu-0-mig-x", "mig")
