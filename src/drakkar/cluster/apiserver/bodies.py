"""Request bodies: an object of the kind that the path names, or plain options.

Bodies from the network are bytes in JSON, YAML or protobuf; bodies from inside the process are parsed values, which are
copied here once, so that nobody can change afterwards what was validated and stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.calls import BODY_LIMIT, Call
from drakkar.cluster.apiserver.conversions import from_served
from drakkar.cluster.apiserver.kinds import behaviour, stored_behaviour
from drakkar.cluster.apiserver.negotiation import CUSTOM_TYPES, JSON, OBJECT_TYPES, PROTOBUF, YAML
from drakkar.cluster.apiserver.resources import ApiResource
from drakkar.cluster.machinery.strictness import DecodeError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def private(value: Any) -> Any:
    """A deep copy of a JSON value; by far the fastest way is through its text."""
    return _decode(_encode(value))


def media_type(call: Call) -> str:
    return call.headers.get("content-type", JSON).partition(";")[0].strip().lower() or JSON


def check_size(body: Any) -> None:
    """Raises `StatusError` 413 for more than `BODY_LIMIT` bytes."""
    if isinstance(body, bytes) and len(body) > BODY_LIMIT:
        raise statuses.too_large(BODY_LIMIT)


def object_body(call: Call, row: ApiResource | None = None, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in the body as its kind shapes and defaults it, in the version that is stored.

    `known` is the stored object that the body replaces: a client in the same process that changed a part of what it
    read sends the rest of it back as it is, and only the part is looked at. Warnings of field validation go to
    `call.warnings`. Raises `StatusError` 400, 413, 415.
    """
    row = row or call.row
    body = call.body
    check_size(body)
    kind = behaviour(row)
    if not isinstance(body, dict | bytes):  # from inside the process: no object, and told so as a text would be
        body = b"" if body is None else bytes(body) if isinstance(body, bytearray) else _encode(body)
    if isinstance(body, bytes):
        content_type = media_type(call)
        accepted = CUSTOM_TYPES if row.custom else OBJECT_TYPES
        if content_type not in accepted:
            raise statuses.unsupported_body(accepted)
        decoded = kind.decode(body, content_type, call.field_validation)
    elif row.custom:
        decoded = kind.shape(private(body), call.field_validation)
    else:
        known = known if row.stored_as is None else None
        try:
            decoded = kind.shape(body, call.field_validation, known=known)
        except DecodeError:  # perhaps only for a tuple or another value that JSON knows how to write
            decoded = kind.shape(private(body), call.field_validation)
    call.warnings += decoded.warnings
    return defaulted(call, decoded.object, row, known)


def defaulted(
    call: Call, served: dict[str, Any], row: ApiResource, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """An object in the version of the request → the stored version, with defaults. `known` is the stored object."""
    if row.custom or row.stored_as is not None:
        return stored_behaviour(row).default(from_served(row, served), now=call.timestamp)
    return behaviour(row).default(served, now=call.timestamp, known=known)


def plain_body(call: Call, content_type: str = "") -> Any:
    """The body as a JSON value without a schema; None if it is empty. Raises `StatusError` 400 or 415."""
    body = call.body
    check_size(body)
    if not isinstance(body, (bytes, bytearray)):
        return body
    if not body:
        return None
    content_type = content_type or media_type(call)
    if content_type == JSON:
        try:
            return _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise statuses.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if content_type == YAML:
        from drakkar.kube import yamltext

        try:
            return yamltext.parse(bytes(body))[0]
        except yamltext.YamlError as error:
            raise statuses.bad_request(str(error)) from None
    if content_type == PROTOBUF:
        from drakkar.cluster.machinery import protobuf

        try:
            return protobuf.decode(bytes(body))
        except protobuf.ProtobufError as error:
            raise statuses.bad_request(str(error)) from None
    raise statuses.unsupported_body(OBJECT_TYPES)
