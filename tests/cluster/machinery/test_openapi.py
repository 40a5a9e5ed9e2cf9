"""The published OpenAPI documents: an index of versions, documents by version, references that resolve."""

import gzip
import json
from typing import Any

import pytest

from drakkar.cluster.machinery import openapi


def names() -> list[str]:
    return sorted(openapi.index()["paths"])


def test_the_index_names_every_version_with_a_hash() -> None:
    paths = openapi.index()["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/resource.k8s.io/v1"} <= set(paths)
    assert all("?hash=" in entry["serverRelativeURL"] for entry in paths.values())


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {each for item in value for each in references(item)}
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own | {each for item in value.values() for each in references(item)}
    return set()


@pytest.mark.parametrize("name", ["api/v1", "apis/apps/v1", "apis/batch/v1", "apis/resource.k8s.io/v1"])
def test_references_resolve(name: str) -> None:
    document = json.loads(openapi.document(name))
    schemas = document["components"]["schemas"]
    assert {reference.rpartition("/")[2] for reference in references(document)} <= set(schemas)
    assert json.loads(gzip.decompress(openapi.document_gzip(name))) == document


def test_kinds_say_what_they_are_and_what_their_fields_mean() -> None:
    schemas = json.loads(openapi.document("apis/resource.k8s.io/v1"))["components"]["schemas"]
    claims = [
        schema
        for schema in schemas.values()
        if {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
        in schema.get("x-kubernetes-group-version-kind", [])
    ]
    assert len(claims) == 1
    assert "spec" in claims[0]["properties"]
    assert claims[0]["properties"]["spec"]["description"]


def test_paths_say_that_dry_run_and_field_validation_are_known() -> None:
    paths = json.loads(openapi.document("api/v1"))["paths"]
    text = json.dumps(paths["/api/v1/namespaces/{namespace}/pods/{name}"])
    assert "dryRun" in text
    assert "fieldValidation" in text


def test_unknown_documents_are_not_found() -> None:
    with pytest.raises(KeyError):
        openapi.document("apis/example.com/v1")
