"""Options of requests: what may stand in the query or in a DeleteOptions body, and which combinations are refused.

The checks and their words are those of `k8s.io/apimachinery/pkg/apis/meta/v1/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.bodies import plain_body
from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.apiserver.paths import truth
from drakkar.cluster.machinery.schemas import struct_of
from drakkar.cluster.machinery.shapes import Findings, ShapeError, shape

_VALIDATIONS: Final = ("", "Ignore", "Warn", "Strict")
_DELETE_OPTIONS: Final = (
    "gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy", "dryRun",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
)  # fmt: skip
_POLICIES: Final = ("Foreground", "Background", "Orphan")


def _dry_run_problems(values: Sequence[str]) -> list[tuple[str, str, str]]:
    if all(value == "All" for value in values):
        return []
    shown = msgspec.json.encode(list(values)).decode()
    return [("dryRun", "FieldValueNotSupported", f'Unsupported value: {shown}: supported values: "All"')]


def check_write(call: Call, kind: str, *, apply: bool = False) -> None:
    """Options of create, update and patch; raises `StatusError` 422. Sets `call.dry_run`."""
    query = call.query
    if not ("dryRun" in query or "fieldManager" in query or "fieldValidation" in query or apply or "force" in query):
        return
    problems = []
    manager = query.get("fieldManager", "")
    if kind == "PatchOptions":
        if apply and not manager:
            problems.append(("fieldManager", "FieldValueRequired", "Required value: is required for apply patch"))
        elif not apply and "force" in query:
            text = "Forbidden: may not be specified for non-apply patch"
            problems.append(("force", "FieldValueForbidden", text))
    if len(manager) > 128:
        text = f"Too long: may not be more than {128} bytes"
        problems.append(("fieldManager", "FieldValueTooLong", text))
    elif not manager.isprintable():
        text = f'Invalid value: "{manager}": should only contain printable characters'
        problems.append(("fieldManager", "FieldValueInvalid", text))
    problems += _dry_run_problems(call.repeated.get("dryRun", ()))
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        text = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        problems.append(("fieldValidation", "FieldValueNotSupported", text))
    if problems:
        raise statuses.invalid_options(kind, problems)
    call.dry_run = bool(call.repeated.get("dryRun"))


class DeleteOptions(msgspec.Struct):
    """`policy` is Foreground, Background, Orphan or "" (the kind's own)."""

    grace_seconds: int | None = None
    policy: str = ""
    uid: str | None = None
    version: str | None = None
    dry_run: bool = False


def delete_options(call: Call) -> DeleteOptions:
    """From the body if there is one, else from the query; raises `StatusError` 400 or 422."""
    body = plain_body(call)
    if body is not None:
        values: Mapping[str, Any] = _checked_kind(body)
    else:
        query = call.query
        values = {
            "gracePeriodSeconds": call.integer("gracePeriodSeconds"),
            "propagationPolicy": query.get("propagationPolicy") or None,
            "orphanDependents": truth(query["orphanDependents"]) if "orphanDependents" in query else None,
            "dryRun": list(call.repeated.get("dryRun", ())),
        }
    problems: list[tuple[str, str, str]] = []
    policy, orphan = values.get("propagationPolicy"), values.get("orphanDependents")
    if policy is not None and orphan is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        problems.append(("propagationPolicy", "FieldValueInvalid", text))
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{one}"' for one in ("Foreground", "Background", "Orphan", "nil"))
        text = f'Unsupported value: "{policy}": supported values: {supported}'
        problems.append(("propagationPolicy", "FieldValueNotSupported", text))
    problems += _dry_run_problems(values.get("dryRun") or ())
    if problems:
        raise statuses.invalid_options("DeleteOptions", problems)
    call.delete_options = {name: values[name] for name in _DELETE_OPTIONS if values.get(name) not in (None, [], {})}
    conditions = values.get("preconditions") or {}
    grace = values.get("gracePeriodSeconds")
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    return DeleteOptions(
        grace, policy or "", conditions.get("uid"), conditions.get("resourceVersion"), bool(values.get("dryRun"))
    )


def _checked_kind(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise statuses.bad_request("couldn't get version/kind; json parse error: expected an object")
    kind, version = body.get("kind"), body.get("apiVersion")
    if kind not in (None, "DeleteOptions"):
        raise statuses.bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    struct = struct_of("v1", "DeleteOptions")
    assert struct is not None
    try:
        return shape(body, struct, Findings())
    except ShapeError as error:
        raise statuses.bad_request(str(error)) from None


class ListOptions(msgspec.Struct):
    """`version` None: not given. `match` is "", Exact or NotOlderThan."""

    version: int | None
    match: str
    limit: int
    continues: str
    timeout: int | None
    initial_events: bool | None
    bookmarks: bool


def list_options(call: Call, *, watch: bool) -> ListOptions:
    """Read and check the options of list and watch; raises `StatusError`."""
    query = call.query
    initial = truth(query["sendInitialEvents"]) if "sendInitialEvents" in query else None
    timeout = call.integer("timeoutSeconds")
    limit = call.integer("limit") or 0
    match, text = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    problems = _match_problems(match, text, initial, query.get("continue", ""), watch)
    if problems:
        raise statuses.invalid_options("ListOptions", problems)
    return ListOptions(
        version_number(text, listed=not watch),
        match,
        limit,
        query.get("continue", ""),
        timeout,
        initial,
        truth(query.get("allowWatchBookmarks", "")),
    )


def version_number(text: str, *, listed: bool = False) -> int | None:
    """A resourceVersion from the query, None if there is none. Raises `StatusError`: 400 for a list, 500 for anything
    else, as the real server does."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        why = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        told = f'resourceVersion: Invalid value: "{text}": {why}'
        raise (
            statuses.bad_request(f"invalid resource version: {told}") if listed else statuses.internal(told, bare=True)
        )
    return int(text)


def _match_problems(
    match: str, version: str, initial: bool | None, continues: str, watch: bool
) -> list[tuple[str, str, str]]:
    field = "resourceVersionMatch"
    problems: list[tuple[str, str, str]] = []

    def forbid(why: str, where: str = field) -> None:
        problems.append((where, "FieldValueForbidden", f"Forbidden: {why}"))

    if watch and initial is None:
        if match:
            forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        return problems
    if watch:
        if match != "NotOlderThan":
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if match not in ("", "NotOlderThan"):
            text = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
            problems.append((field, "FieldValueNotSupported", text))
        return problems
    if match:
        if not version:
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if continues:
            forbid("resourceVersionMatch is forbidden when continue is provided")
        if match not in ("Exact", "NotOlderThan"):
            text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
            problems.append((field, "FieldValueNotSupported", text))
        if match == "Exact" and version == "0":
            forbid('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if initial is not None:
        forbid("sendInitialEvents is forbidden for list", "sendInitialEvents")
    return problems
