"""What admission is asked about a request: the operation, the kinds and both objects (`admission.Attributes`).

A subresource speaks a kind of its own (Scale, Eviction, PodExecOptions), and a kind may be served in several versions:
whoever looks at requests (policies, webhooks) names the version it wants to see, and gets the objects in that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.resources import ApiResource

__all__ = ["GROUP", "Asked", "Value", "equivalents", "request_of"]

Value = dict[str, Any]
Gvk = tuple[str, str, str]

GROUP: Final = "admissionregistration.k8s.io"
"""The kinds that say who is asked."""
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_META: Final = "meta.k8s.io/v1"


class Asked(msgspec.Struct):
    """`obj` and `old` are in the version that is stored or, for a subresource with a kind of its own, of that kind.

    `new` marks a create that nobody has given a name and a UID yet: mutating webhooks see it so. `name` is empty for
    the objects of a collection that is deleted.
    """

    call: Call
    operation: str
    obj: Value | None
    old: Value | None
    name: str | None = None
    new: bool = False

    @property
    def row(self) -> ApiResource:
        return self.call.row

    @property
    def subresource(self) -> str:
        return self.call.subresource.name if self.call.subresource is not None else ""

    @property
    def object_name(self) -> str:
        """The name that the request is about, "" if the server has still to make one."""
        if self.name is not None:
            return self.name
        if self.call.name or self.call.asked_name:
            return self.call.name or self.call.asked_name
        metadata = (self.obj or self.old or {}).get("metadata") or {}
        if self.new and metadata.get("generateName"):
            return ""
        return str(metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        """The namespace of the object; a Namespace is in itself."""
        row = self.row
        if row.namespaced:
            return self.call.info.namespace
        return self.object_name if row.plural == "namespaces" and not row.group else ""

    def kind(self, row: ApiResource | None = None) -> Gvk:
        """Group, version and kind of the objects as `row` (the request's own by default) serves them."""
        row = row or self.row
        own = self.call.subresource
        if own is not None and own.kind:
            group, version = (own.group, own.version) if own.version else ("", "v1")
            return group, version, own.kind
        return row.group, row.version, row.kind

    def kind_row(self, row: ApiResource) -> ApiResource:
        """A row whose behaviour is that of the objects' kind."""
        own = self.call.subresource
        if own is None or not own.kind:
            return row
        group, version, kind = self.kind(row)
        return ApiResource(group, version, own.name, kind)

    def objects(self, row: ApiResource) -> tuple[Value | None, Value | None]:
        """Both objects in the version of a row."""
        return self.served(row, self.obj), self.served(row, self.old)

    def served(self, row: ApiResource, obj: Value | None) -> Value | None:
        """An object in the version of a row."""
        if obj is None or (self.call.subresource is not None and self.call.subresource.kind):
            return obj
        return to_served(row, obj)

    def given_options(self) -> Value | None:
        """The options of the request as an object (`CreateOptions` and so on), None for a connection."""
        kind = _OPTIONS.get(self.operation)
        if kind is None:
            return None
        given = self.call.delete_options if self.operation == "DELETE" else _from_query(self.call)
        return {"kind": kind, "apiVersion": _META, **(given or {})}


def _from_query(call: Call) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if call.dry_run:
        options["dryRun"] = ["All"]
    for name in ("fieldManager", "fieldValidation"):
        if call.query.get(name):
            options[name] = call.query[name]
    return options


def equivalents(call: Call) -> Iterator[ApiResource]:
    """The rows that serve the objects of the request, too: other versions, and groups that share the storage."""
    own = call.row
    for row in call.server.registry.rows():
        if row.collection != own.collection or row is own or row.ephemeral:
            continue
        if call.subresource is None or row.subresource(call.subresource.name) is not None:
            yield row


def request_of(asked: Asked, row: ApiResource) -> Value:
    """The request without its objects: `admission.k8s.io/v1` AdmissionRequest, empty fields left out."""
    own, call = asked.row, asked.call
    made: Value = {
        "kind": _kind(asked.kind(row)),
        "resource": {"group": row.group, "version": row.version, "resource": row.plural},
        "subResource": asked.subresource,
        "requestKind": _kind(asked.kind()),
        "requestResource": {"group": own.group, "version": own.version, "resource": own.plural},
        "requestSubResource": asked.subresource,
        "name": asked.object_name,
        "namespace": asked.namespace,
        "operation": asked.operation,
    }
    return {name: part for name, part in made.items() if part} | {"userInfo": call.user.info(), "dryRun": call.dry_run}


def _kind(gvk: Gvk) -> Mapping[str, str]:
    group, version, kind = gvk
    return {"group": group, "version": version, "kind": kind}
