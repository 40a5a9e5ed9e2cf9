"""The published OpenAPI documents of the served groups, for `kubectl explain`, validation and client generators.

The v3 documents are kept as gzip files exactly as they are served to clients that accept that; version 2 is only an
outline since every kubectl from 1.34 on asks for v3 (KEP-2896).
"""

from __future__ import annotations

import gzip
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import msgspec

__all__ = ["document", "document_gzip", "index", "v2"]


@cache
def index() -> dict[str, Any]:
    """The answer of /openapi/v3: a URL with a hash for each group version."""
    hashes: dict[str, str] = msgspec.json.decode(_data("index.json"))
    urls = {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={value}"} for name, value in sorted(hashes.items())}
    return {"paths": urls}


def document_gzip(name: str) -> bytes:
    """A document as gzip, e.g. `apis/apps/v1` or `api/v1`. KeyError if it is not served."""
    if name not in index()["paths"]:
        raise KeyError(name)
    return _data(f"{name.replace('/', '__')}.json.gz")


@lru_cache(maxsize=4)
def document(name: str) -> bytes:
    """A document as JSON text. KeyError if it is not served."""
    return gzip.decompress(document_gzip(name))


@cache
def v2() -> bytes:
    """The answer of /openapi/v2: version and title, without definitions."""
    return msgspec.json.encode(
        {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": f"v{_version()}"},
            "paths": {},
            "definitions": {},
        }
    )


def _version() -> str:
    path = resources.files("drakkar.cluster.machinery") / "data" / "VERSION"
    return path.read_text().strip().removeprefix("v")


def _data(name: str) -> bytes:
    return (resources.files("drakkar.cluster.machinery") / "data" / "openapi" / name).read_bytes()
