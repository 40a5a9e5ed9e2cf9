"""One pod template: its devices become claims, and what the old way needed beside them goes.

A container's devices are one claim of its own, as the device plugin gave them to it alone. An init container that runs
before the others got the very devices that they have later, so it refers to their claims instead of adding to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from drakkar.kube.paths import value_at
from drakkar.migration.converting.devices import (
    PREFIX,
    DeviceType,
    asked,
    class_for,
    device_class,
    device_type,
    request_for,
)
from drakkar.migration.converting.placement import device_conditions, drop_empty, single_profile
from drakkar.migration.converting.work import Object, Work
from drakkar.migration.converting.workloads import PodPlace
from drakkar.migration.documents import Steps, items_at

__all__ = ["convert_pod", "devices_in"]

MAX_DEVICES: Final = 32
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES: Final = ("void", "none", "")


@dataclass
class _Container:
    """A container that asks for devices: how many of each type, and what of which claim it will name."""

    steps: Steps
    value: Object
    init: bool
    devices: dict[DeviceType, int] = field(default_factory=dict)
    uses: list[Object] = field(default_factory=list)

    @property
    def name(self) -> str:
        name = self.value.get("name")
        return name if isinstance(name, str) and name else str(self.steps[-1])


def devices_in(work: Work, place: PodPlace) -> dict[str, int]:
    """The extended resources of NVIDIA that the containers of a template ask for, the largest of each container."""
    found: dict[str, int] = {}
    for _, _, container in place.containers(work.value):
        for part in ("limits", "requests"):
            listed = value_at(container, ("resources", part))
            for name in listed if isinstance(listed, dict) else ():
                if str(name).startswith(PREFIX):
                    found[name] = 1
    return found


def convert_pod(work: Work, place: PodPlace) -> int:
    """Convert a template in the work's value; the number of devices that its first container holds then."""
    spec = place.spec(work.value)
    containers = list(_containers(work, place, spec))
    _check_runtime(work, place, spec, asks=bool(containers))
    if not containers:
        return 0
    _check_pod(work, place, spec)
    if work.settings.to == "extended-resource":
        return _behind_old_names(work, place, spec, containers)
    if any(container.devices for container in containers):
        mig = all(kind.profile for container in containers for kind in container.devices)
        conditions = device_conditions(work, place.spec_steps, spec, mig=mig)
        _claims(work, place, spec, containers, conditions)
        _toleration(work, place, spec, containers)
    else:
        for container in containers:
            _strip(work, container)
    _drop_runtime(work, place, spec)
    return sum(containers[0].devices.values())


# -- reading -------------------------------------------------------------------------------------------------


def _containers(work: Work, place: PodPlace, spec: Object) -> Iterator[_Container]:
    """The containers that name resources of the device plugin, with what they want; zero counts are none."""
    single = single_profile(spec)
    for part, steps, value in place.containers(work.value):
        resources = value.get("resources")
        if not isinstance(resources, dict):
            continue
        init = part == "initContainers" and value.get("restartPolicy") != "Always"
        found = _Container(steps, value, init)
        listed = asked(work, (*steps, "resources"), resources)
        for resource, count in listed.items():
            kind = _type_of(work, (*steps, "resources", "limits", resource), resource, single)
            if kind is None:
                continue
            if count > MAX_DEVICES:
                message = f"{count} devices for one container: a claim can hold at most {MAX_DEVICES}"
                work.refuse("too-many-devices", (*steps, "resources", "limits", resource), message)
            if count:
                found.devices[kind] = found.devices.get(kind, 0) + count
        if listed:
            yield found


def _type_of(work: Work, place: Steps, resource: str, single: str) -> DeviceType | None:
    if resource.endswith(".shared"):
        if work.settings.to == "claims" and device_type(resource.removesuffix(".shared")):
            message = (
                f"{resource} is a share of a GPU by time slices, which claims do not have: several pods share one"
                " ResourceClaim, or the driver's ConsumableShares (alpha)"
            )
            work.lose("shared-as-whole", place, message)
            return device_type(resource.removesuffix(".shared"))
        work.refuse("shared", place, f"{resource} is a share of a GPU by time slices; no class stands for shares")
        return None
    kind = device_type(resource)
    if kind is None:
        work.refuse(
            "resource-unknown", place, f"{resource} is neither nvidia.com/gpu nor a MIG profile; no class is known"
        )
        return None
    if kind.profile or work.settings.to != "claims":
        return kind
    if work.recorded.time_sliced:
        message = "nodes show each GPU several times (time slicing or MPS under the plain name); one of them is no GPU"
        work.lose("shared-as-whole", place, message)
    if single:
        return DeviceType(resource, single)
    profiles = work.recorded.single_profiles
    if len(profiles) == 1:
        return DeviceType(resource, next(iter(profiles)))
    if len(profiles) > 1:
        shown = ", ".join(sorted(profile or "whole GPUs" for profile in profiles))
        work.refuse(
            "meaning-depends-on-node", place, f"{resource} means {shown}, by the node (MIG strategy single): name one"
        )
    return kind


def _check_pod(work: Work, place: PodPlace, spec: Object) -> None:
    if spec.get("nodeName"):
        work.refuse(
            "node-name", (*place.spec_steps, "nodeName"),
            "nodeName bypasses the scheduler, and nobody else allocates claims: use a nodeSelector for the host name",
        )  # fmt: skip
    scheduler = spec.get("schedulerName")
    if scheduler not in (None, "", "default-scheduler"):
        work.note(
            "manual", "other-scheduler", (*place.spec_steps, "schedulerName"),
            f"scheduler {scheduler} has to support DynamicResources: check its version and plugins",
        )  # fmt: skip


def _check_runtime(work: Work, place: PodPlace, spec: Object, *, asks: bool) -> None:
    """Containers that reach GPUs through environment and runtime class alone."""
    for part in ("containers", "initContainers"):
        for number, container in enumerate(items_at(spec, part)):
            has = any(key.startswith(PREFIX) for key in _resources(container))
            for index, entry in enumerate(items_at(container, "env")):
                if entry.get("name") != _VISIBLE:
                    continue
                steps = (*place.spec_steps, part, number, "env", index)
                value = entry.get("value")
                if not isinstance(value, str) and "valueFrom" in entry:
                    work.refuse(
                        "visible-devices",
                        steps,
                        f"{_VISIBLE} comes from elsewhere; nobody knows which devices are meant",
                    )
                elif str(value) not in (*_NO_DEVICES, "all"):
                    message = (
                        f"{_VISIBLE}={value} names devices by hand; a claim gets them from the scheduler: select by"
                        " attributes"
                    )
                    work.refuse("visible-devices", steps, message)
                elif str(value) == "all" and not has:
                    message = (
                        f"{_VISIBLE}=all shows every GPU of the node without asking for one; as a claim that is"
                        " allocationMode All with adminAccess, in a namespace labelled"
                        " resource.kubernetes.io/admin-access=true"
                    )
                    work.refuse("unallocated-access", steps, message)
    name = spec.get("runtimeClassName")
    if not asks and _is_nvidia(name):
        work.note(
            "kept",
            "runtime-class-stays",
            (*place.spec_steps, "runtimeClassName"),
            f"runtimeClassName {name} stays: the pod asks for no device",
        )


def _resources(container: Object) -> list[str]:
    listed = [value_at(container, ("resources", part)) for part in ("limits", "requests")]
    return [str(key) for each in listed if isinstance(each, dict) for key in each]


def _is_nvidia(name: Any) -> bool:
    return isinstance(name, str) and (name == "nvidia" or name.startswith("nvidia-"))


# -- claims --------------------------------------------------------------------------------------------------


def _claims(work: Work, place: PodPlace, spec: Object, containers: list[_Container], conditions: list[str]) -> None:
    entries = _listed(spec, "resourceClaims")
    taken = {str(entry.get("name")) for entry in entries if isinstance(entry, dict)}
    owners = [each for each in containers if not each.init and each.devices]
    offered: list[tuple[DeviceType, int, Object]] = []
    made: list[Object] = []
    for container in owners:
        name = _unused("gpu" if len(owners) == 1 else f"gpu-{container.name}"[:63].rstrip("-"), taken)
        made.append(_entry(work, place, name, container, container.devices, conditions))
        container.uses.append({"name": name})
        several = len(container.devices) > 1
        for kind, count in container.devices.items():
            offered.append((kind, count, {"name": name, "request": kind.name} if several else {"name": name}))
    for container in containers:
        if container.init and container.devices:
            made += _init_claims(work, place, container, offered, taken, conditions)
    for container in containers:
        _strip(work, container)
        if container.uses:
            resources = container.value.setdefault("resources", {})
            if not isinstance(resources.get("claims", []), list):
                message = f"the claims of container {container.name} are no list"
                work.refuse("claims-unreadable", (*container.steps, "resources", "claims"), message)
            else:
                resources["claims"] = [*resources.get("claims", ()), *container.uses]
    if made:
        spec["resourceClaims"] = [*entries, *made]


def _listed(spec: Object, name: str) -> list[Any]:
    found = spec.get(name)
    return found if isinstance(found, list) else []


def _init_claims(
    work: Work,
    place: PodPlace,
    container: _Container,
    offered: list[tuple[DeviceType, int, Object]],
    taken: set[str],
    conditions: list[str],
) -> list[Object]:
    """What an init container refers to: claims of the others, and one more for what they do not have."""
    extra: dict[DeviceType, int] = {}
    for kind, count in container.devices.items():
        fitting = [(size, use) for type_, size, use in offered if type_ == kind]
        exact = next(
            (
                [use for _, use in chosen]
                for length in range(1, min(len(fitting), 10) + 1)
                for chosen in combinations(fitting, length)
                if sum(size for size, _ in chosen) == count
            ),
            None,
        )
        total = sum(size for size, _ in fitting)
        if exact is not None:
            container.uses += exact
        elif total <= count:
            container.uses += [use for _, use in fitting]
            extra[kind] = count - total
        else:
            smallest = min((entry for entry in fitting if entry[0] > count), default=None, key=lambda entry: entry[0])
            container.uses += [smallest[1]] if smallest else [use for _, use in fitting]
            message = (
                f"init container {container.name} asked for {count} of {total} devices and sees more with the claims"
                " of the others"
            )
            work.lose("init-sees-more", container.steps, message)
    if not extra:
        return []
    name = _unused(f"gpu-{container.name}"[:63].rstrip("-"), taken)
    container.uses.append({"name": name})
    offered += [
        (kind, count, {"name": name, "request": kind.name} if len(extra) > 1 else {"name": name})
        for kind, count in extra.items()
    ]
    return [_entry(work, place, name, container, extra, conditions)]


def _unused(name: str, taken: set[str]) -> str:
    number, found = 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    taken.add(found)
    return found


def _entry(
    work: Work, place: PodPlace, name: str, container: _Container, devices: dict[DeviceType, int], conditions: list[str]
) -> Object:
    """The pod's entry for a claim, with the template behind it; equal templates of one object are one."""
    requests = []
    for kind, count in devices.items():
        class_name, selectors = class_for(work, kind)
        requests.append(request_for(kind.name, class_name, count, [*selectors, *conditions]))
    spec = {"devices": {"requests": requests}}
    known = next((each for each in work.generated if value_at(each, ("spec", "spec")) == spec), None)
    template = known["metadata"]["name"] if known else _template(work, place, name, spec)
    shown = ", ".join(f"{count} × {kind.resource}" for kind, count in devices.items())
    message = f"{shown} of container {container.name} becomes a claim from template {template}"
    work.note("changed", "limits-to-claim", (*container.steps, "resources"), message)
    return {"name": name, "resourceClaimTemplateName": template}


def _template(work: Work, place: PodPlace, name: str, spec: Object) -> str:
    owner = re.sub(
        r"[^a-z0-9.-]+", "-", (work.document.name or str(work.document.metadata.get("generateName") or "pod")).lower()
    )
    parts = [owner.strip("-."), re.sub(r"[^a-z0-9-]+", "-", place.role).strip("-"), name]
    whole = "-".join(part for part in parts if part)[:230].strip("-.")
    taken = {each["metadata"]["name"] for each in work.generated}
    whole = _unused(whole, taken)
    metadata: Object = {"name": whole}
    if work.document.namespace:
        metadata["namespace"] = work.document.namespace
    version = "resource.k8s.io/v1"
    work.generated.append(
        {"apiVersion": version, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}
    )
    return whole


def _strip(work: Work, container: _Container) -> None:
    """Take the device plugin's resources out of a container."""
    resources = container.value.get("resources")
    if isinstance(resources, dict):
        for part in ("limits", "requests"):
            listed = resources.get(part)
            if isinstance(listed, dict):
                for key in [key for key in listed if str(key).startswith(PREFIX)]:
                    if str(listed[key]) == "0":
                        work.note(
                            "changed", "zero-devices", (*container.steps, "resources", part, key), f"{key}: 0 goes"
                        )
                    del listed[key]
                drop_empty(resources, part)
        if not container.uses:
            drop_empty(container.value, "resources")


# -- what stood beside ---------------------------------------------------------------------------------------


def _drop_runtime(work: Work, place: PodPlace, spec: Object) -> None:
    name = spec.get("runtimeClassName")
    if _is_nvidia(name):
        del spec["runtimeClassName"]
        message = (
            f"runtimeClassName {name} goes: the driver's CDI devices need no runtime of their own, and the old one"
            " shows more"
        )
        work.note("changed", "runtime-class", (*place.spec_steps, "runtimeClassName"), message)
    for _, steps, container in place.containers(work.value):
        variables = container.get("env")
        if not isinstance(variables, list):
            continue
        for number, entry in reversed(list(enumerate(variables))):
            if isinstance(entry, dict) and entry.get("name") == _VISIBLE and str(entry.get("value")) == "all":
                del variables[number]
                message = f"{_VISIBLE}=all goes: the container sees the devices of its claim"
                work.note("changed", "visible-devices-env", (*steps, "env", number), message)
        drop_empty(container, "env")


def _toleration(work: Work, place: PodPlace, spec: Object, containers: list[_Container]) -> None:
    """What admission added for extended resources and does not add for claims (ExtendedResourceToleration)."""
    entries = _listed(spec, "tolerations")
    for resource in dict.fromkeys(kind.resource for container in containers for kind in container.devices):
        if work.recorded.known and resource not in work.recorded.taints:
            continue
        if any(_tolerates(entry, resource) for entry in entries):
            work.note("kept", "toleration", (*place.spec_steps, "tolerations"), f"the toleration of {resource} stays")
            continue
        entries = [*entries, {"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
        spec["tolerations"] = entries
        message = f"tolerates {resource} now by itself: admission adds that for extended resources only"
        work.note("changed", "toleration-added", place.spec_steps, message)


def _tolerates(entry: Any, key: str) -> bool:
    if not isinstance(entry, dict) or entry.get("effect") not in (None, "", "NoSchedule"):
        return False
    exists = entry.get("operator") == "Exists"
    return (not entry.get("key") and exists) or (entry.get("key") == key and exists)


# -- the other way: classes behind the old names -------------------------------------------------------------


def _behind_old_names(work: Work, place: PodPlace, spec: Object, containers: list[_Container]) -> int:
    for kind in dict.fromkeys(kind for container in containers for kind in container.devices):
        steps = containers[0].steps
        known = work.recorded.extended_class(kind.resource)
        if known or (not kind.profile and not work.recorded.known):
            name = known or "gpu.nvidia.com"
            work.note(
                "kept", "class-stands-behind", steps, f"{kind.resource} stays; DeviceClass {name} stands behind it"
            )
            continue
        name = kind.name if kind.profile else "nvidia-gpu"
        work.classes.setdefault(name, device_class(name, kind.profile, kind.resource))
        work.note(
            "kept", "class-stands-behind", steps, f"{kind.resource} stays; the new DeviceClass {name} stands behind it"
        )
    if any(container.init and container.devices for container in containers):
        first = next(container for container in containers if container.init and container.devices)
        message = (
            f"init container {first.name} gets devices of its own; the device plugin let the others have them"
            " afterwards"
        )
        work.lose("extended-init-devices", first.steps, message)
    _drop_runtime(work, place, spec)
    return sum(containers[0].devices.values())
