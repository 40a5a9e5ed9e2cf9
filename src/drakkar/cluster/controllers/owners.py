"""Owner references: who controls an object, and taking objects over or letting them go.

A controller owns what carries its controller reference. Objects that match its selector and have no controller are
adopted, owned ones that match no longer are released (`controller_ref_manager.go`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.resources import Resource
from drakkar.kube.selectors import LabelSelector

Object = dict[str, Any]


def controller_of(obj: Object) -> Object | None:
    """The owner reference marked as controller, or None."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Object = reference
            return found
    return None


def controller_uid(obj: Object) -> str:
    """The UID of the controlling owner, or an empty text."""
    reference = controller_of(obj)
    return reference["uid"] if reference else ""


def orphans_of(namespace: str) -> str:
    """The index value under which objects of a namespace without controller are found."""
    return f"orphans in {namespace}"


def controller_index(obj: Object) -> list[str]:
    """Index function: objects by the UID of their controller; those without one by `orphans_of` their namespace."""
    return [controller_uid(obj) or orphans_of(obj["metadata"].get("namespace") or "")]


def namespace_index(obj: Object) -> list[str]:
    """Index function: objects by namespace."""
    return [obj["metadata"].get("namespace") or ""]


def owner_reference(owner: Object, resource: Resource, *, blocking: bool = True) -> Object:
    """A controller reference to `owner`, `blocking` its foreground deletion or not."""
    reference = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {**reference, "blockOwnerDeletion": True} if blocking else reference


async def claim_dependents(
    client: Client,
    owner: Object,
    owner_resource: Resource,
    *,
    resource: Resource,
    owned: Iterable[Object],
    orphans: Iterable[Object],
) -> list[Object]:
    """The objects that `owner` controls after adopting and releasing; `owned` and `orphans` come from an index."""
    metadata = owner["metadata"]
    selector = LabelSelector.from_object((owner.get("spec") or {}).get("selector"))
    claimed = []
    for obj in owned:
        if selector.matches(obj["metadata"].get("labels") or {}):
            claimed.append(obj)
        elif not metadata.get("deletionTimestamp"):
            await _release(client, resource, obj, metadata["uid"])
    if metadata.get("deletionTimestamp"):
        return claimed
    for obj in orphans:
        if not obj["metadata"].get("deletionTimestamp") and selector.matches(obj["metadata"].get("labels") or {}):
            adopted = await _adopt(client, resource, obj, owner_reference(owner, owner_resource))
            if adopted is not None:
                claimed.append(adopted)
    return claimed


async def _adopt(client: Client, resource: Resource, obj: Object, reference: Object) -> Object | None:
    metadata = obj["metadata"]
    patch = {"metadata": {"uid": metadata["uid"], "ownerReferences": [reference]}}
    try:
        return await client.patch(
            resource, metadata["name"], patch, kind="strategic", namespace=metadata.get("namespace")
        )
    except ApiError as error:
        if error.not_found or error.invalid or error.conflict:
            return None
        raise


async def _release(client: Client, resource: Resource, obj: Object, owner_uid: str) -> None:
    metadata = obj["metadata"]
    patch = {"metadata": {"uid": metadata["uid"], "ownerReferences": [{"$patch": "delete", "uid": owner_uid}]}}
    try:
        await client.patch(resource, metadata["name"], patch, kind="strategic", namespace=metadata.get("namespace"))
    except ApiError as error:
        if not (error.not_found or error.invalid or error.conflict):
            raise
