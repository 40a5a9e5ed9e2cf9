"""Tables: the columns and cells that `kubectl get` shows, made by the server (meta.k8s.io Table).

Column definitions are data (`data/columns.json`, from Kubernetes' printers), cells one function per kind in a module
per family. Wide columns are always sent; kubectl hides those whose priority is not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import import_module, resources
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from drakkar.cluster.machinery.schemas import struct_of

__all__ = ["Cells", "Row", "cells", "columns", "metadata_of", "table"]

Json = Mapping[str, Any]


class Row(NamedTuple):
    """Cells of one object, and what the row itself says about it (a finished pod)."""

    cells: list[Any]
    conditions: list[dict[str, str]]


Cells = Callable[[Json, datetime], list[Any]]


class Kinded(Protocol):
    """The part of a served resource that tables need."""

    @property
    def group(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def kind(self) -> str: ...


_FAMILIES: Final = ("pods", "workloads", "core", "policies", "devices")
_AGE: Final = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


def table(
    resource: Kinded,
    objects: Sequence[Json],
    *,
    now: datetime,
    include: str = "Metadata",
    list_metadata: Json | None = None,
    watch_rows_only: bool = False,
    own_columns: Sequence[Json] = (),
) -> dict[str, Any]:
    """The Table of some objects of one kind (with kind and apiVersion).

    `include` says what each row carries: Metadata, Object or None. `own_columns` are the additionalPrinterColumns of a
    custom resource (age if there are none). `watch_rows_only` leaves the column definitions out, as after the first
    event of a watch.
    """
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    own = None if struct_of(version, resource.kind) else own_columns or _AGE
    rows = []
    for obj in objects:
        made = cells(resource.kind, obj, now, own)
        row: dict[str, Any] = {"cells": made.cells}
        if made.conditions:
            row["conditions"] = made.conditions
        row["object"] = _shown(obj, include)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_metadata or {}),
        "columnDefinitions": None if watch_rows_only else columns(resource.kind, own),
        "rows": rows,
    }


def columns(kind: str, own_columns: Sequence[Json] | None = None) -> list[dict[str, Any]]:
    """The column definitions of a built-in kind, or of a custom one with these columns."""
    name_column, *_, age_column = _definitions()["ConfigMap"]  # the texts are the same for all kinds
    known: Sequence[Sequence[Any]]
    if own_columns is None:
        known = _definitions().get(kind) or (name_column, ("Created At", "date", "", age_column[3], 0))
    else:
        known = (
            name_column,
            *(
                (c["name"], c["type"], c.get("format", ""), c.get("description") or "", c.get("priority", 0))
                for c in own_columns
            ),
        )
    return [
        {"name": name, "type": form, "format": style, "description": text, "priority": priority}
        for name, form, style, text, priority in known
    ]


def cells(kind: str, obj: Json, now: datetime, own_columns: Sequence[Json] | None = None) -> Row:
    """The cells of one object of a built-in kind, or of a custom one with these columns."""
    meta = obj.get("metadata") or {}
    if own_columns is not None:
        from drakkar.cluster.machinery.tables.custom import custom_cells

        return Row([meta.get("name", ""), *custom_cells(obj, own_columns, now)], [])
    make = _printers().get(kind) if kind in _definitions() else None
    if make is None:
        return Row([meta.get("name", ""), meta.get("creationTimestamp") or "0001-01-01T00:00:00Z"], [])
    return Row(make(obj, now), _finished(obj) if kind == "Pod" else [])


_FINISHED: Final = {
    "Succeeded": ("Succeeded", "The pod has completed successfully."),
    "Failed": ("Failed", "The pod failed."),
}


def _finished(pod: Json) -> list[dict[str, str]]:
    """Rows of finished pods say so; kubectl leaves them out of some views."""
    found = _FINISHED.get((pod.get("status") or {}).get("phase") or "")
    if found is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": found[0], "message": found[1]}]


def _shown(obj: Json, include: str) -> Any:
    if include == "Object":
        return obj
    if include == "None":
        return None
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata_of(obj)}


_FORMER_FIELD: Final = "deprecated.daemonset.template.generation"


def metadata_of(obj: Json) -> Json:
    """An object's metadata where nothing else of it is shown: without the annotation that stands for a former field of
    DaemonSets, which is made only with the whole object."""
    metadata: Json = obj.get("metadata") or {}
    annotations = metadata.get("annotations")
    if not annotations or _FORMER_FIELD not in annotations or obj.get("kind") != "DaemonSet":
        return metadata
    kept = {name: value for name, value in annotations.items() if name != _FORMER_FIELD}
    rest = {name: value for name, value in metadata.items() if name != "annotations"}
    return {**rest, "annotations": kept} if kept else rest


@cache
def _definitions() -> dict[str, list[list[Any]]]:
    path = resources.files("drakkar.cluster.machinery") / "data" / "columns.json"
    content: dict[str, list[list[Any]]] = msgspec.json.decode(path.read_bytes())
    return content


@cache
def _printers() -> dict[str, Cells]:
    found: dict[str, Cells] = {}
    for family in _FAMILIES:
        found.update(import_module(f"{__name__}.{family}").CELLS)
    return found
