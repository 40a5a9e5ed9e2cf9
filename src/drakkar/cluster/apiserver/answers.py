"""Objects and lists in the form that the client asked for: plain, as a Table, or only their metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.negotiation import JSON, PROTOBUF, YAML
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.store import StoredObject

_WITHOUT_COLUMNS = ApiResource("", "", "", "")
_encode = msgspec.json.Encoder().encode

CHUNK = 250
"""Items of a list that are written in one go."""


def encode(value: Any, media_type: str) -> bytes:
    """A JSON value as the body of an answer."""
    if media_type == JSON:
        return _encode(value)
    if media_type == YAML:
        import yaml

        # Through JSON once more: equal parts must not become anchors and aliases.
        plain = msgspec.json.decode(_encode(value))
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text: str = yaml.dump(plain, Dumper=dumper, default_flow_style=False, allow_unicode=True, width=1 << 30)
        return text.encode()
    if media_type == PROTOBUF:
        from drakkar.cluster.machinery import protobuf

        return bytes(protobuf.encode(value))
    raise ValueError(media_type)


def one(call: Call, stored: StoredObject, status: int = 200) -> Answer:
    """A stored object."""
    form = call.representation
    if form.convert:
        return value(call, stored.value, status)
    if call.row.stored_as is not None or form.media_type != JSON:
        return value(call, to_served(call.row, stored.value), status)
    return Answer(status, stored.value, stored=stored, warnings=call.warnings)


def value(call: Call, obj: dict[str, Any], status: int = 200) -> Answer:
    """An object that is not (or not as such) in the store, in the version of the request."""
    form = call.representation
    shown = obj
    if form.convert == "Table":
        shown = table(call, [obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
    elif form.convert:
        shown = metadata_only(obj, form.version)
    raw = None if form.media_type == JSON else encode(shown, form.media_type)
    return Answer(status, shown, raw, form.media_type, warnings=call.warnings)


def metadata_only(obj: dict[str, Any], version: str) -> dict[str, Any]:
    """A PartialObjectMetadata."""
    from drakkar.cluster.machinery.tables import metadata_of

    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata_of(obj)}


def many(call: Call, found: Sequence[StoredObject], metadata: dict[str, Any]) -> Answer:
    """A list, its items without kind and apiVersion as Kubernetes' typed lists have them."""
    form, row = call.representation, call.row
    if form.convert == "Table":
        return _list_answer(call, table(call, [stored.value for stored in found], metadata))
    if form.convert:
        items = [metadata_only(stored.value, form.version) for stored in found]
        shown = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": f"meta.k8s.io/{form.version}",
            "metadata": metadata,
            "items": items,
        }
        return _list_answer(call, shown)

    def plain() -> dict[str, Any]:
        return {
            "kind": row.list_kind,
            "apiVersion": row.api_version,
            "metadata": metadata,
            "items": [_item(to_served(row, stored.value), row) for stored in found],
        }

    if form.media_type != JSON or row.stored_as is not None:
        return _list_answer(call, plain())
    return Answer(200, value_of=plain, text_of=lambda: list_text(row, found, metadata), warnings=call.warnings)


def _list_answer(call: Call, shown: dict[str, Any]) -> Answer:
    media_type = call.representation.media_type
    raw = None if media_type == JSON else encode(shown, media_type)
    return Answer(200, shown, raw, media_type, warnings=call.warnings)


def _item(obj: dict[str, Any], row: ApiResource) -> dict[str, Any]:
    if row.custom:  # custom resources are unstructured: their items keep kind and apiVersion
        return obj
    return {key: part for key, part in obj.items() if key not in ("kind", "apiVersion")}


def list_text(row: ApiResource, found: Sequence[StoredObject], metadata: dict[str, Any]) -> list[Callable[[], bytes]]:
    """The JSON text of a list, put together from the texts of its items; each piece is made when it is called for.

    A long list comes in several pieces, so that the first goes out at once and others are served in between.
    """
    head = b'{"kind":%s,"apiVersion":%s,"metadata":%s,"items":[' % (
        _encode(row.list_kind),
        _encode(row.api_version),
        _encode(metadata),
    )
    cut = 1 if row.custom else len(b'{"kind":%s,"apiVersion":%s,' % (_encode(row.kind), _encode(row.api_version)))

    def piece(start: int) -> bytes:
        text = b",".join([b"{" + stored.raw[cut:] for stored in found[start : start + CHUNK]])
        before = b"," if start else head
        after = b"]}" if start + CHUNK >= len(found) else b""
        return before + text + after

    return [partial(piece, start) for start in range(0, len(found) or 1, CHUNK)]


def table(
    call: Call, served: Sequence[dict[str, Any]], metadata: dict[str, Any], *, rows_only: bool = False
) -> dict[str, Any]:
    """The objects (as they are stored: columns are printed from that form) as a `meta.k8s.io` Table."""
    from drakkar.cluster.machinery import tables

    include = call.query.get("includeObject", "") or "Metadata"
    if include not in ("Metadata", "Object", "None"):
        text = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
        raise statuses.bad_request(f"Unable to convert to Table as requested: {text}")
    row = call.row
    if row.stored_as is not None and not row.custom:
        row = call.server.registry.get(*row.stored_as, row.plural) or row
    elif call.subresource is not None and row.group == "resource.k8s.io":
        row = _WITHOUT_COLUMNS  # the status of these kinds is served without a printer
    made: dict[str, Any] = tables.table(
        row,
        served,
        now=call.server.clock.now(),
        include=include,
        list_metadata=metadata,
        watch_rows_only=rows_only,
        own_columns=row.columns,
    )
    version = call.representation.version
    if version != "v1":
        made["apiVersion"] = f"meta.k8s.io/{version}"
        for one_row in made["rows"]:
            shown = one_row.get("object")
            if shown and shown.get("kind") == "PartialObjectMetadata":
                one_row["object"] = {**shown, "apiVersion": f"meta.k8s.io/{version}"}
    return made
