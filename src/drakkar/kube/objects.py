"""What every Kubernetes object has: a name, mostly a namespace, an identity. Objects are plain parsed JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["name_of", "namespace_of", "reference", "uid_of"]


def name_of(obj: Mapping[str, Any]) -> str:
    """``metadata.name``."""
    return (obj.get("metadata") or {}).get("name") or ""


def namespace_of(obj: Mapping[str, Any]) -> str:
    """``metadata.namespace``, "" for cluster-wide objects."""
    return (obj.get("metadata") or {}).get("namespace") or ""


def uid_of(obj: Mapping[str, Any]) -> str:
    """``metadata.uid``."""
    return (obj.get("metadata") or {}).get("uid") or ""


def reference(obj: Mapping[str, Any]) -> str:
    """``Kind/namespace/name``, or ``Kind/name`` for cluster-wide objects."""
    parts = (obj.get("kind", ""), namespace_of(obj), name_of(obj))
    return "/".join(part for part in parts if part)
