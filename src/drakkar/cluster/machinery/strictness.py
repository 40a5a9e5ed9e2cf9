"""From the bytes of a request body to a typed object: media types, field validation, and the words for refusing one.

Field validation (KEP-2885) has three modes: `Strict` refuses unknown and duplicate fields, `Warn` (the default) accepts
the object and warns, `Ignore` says nothing. The sentences are those of Kubernetes' decoders, since kubectl prints them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from drakkar.cluster.machinery import jsontext
from drakkar.cluster.machinery.schemas import Struct
from drakkar.cluster.machinery.shapes import MAX_FINDINGS, Findings, ShapeError, shape
from drakkar.kube import yamltext

__all__ = ["JSON", "PROTOBUF", "YAML", "DecodeError", "Decoded", "decode", "media_type", "shape_checked"]

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
SUMMARY_LENGTH: Final = 30


class Decoded(NamedTuple):
    """A typed object, with the texts for `Warning` headers."""

    object: dict[str, Any]
    warnings: list[str]


class DecodeError(ValueError):
    """A body that cannot be read; `message` is Kubernetes' own, `code` and `reason` those of its Status."""

    def __init__(self, message: str, code: int = 400, reason: str = "BadRequest") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason

    def status(self) -> dict[str, Any]:
        """The Status object that answers the request."""
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "code": self.code,
        }  # fmt: skip


def media_type(content_type: str) -> str:
    """The media type of a Content-Type header without its parameters; JSON if there is none."""
    return content_type.partition(";")[0].strip().lower() or JSON


def decode(
    body: bytes, content_type: str, group_version: str, kind: str, struct: Struct, field_validation: str = "Warn"
) -> Decoded:
    """The object in a request body, in the shape of `struct`.

    A body without apiVersion or kind gets those of the request; another apiVersion is refused. Raises `DecodeError`.
    """
    media = media_type(content_type)
    value: Any
    duplicates: list[str] = []
    if media == PROTOBUF:
        from drakkar.cluster.machinery import protobuf

        try:
            value = protobuf.decode(body)
        except protobuf.ProtobufError as error:
            raise DecodeError(
                f"the object provided is unrecognized (must be of type {kind}): {error} ({_summary(body)})"
            ) from None
    elif media in (JSON, YAML):
        value, duplicates = _parsed(body, media, kind)
    else:
        raise DecodeError(
            f"the body of the request was in an unknown format - accepted media types include: {JSON}, {YAML}, "
            f"{PROTOBUF}",
            415,
            "UnsupportedMediaType",
        )
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise DecodeError(_not_an_object(value, kind, body))
    check_type_meta(value, group_version, kind, body)
    return shape_checked(
        value, group_version, kind, struct, field_validation, duplicates, yaml=media == YAML, body=body
    )


def check_type_meta(value: dict[str, Any], group_version: str, kind: str, body: bytes = b"") -> None:
    """Refuse an object of another kind or version; missing ones are those of the request. Raises `DecodeError`."""
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name, ""), str | None):
            raise DecodeError(_wrong_type_meta(value, name, kind, body))
    api_version, body_kind = value.get("apiVersion") or group_version, value.get("kind") or kind
    if api_version != group_version or body_kind != kind:
        raise DecodeError(_other_kind(api_version, body_kind, group_version, kind))


def shape_checked(
    value: dict[str, Any],
    group_version: str,
    kind: str,
    struct: Struct,
    field_validation: str = "Warn",
    duplicates: list[str] | None = None,
    *,
    yaml: bool = False,
    body: bytes = b"",
    borrowed: bool = False,
    known: dict[str, Any] | None = None,
) -> Decoded:
    """A parsed body in the shape of `struct`, with unknown fields refused, warned about or ignored.

    `body` is the text of JSON, in whose order complaints are listed; for `borrowed` and `known` see `shapes`. Raises
    `DecodeError`.
    """
    findings = Findings(borrowed=borrowed)
    try:
        typed = shape(value, struct, findings, known)
    except ShapeError as error:
        raise DecodeError(_cannot_be_handled(group_version, kind, str(error))) from None
    typed["kind"], typed["apiVersion"] = kind, group_version
    if field_validation == "Ignore":
        return Decoded(typed, [])
    unknown = findings.messages
    if duplicates and unknown and body and not yaml:
        duplicates, unknown = jsontext.in_document_order(body, duplicates, unknown), []
    if field_validation == "Strict":
        messages = strict_messages(duplicates or [], unknown, yaml=yaml)
        if messages:
            raise DecodeError(_cannot_be_handled(group_version, kind, f"strict decoding error: {', '.join(messages)}"))
        return Decoded(typed, [])
    return Decoded(typed, ((duplicates or []) + unknown)[:MAX_FINDINGS])


def strict_messages(duplicates: list[str], unknown: list[str], *, yaml: bool = False) -> list[str]:
    """Duplicates and unknown fields as one list of complaints; YAML lists its duplicates under one heading."""
    if yaml and duplicates:
        heading = "yaml: unmarshal errors:\n" + "\n".join(f"  {line}" for line in duplicates)
        return [heading, *unknown][:MAX_FINDINGS]
    return (duplicates + unknown)[:MAX_FINDINGS]


def _parsed(body: bytes, media: str, kind: str) -> tuple[Any, list[str]]:
    try:
        return jsontext.parse(body) if media == JSON else yamltext.parse(body)
    except jsontext.JsonError as error:
        problem = f"couldn't get version/kind; json parse error: {error}"
    except yamltext.YamlError as error:
        problem = str(error)
    raise DecodeError(f"the object provided is unrecognized (must be of type {kind}): {problem} ({_summary(body)})")


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    shown = body[:SUMMARY_LENGTH]
    text = shown.decode("utf-8", "replace") if body[:1] == b"{" else shown.hex()
    return text + (" ..." if len(body) > SUMMARY_LENGTH else "")


_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def _not_an_object(value: Any, kind: str, body: bytes) -> str:
    described = "array" if isinstance(value, list) else "string" if isinstance(value, str) else "number"
    described = "bool" if isinstance(value, bool) else described
    problem = f"couldn't get version/kind; json parse error: json: cannot unmarshal {described} into Go value of type"
    return f"the object provided is unrecognized (must be of type {kind}): {problem} {_TYPE_META} ({_summary(body)})"


def _wrong_type_meta(value: dict[str, Any], name: str, kind: str, body: bytes) -> str:
    item = value[name]
    described = {dict: "object", list: "array", bool: "bool"}.get(type(item), "number")
    problem = (
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {described} into Go struct field .{name} "
        "of type string"
    )
    text = body or msgspec.json.encode(value)  # in process nobody wrote it as text
    return f"the object provided is unrecognized (must be of type {kind}): {problem} ({_summary(text)})"


def _other_kind(api_version: str, body_kind: str, group_version: str, kind: str) -> str:
    from drakkar.cluster.machinery.schemas import struct_of

    version = api_version.rpartition("/")[2]
    known = struct_of(api_version, body_kind)
    if known is None:
        return (
            f'{body_kind} in version "{version}" cannot be handled as a {kind}: no kind "{body_kind}" is registered for'
            f' version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    if body_kind == kind:
        return f"the API version in the data ({api_version}) does not match the expected API version ({group_version})"
    wanted = (struct_of(group_version, kind) or known).name.split(".", 1)[0]
    return (
        f'{body_kind} in version "{version}" cannot be handled as a {kind}: converting ({version}.{body_kind}) to'
        f" ({wanted}.{kind}): unknown conversion"
    )


def _cannot_be_handled(group_version: str, kind: str, problem: str) -> str:
    version = group_version.rpartition("/")[2]
    return f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}'
