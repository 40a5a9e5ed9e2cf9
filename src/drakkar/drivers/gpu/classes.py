"""The DeviceClasses that NVIDIA's chart installs, so that manifests written for it work unchanged."""

from __future__ import annotations

from typing import Any

from drakkar.vendors.nvidia.published import DRIVER

#: Class to the device type it selects; the first also serves the extended resource of the device plugin.
_TYPES = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig", "vfio.gpu.nvidia.com": "vfio"}
_EXTENDED_RESOURCES = {"gpu.nvidia.com": "nvidia.com/gpu"}


def device_classes() -> list[dict[str, Any]]:
    """The classes as resource.k8s.io/v1 objects, new ones at each call."""
    classes = []
    for name, kind in _TYPES.items():
        expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
        spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
        if name in _EXTENDED_RESOURCES:
            spec["extendedResourceName"] = _EXTENDED_RESOURCES[name]
        classes.append(
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        )
    return classes
