"""Namespace deletion: everything inside goes first, then the namespace itself.

What kinds exist is asked of the server, so that custom resources are found, too
(`pkg/controller/namespace/deletion`).
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.controllers import conditions
from drakkar.cluster.controllers.controller import Context, Controller, Key, Object
from drakkar.cluster.controllers.discovery import discover
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import NAMESPACES, PODS, Resource

FINALIZER = "kubernetes"
_RECHECK = 1.0
_EVENTS_LAST = "events"


class Namespaces(Controller):
    """Empties terminating namespaces."""

    name = "namespace-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespaces = self.watch(NAMESPACES, self.enqueue)
        self._pods = self.watch(PODS, self._on_pod)

    def _on_pod(self, kind: str, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            namespace = self._namespaces.get(None, old["metadata"]["namespace"])
            if namespace is not None and namespace["metadata"].get("deletionTimestamp"):
                self.queue.add(("", namespace["metadata"]["name"]))

    async def reconcile(self, key: Key) -> float | None:
        namespace = self._namespaces.get(None, key[1])
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return None
        if FINALIZER not in ((namespace.get("spec") or {}).get("finalizers") or ()):
            return None
        left, failures = await self._empty(key[1])
        if left or failures:
            await self._report(namespace, left, failures)
            return _RECHECK
        spec = namespace["spec"]
        finalizers = [one for one in spec["finalizers"] if one != FINALIZER]
        try:
            await self.client.update(
                NAMESPACES, {**namespace, "spec": {**spec, "finalizers": finalizers}}, subresource="finalize"
            )
        except ApiError as error:
            if not error.not_found:
                raise
        return None

    async def _empty(self, namespace: str) -> tuple[dict[str, list[Object]], list[str]]:
        """Delete everything; what is still there by resource name, and what could not be deleted."""
        left: dict[str, list[Object]] = {}
        failures: list[str] = []
        resources = [one for one in await discover(self.client, ("list", "delete")) if one.namespaced]
        # Events last: deleting the rest makes new ones.
        for resource in sorted(resources, key=lambda one: one.plural == _EVENTS_LAST):
            try:
                remaining = await self._delete_all(resource, namespace)
            except ApiError as error:
                if not error.not_found:
                    failures.append(error.message)
                continue
            if remaining:
                left[resource.group_resource] = remaining
        return left, failures

    async def _delete_all(self, resource: Resource, namespace: str) -> list[Object]:
        found = (await self.client.list(resource, namespace)).items
        if not found:
            return []
        for obj in found:
            if obj["metadata"].get("deletionTimestamp"):
                continue
            try:
                await self.client.delete(resource, obj["metadata"]["name"], namespace, propagation_policy="Background")
            except ApiError as error:
                if not error.not_found:
                    raise
        return (await self.client.list(resource, namespace)).items

    async def _report(self, namespace: Object, left: dict[str, list[Object]], failures: list[str]) -> None:
        """The conditions that say why a namespace is still there."""
        listed = (namespace.get("status") or {}).get("conditions") or []
        for type, holds, reason, message in _findings(left, failures):
            listed = conditions.put(listed, type, holds, reason=reason, message=message, now=self.clock.now())
        status = {**(namespace.get("status") or {}), "conditions": listed}
        if status != namespace.get("status"):
            try:
                await self.client.update(NAMESPACES, {**namespace, "status": status}, subresource="status")
            except ApiError as error:
                if not (error.not_found or error.conflict):
                    raise


def _findings(left: dict[str, list[Object]], failures: list[str]) -> list[tuple[str, bool, str, str]]:
    finalizers: dict[str, int] = {}
    for objects in left.values():
        for obj in objects:
            for name in obj["metadata"].get("finalizers") or ():
                finalizers[name] = finalizers.get(name, 0) + 1
    # Kubernetes joins resource and group by a dot, of the core group as well.
    content = ", ".join(
        f"{name if '.' in name else name + '.'} has {len(objects)} resource instances"
        for name, objects in sorted(left.items())
    )
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    found: list[tuple[str, bool, Any, str]] = [
        ("NamespaceDeletionDiscoveryFailure", False, "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            False,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
    ]
    if failures:
        text = f"Failed to delete all resource types, {len(failures)} remaining: {'; '.join(failures)}"
        found.append(("NamespaceDeletionContentFailure", True, "ContentDeletionFailed", text))
    else:
        text = "All content successfully deleted, may be waiting on finalization"
        found.append(("NamespaceDeletionContentFailure", False, "ContentDeleted", text))
    if content:
        text = f"Some resources are remaining: {content}"
        found.append(("NamespaceContentRemaining", True, "SomeResourcesRemain", text))
    else:
        found.append(("NamespaceContentRemaining", False, "ContentRemoved", "All content successfully removed"))
    if held:
        text = f"Some content in the namespace has finalizers remaining: {held}"
        found.append(("NamespaceFinalizersRemaining", True, "SomeFinalizersRemain", text))
    else:
        text = "All content-preserving finalizers finished"
        found.append(("NamespaceFinalizersRemaining", False, "ContentHasNoFinalizers", text))
    return found
