"""Extended resources of NVIDIA's device plugin and what stands for them: a class and selectors.

`nvidia.com/gpu` is a whole GPU, `nvidia.com/mig-1g.10gb` a MIG device of that profile (strategy mixed), with the
suffixes of profiles spelled with dots. Anything with `.shared` is a share of a GPU, which claims do not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.kube.quantity import Quantity, QuantityError
from drakkar.migration.converting.work import Object, Work
from drakkar.migration.documents import Steps

__all__ = ["DOMAIN", "DeviceType", "asked", "class_for", "device_type", "profile_class", "profile_of", "request_for"]

DOMAIN: Final = "gpu.nvidia.com"
PREFIX: Final = "nvidia.com/"
_MIG: Final = re.compile(r"mig-(\d+g\.\d+gb)((?:[.-][a-z]+)*)")


@dataclass(frozen=True)
class DeviceType:
    """What one unit of an extended resource is: `profile` is "" for whole GPUs."""

    resource: str
    profile: str = ""

    @property
    def name(self) -> str:
        """A word for requests: gpu, or mig-1g-10gb."""
        return "gpu" if not self.profile else profile_class(self.profile)


def profile_of(resource: str) -> str:
    """The MIG profile behind `nvidia.com/mig-1g.10gb.me`: 1g.10gb+me; "" if it is none."""
    match = _MIG.fullmatch(resource.removeprefix(PREFIX))
    if match is None:
        return ""
    return match[1] + re.sub(r"^\.", "+", match[2])


def profile_class(profile: str) -> str:
    """The name of a class for one profile."""
    return "mig-" + re.sub(r"[^a-z0-9]+", "-", profile.lower()).strip("-")


def device_type(resource: str) -> DeviceType | None:
    """What a resource of the device plugin is, None if it is neither a GPU nor a MIG device."""
    if resource == PREFIX + "gpu":
        return DeviceType(resource)
    profile = profile_of(resource)
    return DeviceType(resource, profile) if profile else None


def asked(work: Work, steps: Steps, holder: Mapping[str, Any]) -> dict[str, int]:
    """The extended resources of NVIDIA in a `resources` and how many; notes on the work what cannot be read."""
    found: dict[str, int] = {}
    for part in ("requests", "limits"):
        listed = holder.get(part)
        for name, amount in listed.items() if isinstance(listed, dict) else ():
            if not str(name).startswith(PREFIX):
                continue
            try:
                quantity = Quantity.parse(amount if isinstance(amount, str | int | float) else "")
                whole = quantity.value()
            except QuantityError:
                work.refuse("amount-unreadable", (*steps, part, name), f"{amount!r} is no number of devices")
                continue
            if Quantity.parse(str(whole)) != quantity:
                work.refuse("amount-unreadable", (*steps, part, name), f"{amount!r} is no whole number of devices")
            found[name] = max(found.get(name, 0), whole)
    return found


def class_for(work: Work, kind: DeviceType) -> tuple[str, list[str]]:
    """The class for a device and the selectors that a request needs beside it; a class that is missing is written."""
    if not kind.profile:
        return DOMAIN, []
    if kind.profile in work.profiles:
        name = profile_class(kind.profile)
        work.classes.setdefault(name, device_class(name, kind.profile))
        return name, []
    return "mig.nvidia.com", [f"device.attributes['{DOMAIN}'].profile == '{kind.profile}'"]


def device_class(name: str, profile: str = "", extended: str = "") -> Object:
    """A DeviceClass for whole GPUs or for one MIG profile."""
    kind = "mig" if profile else "gpu"
    texts = [f"device.driver == '{DOMAIN}' && device.attributes['{DOMAIN}'].type == '{kind}'"]
    if profile:
        texts.append(f"device.attributes['{DOMAIN}'].profile == '{profile}'")
    spec: Object = {"selectors": [{"cel": {"expression": text}} for text in texts]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def request_for(name: str, class_name: str, count: int, selectors: list[str]) -> Object:
    """One request of a claim."""
    exactly: Object = {"deviceClassName": class_name}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    exactly["allocationMode"] = "ExactCount"
    exactly["count"] = count
    return {"name": name, "exactly": exactly}
