"""Pieces that cells of many kinds are made of: ages, names and images of containers, labels and selectors as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from drakkar.cluster.machinery.tables.ages import since

__all__ = ["NONE", "age", "images", "label_text", "name", "selector_text", "spec", "status"]

Json = Mapping[str, Any]
NONE: Final = "<none>"


def name(obj: Json) -> str:
    """The object's name."""
    found: str = (obj.get("metadata") or {}).get("name") or ""
    return found


def age(obj: Json, now: datetime) -> str:
    """The object's age."""
    return since((obj.get("metadata") or {}).get("creationTimestamp"), now)


def spec(obj: Json) -> Json:
    """The object's spec, empty if there is none."""
    return obj.get("spec") or {}


def status(obj: Json) -> Json:
    """The object's status, empty if there is none."""
    return obj.get("status") or {}


def images(template: Json) -> list[str]:
    """Names and images of a pod template's containers, each as one cell."""
    containers = (template.get("spec") or {}).get("containers") or []
    return [",".join(str(container.get(part) or "") for container in containers) for part in ("name", "image")]


def label_text(labels: Json | None) -> str:
    """Labels as `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


_OPERATORS: Final = {"In": "in", "NotIn": "notin"}


def selector_text(selector: Json | None) -> str:
    """A label selector as `a=b,c in (d,e),!f`."""
    if selector is None:
        return "<error>"
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for requirement in selector.get("matchExpressions") or ():
        key, operator = requirement.get("key") or "", requirement.get("operator") or ""
        if operator in _OPERATORS:
            listed = ",".join(sorted(requirement.get("values") or ()))
            parts.append((key, f"{key} {_OPERATORS[operator]} ({listed})"))
        else:
            parts.append((key, key if operator == "Exists" else f"!{key}"))
    return joined(text for _, text in sorted(parts, key=lambda part: part[0]))


def joined(parts: Iterable[str]) -> str:
    """The parts with commas between them, or `<none>`."""
    return ",".join(parts) or NONE
