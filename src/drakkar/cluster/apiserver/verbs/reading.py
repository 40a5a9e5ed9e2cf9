"""get and list: selectors, pages, and lists as of an older version.

A list reads the store as it is now, so every `resourceVersion` up to the present is satisfied by "not older than"; only
`Exact` and the pages of a chunked list look back, as far as the collection's history goes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from drakkar.cluster.apiserver import answers, statuses
from drakkar.cluster.apiserver.calls import Answer, Call, prefix_of
from drakkar.cluster.apiserver.fields import readers, selected
from drakkar.cluster.apiserver.options import list_options, version_number
from drakkar.cluster.machinery import jsontext
from drakkar.cluster.store import ExpiredVersionError, StoredObject
from drakkar.kube.selectors import FieldSelector, LabelSelector, SelectorError

Filter = Callable[[StoredObject], bool]


def get(call: Call) -> Answer:
    """One object."""
    check_not_ahead(call, version_number(call.query.get("resourceVersion", "")))
    return answers.one(call, call.stored())


def check_not_ahead(call: Call, version: int | None) -> None:
    """Raises `StatusError` 504 for a version that does not exist yet (the real server waits three seconds first)."""
    current = call.server.store.version
    if version is not None and version > current:
        message = f"Timeout: Too large resource version: {version}, current: {current}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise statuses.StatusError(
            statuses.status(504, message, "Timeout", {"causes": [cause], "retryAfterSeconds": 1}), {"Retry-After": "1"}
        )


class Selection(msgspec.Struct):
    """Which objects of the path a list or watch means. `passes` None: all below `prefix`."""

    prefix: str
    only_key: str
    passes: Filter | None


def selection(call: Call) -> Selection:
    """Read the selectors; raises `StatusError` 400."""
    row = call.row
    try:
        labels = LabelSelector.parse(call.query.get("labelSelector", ""))
        fields = FieldSelector.parse(call.query.get("fieldSelector", ""))
    except SelectorError as error:
        raise statuses.bad_request(error.message) from None
    found = readers(row, fields)
    prefix, only = prefix_of(row, call.namespace), ""
    wanted = {path: value for path, equal, value in fields.requirements if equal}
    if call.name:
        wanted["metadata.name"] = call.name
    if not prefix and row.namespaced and wanted.get("metadata.namespace"):
        prefix = prefix_of(row, wanted["metadata.namespace"])
    if wanted.get("metadata.name") and (prefix or not row.namespaced):
        only = prefix + wanted["metadata.name"]
    if labels.empty and fields.empty:
        return Selection(prefix, only, None)

    def passes(stored: StoredObject) -> bool:
        return (labels.empty or labels.matches(stored.labels)) and (
            fields.empty or selected(stored.value, fields, found)
        )

    return Selection(prefix, only, passes)


def listed(call: Call) -> Answer:
    """All objects that the path and the selectors name, or a page of them."""
    options = list_options(call, watch=False)
    chosen = selection(call)
    collection = call.collection
    version, start = call.server.store.version, ""
    if options.continues:
        version, start = _read_token(options.continues)
        if version < 0:  # the client chose to go on although things have changed since
            version = call.server.store.version
    elif options.match == "Exact" or (options.limit > 0 and options.version and options.match != "NotOlderThan"):
        check_not_ahead(call, options.version)
        version = options.version or version
    else:
        check_not_ahead(call, options.version)
    try:
        found: Sequence[StoredObject]
        if chosen.only_key and version == call.server.store.version:
            stored = collection.get(chosen.only_key)
            found = [stored] if stored is not None else []
        elif version == call.server.store.version:
            found = collection.objects(chosen.prefix)
        else:
            found = collection.objects_at(version, chosen.prefix)
    except ExpiredVersionError as error:
        raise _expired(error, start) from None
    if start:
        found = [stored for stored in found if stored.key >= start]
    if chosen.passes is not None:
        found = [stored for stored in found if chosen.passes(stored)]
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if 0 < options.limit < len(found):
        rest = len(found) - options.limit
        found = found[: options.limit]
        metadata["continue"] = _token(version, found[-1].key + "\0")
        if chosen.passes is None:
            metadata["remainingItemCount"] = rest
    return answers.many(call, found, metadata)


def _token(version: int, start: str) -> str:
    text = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    illegal = next((index for index, one in enumerate(token) if one not in _BASE64), len(token))
    if illegal < len(token) or len(token) % 4 == 1:
        raise _bad_token(f"illegal base64 data at input byte {illegal}")
    text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    try:
        value, _ = jsontext.parse(text)
    except jsontext.JsonError as error:
        raise _bad_token(str(error)) from None
    if not isinstance(value, dict) or value.get("v") != "meta.k8s.io/v1":
        version = value.get("v", "") if isinstance(value, dict) else ""
        raise _bad_token(f'server does not recognize this encoded version "{version}"')
    version, start = value.get("rv"), value.get("start")
    if not isinstance(version, int) or version == 0:
        raise _bad_token("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not isinstance(start, str) or not start:
        raise _bad_token("encoded start key empty (version meta.k8s.io/v1)")
    return version, start


_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def _bad_token(why: str) -> statuses.StatusError:
    return statuses.bad_request(f"invalid continue token: continue key is not valid: {why}")


_STALE_PAGE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def _expired(error: ExpiredVersionError, start: str) -> statuses.StatusError:
    if not start:
        return statuses.expired("The resourceVersion for the provided list is too old.")
    refusal = statuses.expired(_STALE_PAGE)
    refusal.status["metadata"] = {"continue": _token(-1, start)}
    return refusal
