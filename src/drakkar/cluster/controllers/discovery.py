"""What kinds the server has, custom resources included: asked of the server, since nobody else knows."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from drakkar.kube.client import Client
from drakkar.kube.resources import Resource


async def discover(client: Client, verbs: Collection[str]) -> list[Resource]:
    """Every resource that can do all of `verbs`, each in its group's preferred version. Raises `ApiError`."""
    groups = (await client.raw("GET", "/apis")).body.get("groups") or []
    paths = ["/api/v1", *("/apis/" + one["preferredVersion"]["groupVersion"] for one in groups)]
    documents = await asyncio.gather(*(client.raw("GET", path) for path in paths))
    found = []
    for document in documents:
        group, _, version = document.body["groupVersion"].rpartition("/")
        for one in document.body.get("resources") or ():
            if "/" not in one["name"] and set(verbs) <= set(one.get("verbs") or ()):
                found.append(Resource(group, version, one["name"], one["kind"], bool(one.get("namespaced"))))
    return found
