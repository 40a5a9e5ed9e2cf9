"""OpenAPI version 3 documents of custom resources, for `kubectl explain` and the validation of clients.

One document per group and version. It has what clients look for: the schema of each kind under its name, and for each
path the parameters that say that field validation and dry run are understood.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from drakkar.cluster.apiserver.custom.kind import CustomKind
from drakkar.cluster.apiserver.resources import ApiResource

Json = dict[str, Any]

_PARAMETERS = ("pretty", "dryRun", "fieldManager", "fieldValidation", "force")
_TYPE_META = {
    "apiVersion": {"type": "string", "description": "APIVersion defines the versioned schema of this representation."},
    "kind": {"type": "string", "description": "Kind is a string value representing the REST resource."},
    "metadata": {"type": "object", "description": "Standard object's metadata."},
}


def index(rows: Iterable[ApiResource]) -> Json:
    """The entries of /openapi/v3 for the group versions of custom rows."""
    found: Json = {}
    custom = [row for row in rows if row.custom]
    for name in sorted({f"apis/{row.group}/{row.version}" for row in custom}):
        text = document(custom, name)
        digest = hashlib.sha256(text or b"").hexdigest().upper()
        found[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
    return found


def document(rows: Iterable[ApiResource], name: str) -> bytes | None:
    """The document of one group version; None if no custom resource is served there."""
    served = [row for row in rows if row.custom and f"apis/{row.group}/{row.version}" == name]
    if not served:
        return None
    paths: Json = {}
    schemas: Json = {}
    for row in served:
        schemas[_schema_name(row)] = _schema(row)
        scope = "namespaces/{namespace}/" if row.namespaced else ""
        paths[f"/{name}/{scope}{row.plural}/{{name}}"] = _operations(row)
    made = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.2"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return msgspec.json.encode(made)


def _gvk(row: ApiResource) -> Json:
    return {"group": row.group, "kind": row.kind, "version": row.version}


def _schema_name(row: ApiResource) -> str:
    return f"{'.'.join(reversed(row.group.split('.')))}.{row.version}.{row.kind}"


def _schema(row: ApiResource) -> Json:
    kind = row.extra.get("behaviour")
    schema = kind.openapi if isinstance(kind, CustomKind) else {}
    properties = {**(schema.get("properties") or {}), **_TYPE_META}
    return {**schema, "type": "object", "properties": properties, "x-kubernetes-group-version-kind": [_gvk(row)]}


def _operations(row: ApiResource) -> Json:
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_schema_name(row)}"}}}
    operation = {
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-group-version-kind": _gvk(row),
    }
    actions = {"get": "get", "put": "put", "patch": "patch", "delete": "delete"}
    return {method: {**operation, "x-kubernetes-action": action} for method, action in actions.items()}
