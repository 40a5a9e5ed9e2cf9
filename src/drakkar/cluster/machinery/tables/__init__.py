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

from drakkar.cluster.machinery.tables.ages import since

__all__ = ["Cells", "Row", "cells", "columns", "table"]

Json = Mapping[str, Any]


class Row(NamedTuple):
    """Cells of one object, and what the row itself says about it (a finished pod)."""

    cells: list[Any]
    conditions: list[dict[str, str]]


Cells = Callable[[Json, datetime], list[Any]]


class Kinded(Protocol):
    """The part of a served resource that tables need."""

    @property
    def kind(self) -> str: ...


_FAMILIES: Final = ("pods", "workloads", "core", "policies", "devices")
_OWN: Final = (
    ("Name", "string", "name", "Name must be unique within a namespace.", 0),
    (
        "Age",
        "date",
        "",
        "CreationTimestamp is a timestamp representing the server time when this object was created.",
        0,
    ),
)


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
    custom resource. `watch_rows_only` leaves the column definitions out, as after the first event of a watch.
    """
    rows = []
    for obj in objects:
        made = cells(resource.kind, obj, now, own_columns)
        row: dict[str, Any] = {"cells": made.cells}
        if made.conditions:
            row["conditions"] = made.conditions
        row["object"] = _shown(obj, include)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_metadata or {}),
        "columnDefinitions": None if watch_rows_only else columns(resource.kind, own_columns),
        "rows": rows,
    }


def columns(kind: str, own_columns: Sequence[Json] = ()) -> list[dict[str, Any]]:
    """The column definitions of a kind."""
    known = _definitions().get(kind)
    if known is None:
        if not own_columns:
            known = [list(column) for column in _OWN]
        else:
            known = [
                list(_OWN[0]),
                *(
                    [c["name"], c["type"], c.get("format", ""), c.get("description", ""), c.get("priority", 0)]
                    for c in own_columns
                ),
            ]
    return [
        {"name": name, "type": form, "format": style, "description": text, "priority": priority}
        for name, form, style, text, priority in known
    ]


def cells(kind: str, obj: Json, now: datetime, own_columns: Sequence[Json] = ()) -> Row:
    """The cells of one object."""
    make = _printers().get(kind) if kind in _definitions() else None
    if make is not None:
        return Row(make(obj, now), _finished(obj) if kind == "Pod" else [])
    meta = obj.get("metadata") or {}
    if own_columns:
        from drakkar.cluster.machinery.tables.custom import custom_cells

        return Row([meta.get("name", ""), *custom_cells(obj, own_columns, now)], [])
    return Row([meta.get("name", ""), since(meta.get("creationTimestamp"), now)], [])


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
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj.get("metadata") or {}}


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
