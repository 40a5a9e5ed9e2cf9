"""What is wrong with limit ranges and resource quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, required
from drakkar.cluster.machinery.validation import values
from drakkar.kube import names
from drakkar.kube.quantity import Quantity

__all__ = ["check_limit_range", "check_quota", "check_quota_status", "check_quota_update"]

Json = Mapping[str, Any]
Found = list[FieldError]
_REQUEST: Final = "defaultRequest"
_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_SCOPES: Final = (
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
)  # fmt: skip
_OPPOSITES: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def check_quota(obj: Json) -> Found:
    """A new quota."""
    return _check_quota_spec(obj.get("spec") or {}) + _check_amounts(obj.get("status") or {}, "status", "hard", "used")


def check_quota_update(new: Json, old: Json) -> Found:
    """A changed quota: its scopes stay."""
    spec, former = new.get("spec") or {}, old.get("spec") or {}
    found = _check_quota_spec(spec)
    if set(spec.get("scopes") or ()) != set(former.get("scopes") or ()):
        found.append(invalid("spec.scopes", spec.get("scopes"), "field is immutable"))
    return found


def check_quota_status(new: Json, _: Json) -> Found:
    """A changed status of a quota."""
    return _check_amounts(new.get("status") or {}, "status", "hard", "used")


def _check_quota_spec(spec: Json) -> Found:
    found = _check_amounts(spec, "spec", "hard")
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            found.append(invalid("spec.scopes", scopes, "unsupported scope"))
        elif any(not _fits(scope, name) for name in spec.get("hard") or ()):
            found.append(invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    for pair in _OPPOSITES:
        if pair <= set(scopes):
            found.append(invalid("spec.scopes", scopes, "conflicting scopes"))
    for requirement in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        found += _check_scope_requirement(requirement, "spec.scopeSelector.matchExpressions")
    return found


def _fits(scope: str, resource: str) -> bool:
    """Whether a scope may narrow what is counted of a resource; scopes are about pods, or about claims of volumes."""
    if resource not in _STANDARD:
        return True
    if scope == "VolumeAttributesClass":
        return resource in _OF_CLAIMS
    return resource == "pods" or (scope != "BestEffort" and resource in _OF_PODS)


_OF_PODS: Final = frozenset({
    "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "ephemeral-storage",
    "requests.ephemeral-storage", "limits.ephemeral-storage",
})  # fmt: skip
_OF_CLAIMS: Final = frozenset({"persistentvolumeclaims", "requests.storage"})
_STANDARD: Final = _OF_PODS | _OF_CLAIMS | {
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps", "services.nodeports",
    "services.loadbalancers",
}  # fmt: skip


def _check_scope_requirement(requirement: Json, path: str) -> Found:
    found: Found = []
    scope, operator = requirement.get("scopeName") or "", requirement.get("operator") or ""
    listed = requirement.get("values") or []
    if scope not in _SCOPES:
        found.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
    elif scope not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
        detail = (
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
            "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
            "ResourceQuotaScopeCrossNamespacePodAffinity"
        )
        found.append(invalid(f"{path}.operator", operator, detail))
    if operator in ("In", "NotIn"):
        if not listed:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            found.append(required(f"{path}.values", detail))
    elif operator in ("Exists", "DoesNotExist"):
        if listed:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            found.append(invalid(f"{path}.values", listed, detail))
    else:
        found.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    return found


def _check_amounts(holder: Json, path: str, *parts: str) -> Found:
    found: Found = []
    for part in parts:
        for name, value in (holder.get(part) or {}).items():
            place = f"{path}.{part}[{name}]"
            found += values.check_quota_resource(name, place)
            found += values.check_quantity(name, value, place)
    return found


def check_limit_range(obj: Json) -> Found:
    """A limit range, new or changed."""
    found: Found = []
    seen: set[str] = set()
    for index, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        kind = limit.get("type") or ""
        found += _check_type(kind, f"{path}.type")
        if kind in seen:
            found.append(duplicate(f"{path}.type", kind))
        seen.add(kind)
        found += _check_limit(limit, kind, path)
    return found


def _check_type(kind: str, path: str) -> Found:
    wrong = [invalid(path, kind, text) for text in names.label_key(kind)]
    if not wrong and "/" not in kind and kind not in _TYPES:
        return [invalid(path, kind, "must be a standard limit type or fully qualified")]
    return wrong


def _check_limit(limit: Json, kind: str, path: str) -> Found:
    check = values.check_container_resource if kind in ("Pod", "Container") else values.check_resource_name
    found: Found = []
    parts = ["max", "min"]
    for part in ("max", "min", "default", _REQUEST):
        if kind != "Pod" or part in parts:
            found += [error for name in limit.get(part) or () for error in check(name, f"{path}.{part}[{name}]")]
        elif limit.get(part):
            found.append(forbidden(f"{path}.{part}", "may not be specified when `type` is 'Pod'"))
    parts += [] if kind == "Pod" else ["default", _REQUEST]
    if kind == "PersistentVolumeClaim" and not any("storage" in (limit.get(part) or {}) for part in ("min", "max")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        found.append(required(f"{path}.limits", detail))
    part = "maxLimitRequestRatio"
    found += [error for name in limit.get(part) or () for error in check(name, f"{path}.{part}[{name}]")]
    parts.append(part)
    for name in dict.fromkeys(name for part in parts for name in limit.get(part) or ()):
        given = {part: Quantity.from_json(limit[part][name]) for part in parts if name in (limit.get(part) or {})}
        found += [invalid(f"{path}.{at}[{name}]", str(value), text) for at, value, text in _disorder(given, name)]
    return found


# First, second, the field blamed, the value shown, the words: the first must not be above the second.
_ORDER: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    ("min", _REQUEST, _REQUEST, _REQUEST, "min value {} is greater than default request value {}"),
    (_REQUEST, "max", _REQUEST, _REQUEST, "default request value {} is greater than max value {}"),
    (_REQUEST, "default", _REQUEST, _REQUEST, "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)  # fmt: skip


def _disorder(given: Mapping[str, Quantity], name: str) -> Iterator[tuple[str, Quantity, str]]:
    """What is out of order among the bounds of one resource: the field, the value shown, the words."""
    for low, high, field, shown, words in _ORDER:
        if low in given and high in given and given[low].compare(given[high]) > 0:
            yield field, given[shown], words.format(given[low], given[high])
    ratio = given.get("maxLimitRequestRatio")
    if ratio is not None:
        if ratio.milli_value() < 1000:
            yield "maxLimitRequestRatio", ratio, f"ratio {ratio} is less than 1"
        if "min" in given and "max" in given and given["min"].sign:
            limit = given["max"].milli_value() / given["min"].milli_value()
            if ratio.milli_value() / 1000 > limit:
                yield "maxLimitRequestRatio", ratio, f"ratio {ratio} is greater than max/min = {limit:f}"
    default, request = given.get("default"), given.get(_REQUEST)
    if default is not None and request is not None and not values.overcommits(name) and default.compare(request):
        yield _REQUEST, request, f"default value {default} must equal to defaultRequest value {request} in {name}"
