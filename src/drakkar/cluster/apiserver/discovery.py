"""What is served, for clients: the old documents per group and version, and the aggregated one (KEP-3352)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.resources import ApiResource, Registry, Subresource

Value = dict[str, Any]


class Discovery:
    """Documents made when first asked for and kept until the registry changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._made: dict[str, tuple[Value, bytes]] = {}

    def document(self, path: str, *, aggregated: bool, address: str) -> tuple[Value, bytes]:
        """The document of ``/api``, ``/apis``, ``/apis/GROUP`` or ``/apis/GROUP/VERSION``; raises `StatusError` 404."""
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._made.clear()
        key = f"{path} {aggregated} {address if path == '/api' else ''}"
        found = self._made.get(key)
        if found is None:
            value = self._aggregated(path == "/api") if aggregated else self._legacy(path, address)
            found = self._made[key] = (value, msgspec.json.encode(value))
        return found

    def _legacy(self, path: str, address: str) -> Value:
        parts = path.strip("/").split("/")
        if parts == ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        groups = self._registry.groups()
        if parts == ["apis"]:
            listed = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        if parts[0] == "api" and parts[1:] == ["v1"]:
            return self._resources("", "v1")
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups and parts[1]:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
        if parts[0] == "apis" and len(parts) == 3 and self._registry.serves(parts[1], parts[2]):
            return self._resources(parts[1], parts[2])
        raise statuses.unknown_path()

    def _resources(self, group: str, version: str) -> Value:
        listed: list[Value] = []
        for row in self._rows(group, version):
            listed.append(_resource(row))
            listed += [_subresource(row, one) for one in sorted(row.subresources, key=lambda one: one.name)]
        group_version = f"{group}/{version}" if group else version
        head: Value = {"kind": "APIResourceList"}
        if group:
            head["apiVersion"] = "v1"
        return {**head, "groupVersion": group_version, "resources": listed}

    def _rows(self, group: str, version: str) -> list[ApiResource]:
        rows = [row for row in self._registry.rows() if (row.group, row.version) == (group, version)]
        return sorted(rows, key=lambda row: row.plural)

    def _aggregated(self, core: bool) -> Value:
        items = []
        for group, versions in self._registry.groups().items():
            if (group == "") is not core:
                continue
            served = [
                {
                    "version": version,
                    "resources": [_aggregate(row) for row in self._rows(group, version)],
                    "freshness": "Current",
                }
                for version in versions
            ]
            metadata = {"name": group} if group else {}
            items.append(
                {"metadata": {**metadata, "creationTimestamp": None} if not group else metadata, "versions": served}
            )
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _group(name: str, versions: list[str]) -> Value:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource(row: ApiResource) -> Value:
    shown: Value = {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": sorted(row.verbs),
    }
    if row.short_names:
        shown["shortNames"] = list(row.short_names)
    if row.categories:
        shown["categories"] = list(row.categories)
    if not row.ephemeral:
        shown["storageVersionHash"] = _storage_hash(row)
    return shown


def _storage_hash(row: ApiResource) -> str:
    import base64

    group, version = row.stored_as or (row.group, row.version)
    digest = hashlib.sha256(f"{group}/{version}/{row.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _subresource(row: ApiResource, one: Subresource) -> Value:
    shown: Value = {"name": f"{row.plural}/{one.name}", "singularName": "", "namespaced": row.namespaced}
    if one.version:
        shown |= {"group": one.group, "version": one.version}
    return {**shown, "kind": one.kind or row.kind, "verbs": sorted(one.verbs)}


def _aggregate(row: ApiResource) -> Value:
    shown: Value = {
        "resource": row.plural,
        "responseKind": {
            "group": row.group if row.custom else "",
            "version": row.version if row.custom else "",
            "kind": row.kind,
        },
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": sorted(row.verbs),
    }
    if row.short_names:
        shown["shortNames"] = list(row.short_names)
    if row.categories:
        shown["categories"] = list(row.categories)
    if row.subresources:
        shown["subresources"] = [
            {
                "subresource": one.name,
                "responseKind": {"group": one.group, "version": one.version, "kind": one.kind or row.kind},
                "verbs": sorted(one.verbs),
            }
            for one in sorted(row.subresources, key=lambda one: one.name)
        ]
    return shown
