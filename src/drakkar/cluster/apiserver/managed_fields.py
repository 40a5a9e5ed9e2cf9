"""Who owns which field: the server's side of managedFields (KEP-555), computed by `drakkar.cluster.machinery.apply`.

Every write notes its manager. A write through server-side apply computes ownership itself; all others compare the new
state with the old one. Custom resources without a schema own whole atomic values.
"""

from __future__ import annotations

from typing import Any

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.bodies import check_size, media_type
from drakkar.cluster.apiserver.calls import Call
from drakkar.cluster.apiserver.conversions import to_served
from drakkar.cluster.apiserver.kinds import behaviour, stored_behaviour
from drakkar.cluster.apiserver.paths import truth
from drakkar.cluster.store import StoredObject


def with_managed_fields(call: Call, old: dict[str, Any] | None, obj: dict[str, Any]) -> dict[str, Any]:
    """The object with the entry of this request's manager brought up to date."""
    from drakkar.cluster.machinery import apply

    return apply.update_managed_fields(
        old,
        obj,
        stored_behaviour(call.row),
        manager=call.manager,
        subresource=call.subresource.name if call.subresource is not None else "",
        now=call.timestamp,
    )


def unless_same(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """`new`, or `old` if nothing but the times of managers tells them apart: such a write is none.

    Asked when everything is done to the object that a server does, since that may take a change back.
    """
    from drakkar.cluster.machinery import apply

    return old if apply.same_but_for_times(new, old) else new


def apply_configuration(call: Call, existing: StoredObject | None) -> tuple[dict[str, Any], list[str]]:
    """Merge the applied configuration in the body into the live object; raises `StatusError` (409 for conflicts)."""
    from drakkar.cluster.machinery import apply
    from drakkar.cluster.machinery.patching import PatchError
    from drakkar.kube import yamltext

    body = call.body
    check_size(body)
    warnings: list[str] = []
    if isinstance(body, (bytes, bytearray)):
        assert media_type(call)
        try:
            body, duplicates = yamltext.parse(bytes(body))
        except yamltext.YamlError as error:
            raise statuses.bad_request(f"error encoding patch: {_plain_yaml_error(error)}") from None
        if duplicates and call.field_validation == "Strict":
            raise statuses.bad_request(f"error strict decoding YAML: {', '.join(duplicates)}")
        warnings = duplicates if call.field_validation == "Warn" else []
    if not isinstance(body, dict):
        raise statuses.bad_request("error decoding YAML: the patch must be an object")
    check_configuration(call, body)
    live = to_served(call.row, existing.value) if existing is not None else None
    try:
        merged = apply.apply(
            live,
            body,
            behaviour(call.row),
            manager=call.query.get("fieldManager", ""),
            force=truth(call.query.get("force", "")),
            subresource=call.subresource.name if call.subresource is not None else "",
            now=call.timestamp,
        )
    except apply.ApplyConflict as error:
        raise statuses.StatusError(error.status()) from None
    except PatchError as error:
        raise statuses.StatusError(error.status()) from None
    return merged, warnings


def check_configuration(call: Call, body: dict[str, Any]) -> None:
    """The applied configuration must be about the object of the path. Raises `StatusError` 400."""
    metadata = body.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    if name and name != call.name:
        raise statuses.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def _plain_yaml_error(error: Exception) -> str:
    """The parser's complaint as Go's yaml words it for a one-line document: without the conversion and the line 1."""
    return str(error).removeprefix("error converting YAML to JSON: ").replace("yaml: line 1: ", "yaml: ")
