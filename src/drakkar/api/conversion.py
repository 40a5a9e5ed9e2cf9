"""resource.k8s.io objects from one served version to another: v1, v1beta2 and v1beta1 hold the same information.

v1beta2 has the very fields of v1. v1beta1 keeps what a device has under `basic` and the fields of an exact request
beside its name (KEP-4381 and the prioritized list of KEP-4816 moved them). Other objects only change their
apiVersion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.errors import DrakkarError

__all__ = ["VERSIONS", "convert"]

Json = dict[str, Any]
GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_EXACT: Final = (
    "deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity",
    "derivedAttributes",
)  # fmt: skip


def convert(obj: Mapping[str, Any], version: str) -> Json:
    """The object in another version, sharing what did not change. Raises `DrakkarError` for unknown versions."""
    group, _, current = (obj.get("apiVersion") or "").partition("/")
    if group != GROUP or current not in VERSIONS or version not in VERSIONS:
        raise DrakkarError(
            f"resource.k8s.io objects cannot be converted from {obj.get('apiVersion') or 'no version'} to {version}",
            reason="UnknownVersion",
            subject=f"{obj.get('kind') or 'object'} {(obj.get('metadata') or {}).get('name') or ''}".strip(),
            expected=f"one of {', '.join(VERSIONS)}",
        )
    result = {**obj, "apiVersion": f"{GROUP}/{version}"}
    flat, wants_flat = current == "v1beta1", version == "v1beta1"
    if flat == wants_flat:
        return result
    kind = obj.get("kind")
    if kind == "ResourceSlice":
        return _each(result, ("spec", "devices"), _nested_device if wants_flat else _plain_device)
    if kind == "ResourceClaim":
        return _each(result, ("spec", "devices", "requests"), _flat_request if wants_flat else _nested_request)
    if kind == "ResourceClaimTemplate":
        path = ("spec", "spec", "devices", "requests")
        return _each(result, path, _flat_request if wants_flat else _nested_request)
    return result


def _each(obj: Json, path: tuple[str, ...], change: Callable[[Json], Json]) -> Json:
    """The object with every item of the list at `path` changed."""
    name, rest = path[0], path[1:]
    value = obj.get(name)
    if not value:
        return obj
    return {**obj, name: _each(value, rest, change) if rest else [change(item) for item in value]}


def _nested_device(device: Json) -> Json:
    return {"name": device.get("name", ""), "basic": {key: value for key, value in device.items() if key != "name"}}


def _plain_device(device: Json) -> Json:
    return {"name": device.get("name", ""), **(device.get("basic") or {})}


def _flat_request(request: Json) -> Json:
    others = {key: value for key, value in request.items() if key != "exactly"}
    return {**others, **(request.get("exactly") or {})}


def _nested_request(request: Json) -> Json:
    exact = {key: request[key] for key in _EXACT if request.get(key) not in (None, "", [], 0)}
    others = {key: value for key, value in request.items() if key not in _EXACT}
    return {**others, "exactly": exact} if exact else others
