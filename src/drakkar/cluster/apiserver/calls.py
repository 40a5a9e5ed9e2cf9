"""One request on its way through the server, and the answer it gets.

`Call` gathers what every step needs to know; verbs take a call and return an `Answer`, which keeps the stored JSON text
beside the parsed value so that a single object goes out without being encoded again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.identities import User
from drakkar.cluster.apiserver.negotiation import JSON, PLAIN, Representation
from drakkar.cluster.apiserver.paths import RequestInfo
from drakkar.cluster.apiserver.resources import ApiResource, Subresource
from drakkar.kube.clock import rfc3339

if TYPE_CHECKING:
    from drakkar.cluster.apiserver.server import ApiServer
    from drakkar.cluster.store import Collection, StoredObject

BODY_LIMIT: Final = 3 * 1024 * 1024
"""`MaxRequestBodyBytes` of kube-apiserver."""


class Answer(msgspec.Struct):
    """`raw` is the body as it goes on the wire if it is known already; `stream` replaces the body by chunks. A stored
    object is answered as `stored`: its text is made only for who wants text, and once for all who want it.

    `watch` yields watch events as plain values, for clients inside the process; over HTTP `stream` serves the same. A
    list makes its value or the pieces of its text only for who wants them (`value_of`, `text_of`).
    """

    status: int
    value: Any = None
    raw: bytes | None = None
    content_type: str = JSON
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    stream: AsyncGenerator[bytes] | None = None
    watch: AsyncGenerator[dict[str, Any]] | None = None
    value_of: Callable[[], Any] | None = None
    text_of: Callable[[], list[Callable[[], bytes]]] | None = None
    stored: StoredObject | None = None


class Call(msgspec.Struct):
    """`query` has the first value of each parameter, `repeated` all values. `row` is what the path names."""

    server: ApiServer
    method: str
    path: str
    query: Mapping[str, str]
    repeated: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any
    user: User
    now: datetime
    info: RequestInfo
    row: ApiResource
    subresource: Subresource | None = None
    representation: Representation = PLAIN
    warnings: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False
    delete_options: dict[str, Any] | None = None
    asked_name: str = ""
    charges: list[tuple[StoredObject, dict[str, str]]] = msgspec.field(default_factory=list)
    _timestamp: str = ""

    @property
    def timestamp(self) -> str:
        """The time of the request, to the second; made once and only for who needs it."""
        if not self._timestamp:
            self._timestamp = rfc3339(self.now)
        return self._timestamp

    @property
    def collection(self) -> Collection:
        return self.server.store.collection(self.row.collection)

    @property
    def namespace(self) -> str:
        return self.info.namespace if self.row.namespaced else ""

    @property
    def name(self) -> str:
        return self.info.name

    def key(self, name: str = "") -> str:
        """The store's key of an object of this kind in the namespace of the path."""
        return key_of(self.row, self.info.namespace, name or self.info.name)

    def stored(self) -> StoredObject:
        """The object that the path names; raises `StatusError` 404."""
        found = self.collection.get(self.key())
        if found is None:
            raise statuses.not_found(self.row.group, self.row.plural, self.info.name)
        return found

    def integer(self, name: str) -> int | None:
        """A whole number from the query; raises `StatusError` 400."""
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    @property
    def manager(self) -> str:
        """Who owns the fields that this request sets: the query says, or the user agent up to its slash."""
        return (
            self.query.get("fieldManager", "")
            or self.headers.get("user-agent", "").partition("/")[0][:128]
            or "unknown"
        )

    @property
    def field_validation(self) -> str:
        return self.query.get("fieldValidation", "") or "Warn"


def key_of(row: ApiResource, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if row.namespaced else name


def prefix_of(row: ApiResource, namespace: str) -> str:
    """What all keys of a listing start with."""
    return f"{namespace}/" if row.namespaced and namespace else ""
