"""ControllerRevisions: the history of StatefulSets and DaemonSets (`pkg/controller/history`).

A revision keeps the pod template as a patch. Equal templates share one revision, whatever happened in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drakkar.cluster.controllers.owners import owner_reference
from drakkar.cluster.controllers.rollouts import template_hash
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.resources import CONTROLLER_REVISIONS, Resource

Object = dict[str, Any]
HASH = "controller.kubernetes.io/hash"
"""The label of a StatefulSet's revisions; a DaemonSet's have the one that its pods have."""


def revision_data(owner: Object) -> Object:
    """The patch that a revision stores: the whole pod template."""
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def find_equal(revisions: Iterable[Object], data: Object) -> Object | None:
    """The newest revision with this data."""
    equal = [one for one in revisions if one.get("data") == data]
    return max(equal, key=lambda one: one.get("revision") or 0, default=None)


async def current_revision(
    client: Client, owner: Object, resource: Resource, revisions: list[Object], hash_label: str
) -> Object:
    """The revision of the owner's template, created or moved to the front of the history if need be.

    It has the labels of the template, and its hash as `hash_label`.
    """
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    data = revision_data(owner)
    newest = max((one.get("revision") or 0 for one in revisions), default=0)
    found = find_equal(revisions, data)
    if found is not None:
        if (found.get("revision") or 0) < newest:
            return await client.update(CONTROLLER_REVISIONS, {**found, "revision": newest + 1})
        return found
    collisions = int((owner.get("status") or {}).get("collisionCount") or 0)
    metadata = owner["metadata"]
    for attempt in range(collisions, collisions + 10):
        digest = template_hash(data, attempt)
        revision: Object = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": {**labels, hash_label: digest},
                "ownerReferences": [owner_reference(owner, resource)],
            },
            "data": data,
            "revision": newest + 1,
        }
        try:
            return await client.create(CONTROLLER_REVISIONS, revision)
        except ApiError as error:
            if not error.already_exists:
                raise
            name = revision["metadata"]["name"]
            taken = await client.get(CONTROLLER_REVISIONS, name, metadata["namespace"])
            if taken.get("data") == data:
                return taken
    raise ApiError(409, "AlreadyExists", f"no free name for a revision of {metadata['name']}")


async def trim(client: Client, revisions: list[Object], live: set[str], limit: int) -> None:
    """Delete the oldest revisions that no pod uses, keeping `limit` of them."""
    idle = [one for one in revisions if one["metadata"]["name"] not in live]
    idle.sort(key=lambda one: one.get("revision") or 0)
    for one in idle[: max(0, len(idle) - limit)]:
        try:
            await client.delete(CONTROLLER_REVISIONS, one["metadata"]["name"], one["metadata"]["namespace"])
        except ApiError as error:
            if not error.not_found:
                raise
