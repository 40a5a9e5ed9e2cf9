"""Paths are a grammar: every row is a request and what it means."""

from __future__ import annotations

import pytest

from drakkar.cluster.apiserver.paths import request_info

A = "/apis/apps/v1/namespaces/a/deployments"
ROWS = [
    # method, path, query → verb, group, version, namespace, resource, name, subresource
    ("GET", "/api/v1/pods", {}, "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods", {"watch": "1"}, "watch", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/pods", {"watch": "false"}, "list", "", "v1", "", "pods", "", ""),
    ("GET", "/api/v1/namespaces/a/pods/p", {}, "get", "", "v1", "a", "pods", "p", ""),
    ("GET", "/api/v1/namespaces/a/pods/p", {"watch": "1"}, "get", "", "v1", "a", "pods", "p", ""),
    ("GET", "/api/v1/namespaces/a/pods/p/log", {}, "get", "", "v1", "a", "pods", "p", "log"),
    ("POST", "/api/v1/namespaces", {}, "create", "", "v1", "", "namespaces", "", ""),
    ("GET", "/api/v1/namespaces/a", {}, "get", "", "v1", "a", "namespaces", "a", ""),
    ("PUT", "/api/v1/namespaces/a/finalize", {}, "update", "", "v1", "a", "namespaces", "a", "finalize"),
    ("DELETE", A, {}, "deletecollection", "apps", "v1", "a", "deployments", "", ""),
    ("PATCH", f"{A}/d/scale", {}, "patch", "apps", "v1", "a", "deployments", "d", "scale"),
    ("GET", "/api/v1/watch/namespaces/a/pods", {}, "watch", "", "v1", "a", "pods", "", ""),
    ("GET", "/api/v1/namespaces/a/pods/p%2Fq", {}, "get", "", "v1", "a", "pods", "p/q", ""),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_resource_paths(row: tuple[str, ...]) -> None:
    method, path, query, *expected = row
    info = request_info(method, path, query)  # type: ignore[arg-type]
    found = [info.verb, info.group, info.version, info.namespace, info.resource, info.name, info.subresource]
    assert info.is_resource and found == expected


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "//", ""])
def test_other_paths_are_no_resources(path: str) -> None:
    info = request_info("GET", path, {})
    assert not info.is_resource and info.verb == "get"
