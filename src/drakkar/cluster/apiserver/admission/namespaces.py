"""NamespaceLifecycle: objects are made only in namespaces that exist and are not going away."""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Call


def lifecycle(call: Call, operation: str, obj: dict[str, Any] | None) -> None:
    """Raises `StatusError` 404 or 403 for a create in a namespace that is missing or terminating."""
    if operation != "CREATE" or not call.row.namespaced or call.row.plural == "localsubjectaccessreviews":
        return
    name = call.info.namespace
    stored = call.server.store.collection("namespaces").get(name)
    if stored is None:
        raise statuses.not_found("", "namespaces", name)
    if stored.value["metadata"].get("deletionTimestamp") and call.subresource is None:
        raise terminating(call, name, call.name or ((obj or {}).get("metadata") or {}).get("name") or "")


def terminating(call: Call, name: str, object_name: str) -> statuses.StatusError:
    """The 403 that tells controllers to stop trying: its cause says NamespaceTerminating."""
    row = call.row
    refusal = statuses.forbidden(
        row.group,
        row.plural,
        object_name,
        f"unable to create new content in namespace {name} because it is being terminated",
    )
    refusal.status["details"]["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    return refusal
