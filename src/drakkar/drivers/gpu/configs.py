"""Opaque parameters of `gpu.nvidia.com` (resource.nvidia.com/v1beta1), decoded strictly.

The API server does not look into opaque parameters, so a driver that is generous here lets a misspelt limit through
and nobody notices. Every refusal names the field by its path in the claim. Which config counts for a device: the last
one that names its request, else the last one for all requests that fits its type; classes come before the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drakkar.drivers.kit import OpaqueConfig, PreparationError
from drakkar.kube.quantity import Quantity, QuantityError

API_VERSION = "resource.nvidia.com/v1beta1"

#: Which device type each kind is for.
KINDS = {"GpuConfig": "gpu", "MigDeviceConfig": "mig", "VfioDeviceConfig": "vfio"}

#: Time-slice intervals and their numbers in the driver's compute policy.
INTERVALS = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}

_STRATEGIES = ("TimeSlicing", "MPS")
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class MpsLimits:
    """MPS parameters; `pinned_memory` maps an index, a UUID or "" (all) to whole MiB."""

    active_thread_percentage: int | None = None
    pinned_memory: Mapping[str, int] = field(default_factory=dict)
    multi_user: bool = False


@dataclass(frozen=True, slots=True)
class VfioOptions:
    """Which device nodes a passed-through GPU brings: those of IOMMUFD where there is one, and its API device, too."""

    prefer_iommufd: bool = False
    api_device: bool = False


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """What one config asks for; `strategy` is empty, TimeSlicing or MPS.

    Equal are those that claims may share a device with; one that is passed through is never shared.
    """

    kind: str
    strategy: str = ""
    interval: str = "Default"
    mps: MpsLimits | None = None
    vfio: VfioOptions = field(default=VfioOptions(), compare=False)


def config_for(configs: Sequence[OpaqueConfig], request: str, device: str, device_type: str) -> DeviceConfig:
    """The config that counts for `device`, allocated for `request`; a default of its type if none does.

    Raises:
        PreparationError: parameters are invalid, or a config that names the request is for another type of device.
    """
    for config in reversed(configs):
        decoded = decode(config.parameters, config.path)
        fits = KINDS[decoded.kind] == device_type
        if config.names(request):
            if not fits:
                raise PreparationError(
                    f"cannot apply {decoded.kind} to device {device} of type {device_type}",
                    reason="InvalidConfig",
                    subject=config.path,
                    expected=next(kind for kind, fitting in KINDS.items() if fitting == device_type),
                )
            return decoded
        if not config.requests and fits:
            return decoded
    return DeviceConfig(next(kind for kind, fitting in KINDS.items() if fitting == device_type))


def decode(parameters: Mapping[str, Any], path: str) -> DeviceConfig:
    """Parameters as a `DeviceConfig`; `path` is where they stand, for the error.

    Raises:
        PreparationError: unknown version, kind or field, wrong type or value; the message names the field.
    """
    fields = _object(parameters, path)
    version = fields.pop("apiVersion", None)
    kind = fields.pop("kind", None)
    if version != API_VERSION:
        raise _invalid(f"{path}.apiVersion", f"{version!r} is not supported", API_VERSION)
    if not isinstance(kind, str) or kind not in KINDS:
        raise _invalid(f"{path}.kind", f"{kind!r} is unknown", "one of " + ", ".join(KINDS))
    if kind == "VfioDeviceConfig":
        return DeviceConfig(kind, vfio=_vfio(fields, path))
    sharing = fields.pop("sharing", None)
    _nothing_left(fields, path)
    if sharing is None:
        return DeviceConfig(kind)
    return _sharing(kind, _object(sharing, f"{path}.sharing"), f"{path}.sharing")


def _sharing(kind: str, fields: dict[str, Any], path: str) -> DeviceConfig:
    strategy = fields.pop("strategy", None)
    if strategy not in _STRATEGIES:
        raise _invalid(f"{path}.strategy", f"{strategy!r} is unknown", "one of " + ", ".join(_STRATEGIES))
    slicing = fields.pop("timeSlicingConfig", None)
    mps = fields.pop("mpsConfig", None)
    _nothing_left(fields, path)
    if strategy == "TimeSlicing" and mps is not None:
        raise _invalid(f"{path}.mpsConfig", "it does not go together with the strategy TimeSlicing")
    if strategy == "MPS" and slicing is not None:
        raise _invalid(f"{path}.timeSlicingConfig", "it does not go together with the strategy MPS")
    if strategy == "MPS":
        return DeviceConfig(kind, strategy, mps=_mps(_object(mps or {}, f"{path}.mpsConfig"), f"{path}.mpsConfig"))
    interval = "Default"
    if slicing is not None:
        own = f"{path}.timeSlicingConfig"
        inner = _object(slicing, own)
        interval = inner.pop("interval", "Default")
        _nothing_left(inner, own)
        if not isinstance(interval, str) or interval not in INTERVALS:
            raise _invalid(f"{own}.interval", f"{interval!r} is unknown", "one of " + ", ".join(INTERVALS))
    return DeviceConfig(kind, strategy, interval)


def _mps(fields: dict[str, Any], path: str) -> MpsLimits:
    percentage = fields.pop("defaultActiveThreadPercentage", None)
    limit = fields.pop("defaultPinnedDeviceMemoryLimit", None)
    by_device = fields.pop("defaultPerDevicePinnedMemoryLimit", None)
    multi_user = fields.pop("multiUser", False)
    _nothing_left(fields, path)
    if percentage is not None and (type(percentage) is not int or not 0 <= percentage <= 100):
        raise _invalid(f"{path}.defaultActiveThreadPercentage", f"{percentage!r} is no percentage", "0 to 100")
    if type(multi_user) is not bool:
        raise _invalid(f"{path}.multiUser", f"{multi_user!r} is no boolean", "true or false")
    pinned = {}
    if limit is not None:
        pinned[""] = _mebibytes(limit, f"{path}.defaultPinnedDeviceMemoryLimit")
    own = f"{path}.defaultPerDevicePinnedMemoryLimit"
    for key, value in (_object(by_device, own) if by_device is not None else {}).items():
        if not (key.isdigit() or key.startswith("GPU-")):
            raise _invalid(f"{own}[{key}]", f"{key!r} names no device", "an index or a UUID")
        pinned[key] = _mebibytes(value, f"{own}[{key}]")
    return MpsLimits(percentage, pinned, multi_user)


def _mebibytes(value: Any, path: str) -> int:
    try:
        amount = Quantity.from_json(value).value()
    except (QuantityError, TypeError):
        raise _invalid(path, f"{value!r} is no quantity", "a quantity such as 10Gi") from None
    if amount < _MEBIBYTE:
        raise _invalid(path, f"{value} is too small", "at least 1Mi")
    return amount // _MEBIBYTE


def _vfio(fields: dict[str, Any], path: str) -> VfioOptions:
    iommu = fields.pop("iommu", None)
    _nothing_left(fields, path)
    if iommu is None:
        return VfioOptions()
    own = f"{path}.iommu"
    inner = _object(iommu, own)
    policy = inner.pop("backendPolicy", "LegacyOnly")
    api_device = inner.pop("enableAPIDevice", False)
    _nothing_left(inner, own)
    if policy not in ("LegacyOnly", "PreferIommuFD"):
        raise _invalid(f"{own}.backendPolicy", f"{policy!r} is unknown", "LegacyOnly or PreferIommuFD")
    if type(api_device) is not bool:
        raise _invalid(f"{own}.enableAPIDevice", f"{api_device!r} is no boolean", "true or false")
    return VfioOptions(policy == "PreferIommuFD", api_device)


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _invalid(path, f"{value!r} is no object", "an object")
    return dict(value)


def _nothing_left(fields: Mapping[str, Any], path: str) -> None:
    for name in sorted(fields):
        raise _invalid(f"{path}.{name}", f'unknown field "{name}"')


def _invalid(path: str, problem: str, expected: str = "") -> PreparationError:
    return PreparationError(f"{path}: {problem}", reason="InvalidConfig", subject=path, expected=expected)
