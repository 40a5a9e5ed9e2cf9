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


def apply_configuration(call: Call, existing: StoredObject | None) -> tuple[dict[str, Any], list[str]]:
    """Merge the applied configuration in the body into the live object; raises `StatusError` (409 for conflicts)."""
    from drakkar.cluster.machinery import apply, yamltext
    from drakkar.cluster.machinery.patching import PatchError

    body = call.body
    check_size(body)
    warnings: list[str] = []
    if isinstance(body, (bytes, bytearray)):
        assert media_type(call)
        try:
            body, duplicates = yamltext.parse(bytes(body))
        except yamltext.YamlError as error:
            raise statuses.bad_request(f"error decoding YAML: {error}") from None
        if duplicates and call.field_validation == "Strict":
            raise statuses.bad_request(f"error strict decoding YAML: {', '.join(duplicates)}")
        warnings = duplicates if call.field_validation == "Warn" else []
    if not isinstance(body, dict):
        raise statuses.bad_request("error decoding YAML: the patch must be an object")
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
        raise patch_refusal(call, error) from None
    return merged, warnings


def patch_refusal(call: Call, error: Any) -> statuses.StatusError:
    """A patch that cannot be applied, as a Status."""
    return statuses.StatusError(error.status(call.row.group, call.row.plural, call.name))
