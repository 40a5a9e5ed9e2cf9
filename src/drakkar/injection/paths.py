"""Lexical paths as OCI runtimes and the reference library read them; the file system is not asked."""

from __future__ import annotations

import posixpath
from functools import lru_cache

__all__ = ["clean", "depth"]


@lru_cache(maxsize=4096)  # the same mounts are made for one container after the other
def clean(path: str) -> str:
    """The shortest equivalent path; unlike POSIX, two leading slashes are one, and "" is "."."""
    if path.startswith("/") and not path.endswith("/") and "//" not in path and "/." not in path:
        return path  # the usual case, without taking the path apart
    cleaned = posixpath.normpath(path)
    return cleaned[1:] if cleaned.startswith("//") else cleaned


@lru_cache(maxsize=4096)
def depth(path: str) -> int:
    """How many slashes the cleaned path has; the order in which mounts are made."""
    return clean(path).count("/")
