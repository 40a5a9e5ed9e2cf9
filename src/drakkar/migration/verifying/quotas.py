"""What quotas admit: devices are asked for until one is refused, in both forms, in the same portions.

Nothing is scheduled for that: the old form asks with pods behind a gate, the new one with claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.kube.paths import value_at
from drakkar.kube.resources import NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, SERVICE_ACCOUNTS
from drakkar.migration.converting.devices import DOMAIN, device_type, profile_class
from drakkar.migration.verifying.expansion import Form

__all__ = ["quota_checks"]

_SUFFIX: Final = ".deviceclass.resource.k8s.io/devices"
_PORTION: Final = 32
_MOST: Final = 4096
_LIMIT: Final = 20.0


async def quota_checks(client: Client, clock: Clock, form: Form, *, old: bool) -> dict[tuple[str, str], int]:
    """By namespace and device (as the device plugin calls it): how many devices are admitted before one is refused."""
    found: dict[tuple[str, str], int] = {}
    limited: dict[tuple[str, str], int] = {}
    for quota in form.quotas:
        for name, amount in (value_at(quota, ("spec", "hard")) or {}).items():
            resource = _resource(str(name))
            key = (quota["metadata"]["namespace"], resource)
            if resource and str(amount).isdigit():
                limited[key] = min(limited.get(key, _MOST), int(amount))
    for number, ((namespace, resource), amount) in enumerate(sorted(limited.items())):
        own = f"quota-{number}"
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}})
        for quota in form.quotas:
            if quota["metadata"]["namespace"] == namespace:
                hard = {key: value for key, value in quota["spec"]["hard"].items() if _resource(str(key))}
                metadata = {"name": quota["metadata"]["name"], "namespace": own}
                if hard:
                    await client.create(RESOURCE_QUOTAS, {**quota, "metadata": metadata, "spec": {"hard": hard}})
        await _known(client, clock, own)
        names = [
            key for quota in form.quotas if quota["metadata"]["namespace"] == namespace for key in quota["spec"]["hard"]
        ]
        by_class = any(name.endswith(_SUFFIX) and _resource(name) == resource for name in map(str, names))
        found[namespace, resource] = await _fill(client, own, resource, amount, pods=old or not by_class)
    return found


def _resource(name: str) -> str:
    """The device plugin's resource that a quota's name is about, "" for others."""
    if name.startswith("requests.") and device_type(name.removeprefix("requests.")):
        return name.removeprefix("requests.")
    class_name = name.removesuffix(_SUFFIX)
    if not name.endswith(_SUFFIX):
        return ""
    if class_name == DOMAIN:
        return "nvidia.com/gpu"
    if class_name.startswith("mig-") and class_name != "mig.nvidia.com":
        head, _, rest = class_name.removeprefix("mig-").partition("-")
        return f"nvidia.com/mig-{head}.{rest.replace('-', '.')}"
    return ""


async def _known(client: Client, clock: Clock, namespace: str) -> None:
    """Return when the quota controller has counted, and pods have their service account."""
    deadline = clock.monotonic() + _LIMIT
    while clock.monotonic() < deadline:
        quotas = (await client.list(RESOURCE_QUOTAS, namespace)).items
        accounts = (await client.list(SERVICE_ACCOUNTS, namespace)).items
        if accounts and all(
            set(value_at(quota, ("status", "hard")) or {}) >= set(quota["spec"]["hard"]) for quota in quotas
        ):
            return
        await clock.sleep(0.02)


async def _fill(client: Client, namespace: str, resource: str, amount: int, *, pods: bool) -> int:
    admitted = 0
    for number, size in enumerate(_portions(amount)):
        obj = _pod(namespace, number, resource, size) if pods else _claim(namespace, number, resource, size)
        try:
            await client.create(PODS if pods else RESOURCE_CLAIMS, obj)
        except ApiError as error:
            if error.status == 403:
                break
            raise
        admitted += size
    return admitted


def _portions(amount: int) -> Iterator[int]:
    """The whole amount in portions that a claim can hold, and three more."""
    yield from [_PORTION] * (amount // _PORTION)
    if amount % _PORTION:
        yield amount % _PORTION
    yield from (1, 1, 1)


def _pod(namespace: str, number: int, resource: str, size: int) -> Mapping[str, Any]:
    container = {"name": "c", "image": "pause", "resources": {"limits": {resource: str(size)}}}
    spec = {"containers": [container], "schedulingGates": [{"name": "drakkar.dev/verify"}]}
    metadata = {"name": f"ask-{number}", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _claim(namespace: str, number: int, resource: str, size: int) -> Mapping[str, Any]:
    kind = device_type(resource)
    class_name = profile_class(kind.profile) if kind is not None and kind.profile else DOMAIN
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": size}
    spec = {"devices": {"requests": [{"name": "ask", "exactly": exactly}]}}
    metadata = {"name": f"ask-{number}", "namespace": namespace}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
