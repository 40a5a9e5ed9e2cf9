"""Which fields of a resource.k8s.io object are wrong: one function for new objects, one for changed ones.

Joins the hand-written checks with the declarative ones the way a 1.37 server does, so that causes and their order are
its. Objects are v1 unless `group_version` says otherwise; checks are written for v1, and other versions are converted
first, as the server checks its internal form and says the paths of v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.api import claims, declarative, metadata, shared, slices
from drakkar.api.expressions import check_selectors
from drakkar.api.fields import FieldError, invalid, too_many
from drakkar.kube import names

__all__ = ["KINDS", "validate_create", "validate_update"]

Found = list[FieldError]
Json = Mapping[str, Any]
GROUP: Final = "resource.k8s.io"
KINDS: Final = ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")


def validate_create(obj: Json) -> Found:
    """What is wrong with a new object (kind and apiVersion set, defaults filled in). KeyError for another kind."""
    written = _CREATE[obj["kind"]](obj)
    return declarative.merge(written, declarative.check(f"{GROUP}/v1", obj["kind"], obj), _rename)


def validate_update(obj: Json, old: Json, subresource: str = "") -> Found:
    """What is wrong with a changed object, given the stored one. KeyError for another kind or subresource."""
    written = _UPDATE[obj["kind"], subresource](obj, old)
    return declarative.merge(written, declarative.check(f"{GROUP}/v1", obj["kind"], obj, old), _rename)


_FLAT: Final = re.compile(
    r"(spec\.devices\.requests\[\d+\])\.(?=deviceClassName|selectors|allocationMode|count|adminAccess|tolerations)"
)


def _rename(field: str) -> str:
    return _FLAT.sub(r"\1.exactly.", field)


def _check_class(device_class: Json, old: Json | None = None) -> Found:
    meta, spec = device_class.get("metadata") or {}, device_class.get("spec") or {}
    before = (old or {}).get("spec") or {}
    found = _check_class_name(meta)
    found += metadata.check_common(meta, namespaced=False)
    if old is not None:
        found += metadata.check_update(meta, old.get("metadata") or {})
    found += metadata.check_qualified_finalizers(meta)
    selectors, config = spec.get("selectors") or [], spec.get("config") or []
    stored = old is not None and selectors == (before.get("selectors") or [])
    found += check_selectors(selectors, "spec.selectors", stored=stored)
    stored = old is not None and config == (before.get("config") or [])
    return found + shared.check_each(
        config,
        claims.CONFIG_LIMIT,
        lambda entry, place: claims.check_configuration(entry, place, stored=stored),
        "spec.config",
        size_covered=True,
    )


def _check_class_name(meta: Json) -> Found:
    name = meta.get("name")
    if not name:
        from drakkar.api.fields import required

        return [required("metadata.name", "name or generateName is required")]
    complaints = names.dns_subdomain(name, unit="bytes")
    return [invalid("metadata.name", name, text, origin="format=k8s-long-name", covered=True) for text in complaints]


def _check_rule(rule: Json, old: Json | None = None) -> Found:
    meta, spec = rule.get("metadata") or {}, rule.get("spec") or {}
    if old is None:
        found = metadata.check_create(meta, namespaced=False, name_check=names.dns_subdomain)
    else:
        found = metadata.check_update(meta, old.get("metadata") or {})
    found += metadata.check_qualified_finalizers(meta)
    selector = spec.get("deviceSelector") or {}
    checks: tuple[tuple[str, Callable[[str, str], Found]], ...] = (
        ("driver", shared.check_driver), ("pool", shared.check_pool_name), ("device", shared.check_label),
    )  # fmt: skip
    for name, check in checks:
        if selector.get(name) is not None:
            found += check(selector[name], f"spec.deviceSelector.{name}")
    before = ((old or {}).get("spec") or {}).get("taint") if old is not None else None
    return found + shared.check_taint(spec.get("taint") or {}, before, "spec.taint")


RULE_CONDITIONS_LIMIT: Final = 8


def _check_rule_status(rule: Json, old: Json) -> Found:
    meta = rule.get("metadata") or {}
    found = metadata.check_update(meta, old.get("metadata") or {})
    found += metadata.check_qualified_finalizers(meta)
    conditions = (rule.get("status") or {}).get("conditions") or []
    found += metadata.check_conditions(conditions, "status.conditions")
    if len(conditions) > RULE_CONDITIONS_LIMIT:
        found.append(too_many("status.conditions", len(conditions), RULE_CONDITIONS_LIMIT))
    return found


_CREATE: Final[dict[str, Callable[[Json], Found]]] = {
    "DeviceClass": _check_class,
    "DeviceTaintRule": _check_rule,
    "ResourceClaim": claims.check_claim,
    "ResourceClaimTemplate": claims.check_template,
    "ResourceSlice": slices.check_slice,
}
_UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("DeviceClass", ""): _check_class,
    ("DeviceTaintRule", ""): _check_rule,
    ("DeviceTaintRule", "status"): _check_rule_status,
    ("ResourceClaim", ""): claims.check_claim_update,
    ("ResourceClaim", "status"): claims.check_claim_status,
    ("ResourceClaimTemplate", ""): claims.check_template,
    ("ResourceSlice", ""): slices.check_slice,
}
