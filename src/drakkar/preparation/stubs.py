"""Kubelet's plugin services by name: method paths and message classes, for servers and clients alike.

The names on the wire are not the names in `supported_versions`: DRA's package is spelled out in full, health's is the
bare version. Both tables are here so that nobody spells them a second time (KEP-4381, KEP-4680).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

REGISTRATION_SERVICE = "pluginregistration.Registration"
DRA_PLUGIN_TYPE = "DRAPlugin"


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its full path and how its messages become bytes and back."""

    path: str
    request: Any
    response: Any

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class DraService:
    """One version of the DRA service; `advertised` is what registration lists, `messages` the protobuf module."""

    advertised: str
    service: str
    messages: Any
    prepare: Method
    unprepare: Method


@dataclass(frozen=True, slots=True)
class HealthService:
    """One version of the health service."""

    advertised: str
    service: str
    messages: Any
    watch: Method


@dataclass(frozen=True, slots=True)
class RegistrationService:
    """Plugin registration, `pluginregistration.Registration`."""

    service: str
    messages: Any
    get_info: Method
    notify: Method


def _module(name: str) -> Any:
    """protoc knows no packages; load its modules as ours, without touching sys.path."""
    return import_module(f"drakkar.preparation.generated.{name}")


@cache
def registration() -> RegistrationService:
    messages = _module("registration_pb2")
    service = REGISTRATION_SERVICE
    return RegistrationService(
        service,
        messages,
        Method(f"/{service}/GetInfo", messages.InfoRequest, messages.PluginInfo),
        Method(
            f"/{service}/NotifyRegistrationStatus", messages.RegistrationStatus, messages.RegistrationStatusResponse
        ),
    )


@cache
def dra(version: str) -> DraService:
    """`version` is v1 or v1beta1."""
    messages = _module(f"dra_{version}_pb2")
    service = f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
    return DraService(
        f"{version}.DRAPlugin",
        service,
        messages,
        Method(
            f"/{service}/NodePrepareResources",
            messages.NodePrepareResourcesRequest,
            messages.NodePrepareResourcesResponse,
        ),
        Method(
            f"/{service}/NodeUnprepareResources",
            messages.NodeUnprepareResourcesRequest,
            messages.NodeUnprepareResourcesResponse,
        ),
    )


@cache
def health(version: str) -> HealthService:
    """`version` is v1 or v1alpha1."""
    messages = _module(f"health_{version}_pb2")
    service = f"{version}.DRAResourceHealth"
    method = Method(
        f"/{service}/NodeWatchResources", messages.NodeWatchResourcesRequest, messages.NodeWatchResourcesResponse
    )
    return HealthService(service, service, messages, method)


@dataclass(frozen=True, slots=True)
class DevicePluginService:
    """The device plugin API v1beta1: the kubelet's registration and the plugin's own service."""

    messages: Any
    registration: str
    register: Method
    service: str
    options: Method
    watch: Method
    preferred: Method
    allocate: Method
    prestart: Method


@cache
def device_plugin() -> DevicePluginService:
    messages = _module("deviceplugin_v1beta1_pb2")
    service = "v1beta1.DevicePlugin"

    def method(name: str, request: str, response: str) -> Method:
        return Method(f"/{service}/{name}", getattr(messages, request), getattr(messages, response))

    registration = "v1beta1.Registration"
    return DevicePluginService(
        messages,
        registration,
        Method(f"/{registration}/Register", messages.RegisterRequest, messages.Empty),
        service,
        method("GetDevicePluginOptions", "Empty", "DevicePluginOptions"),
        method("ListAndWatch", "Empty", "ListAndWatchResponse"),
        method("GetPreferredAllocation", "PreferredAllocationRequest", "PreferredAllocationResponse"),
        method("Allocate", "AllocateRequest", "AllocateResponse"),
        method("PreStartContainer", "PreStartContainerRequest", "PreStartContainerResponse"),
    )


DRA_VERSIONS = ("v1", "v1beta1")
HEALTH_VERSIONS = ("v1", "v1alpha1")
