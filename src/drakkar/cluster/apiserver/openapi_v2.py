"""The OpenAPI version 2 document, as far as clients still read it, in JSON and in gnostic's protobuf form.

kubectl asks for it when version 3 does not know a kind, and only wants to know which kinds understand
`fieldValidation` and `dryRun`. So there is one path per kind with its PATCH parameters and no definitions; everything
else is in version 3.
Field numbers are those of github.com/google/gnostic-models, `openapiv2/OpenAPIv2.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from drakkar.cluster.apiserver.resources import ApiResource

PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""What the answer says: media types with an at sign cannot be parsed by Go."""
_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation", "force")
_TITLE, _VERSION = "Kubernetes", "v1.37.2"


def document(rows: Iterable[ApiResource]) -> dict[str, Any]:
    """The document as JSON."""
    paths = {}
    for row in _patchable(rows):
        parameters = [{"in": "query", "name": name, "type": "string", "uniqueItems": True} for name in _PARAMETERS]
        operation = {
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": {"group": row.group, "kind": row.kind, "version": row.version},
        }
        paths[_path(row)] = {"patch": operation}
    return {"swagger": "2.0", "info": {"title": _TITLE, "version": _VERSION}, "paths": paths, "definitions": {}}


def encoded(rows: Iterable[ApiResource]) -> bytes:
    """The document as protobuf."""
    parameters = b"".join(_field(8, _field(1, _field(2, _field(3, _query(name))))) for name in _PARAMETERS)
    items = []
    for row in _patchable(rows):
        yaml = f"group: {_quoted(row.group)}\nkind: {row.kind}\nversion: {row.version}\n"
        extension = _text(1, "x-kubernetes-group-version-kind") + _field(2, _text(2, yaml))
        operation = parameters + _field(9, b"") + _field(13, extension)
        items.append(_field(2, _text(1, _path(row)) + _field(2, _field(8, operation))))
    info = _text(1, _TITLE) + _text(2, _VERSION)
    return _text(1, "2.0") + _field(2, info) + _field(8, b"".join(items)) + _field(9, b"")


def _patchable(rows: Iterable[ApiResource]) -> list[ApiResource]:
    return sorted((row for row in rows if "patch" in row.verbs), key=_path)


def _path(row: ApiResource) -> str:
    root = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    return f"{root}/{'namespaces/{namespace}/' if row.namespaced else ''}{row.plural}/{{name}}"


def _query(name: str) -> bytes:
    return _text(2, "query") + _text(4, name) + _text(6, "string")


def _quoted(text: str) -> str:
    return text or '""'


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
