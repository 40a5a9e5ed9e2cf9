"""What webhooks and admission policies share: rules about requests, what they select, conditions in CEL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, invalid, not_supported, required, too_many
from drakkar.cel import CelError, types
from drakkar.cluster.machinery.expressions import Declared, compiled
from drakkar.cluster.machinery.validation import values
from drakkar.kube import names

__all__ = ["FAILURE_POLICIES", "MATCH_POLICIES", "check_conditions", "check_match_resources", "check_rule"]

Json = Mapping[str, Any]
Found = list[FieldError]
FAILURE_POLICIES: Final = ("Fail", "Ignore")
MATCH_POLICIES: Final = ("Equivalent", "Exact")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_MOST_CONDITIONS: Final = 64
_ALONE: Final = "if '*' is present, must not specify other"


def check_rule(rule: Json, path: str) -> Found:
    """Operations, groups, versions, resources and scope of a rule."""
    operations = rule.get("operations") or []
    found = [] if operations else [required(f"{path}.operations")]
    if len(operations) > 1 and "*" in operations:
        found.append(invalid(f"{path}.operations", operations, f"{_ALONE} operations"))
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            found.append(not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    for name, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        entries = rule.get(name) or []
        if not entries:
            found.append(required(f"{path}.{name}"))
        if len(entries) > 1 and "*" in entries:
            found.append(invalid(f"{path}.{name}", entries, f"{_ALONE} {words}"))
        if name == "apiVersions":
            found += [required(f"{path}.{name}[{index}]") for index, version in enumerate(entries) if not version]
    found += _resources(rule.get("resources") or [], f"{path}.resources")
    if rule.get("scope") is not None and rule["scope"] not in _SCOPES:
        found.append(not_supported(f"{path}.scope", rule["scope"], _SCOPES))
    return found


def _resources(resources: list[str], path: str) -> Found:
    found = [] if resources else [required(path)]
    all_parts: set[str] = set()
    all_owners: set[str] = set()
    plain = False
    for index, text in enumerate(resources):
        place = f"{path}[{index}]"
        if not text:
            found.append(required(place))
            continue
        owner, slash, part = text.partition("/")
        if not slash:
            plain = text != "*"  # the last one decides, as upstream
            continue
        if owner in all_parts:
            found.append(invalid(place, text, f"if '{owner}/*' is present, must not specify {text}"))
        if part in all_owners:
            found.append(invalid(place, text, f"if '*/{part}' is present, must not specify {text}"))
        if part == "*":
            all_parts.add(owner)
        if owner == "*":
            all_owners.add(part)
    if len(resources) > 1 and "*/*" in resources:
        found.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and plain:
        found.append(invalid(path, resources, f"{_ALONE} resources without subresources"))
    return found


def check_match_resources(resources: Json | None, path: str) -> Found:
    """What a policy or its binding is about."""
    if resources is None:
        return []
    found: Found = []
    policy = resources.get("matchPolicy")
    if policy not in MATCH_POLICIES:
        found.append(not_supported(f"{path}.matchPolicy", policy or "", MATCH_POLICIES))
    for name in ("namespaceSelector", "objectSelector"):
        found += values.check_label_selector(resources.get(name), f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(resources.get(name) or ()):
            found += _named_rule(rule, f"{path}.{name}[{index}]")
    return found


def _named_rule(rule: Json, path: str) -> Found:
    found: Found = []
    wanted = rule.get("resourceNames") or []
    for index, name in enumerate(wanted):
        place = f"{path}.resourceNames[{index}]"
        found += [invalid(place, name, text) for text in names.path_segment(name)]
        if name in wanted[:index]:
            found.append(duplicate(place, name))
    return found + check_rule(rule, path)


def check_conditions(conditions: Sequence[Json], path: str, *, params: bool = False) -> Found:
    """Match conditions: names of their own, expressions that compile."""
    found: Found = []
    if len(conditions) > _MOST_CONDITIONS:
        found.append(too_many(path, len(conditions), _MOST_CONDITIONS))
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        place = f"{path}[{index}]"
        text, name = (condition.get("expression") or "").strip(), condition.get("name") or ""
        if not text:
            found.append(required(f"{place}.expression"))
        else:
            program = compiled(text, Declared(params=params, authorizer=True), (types.BOOL,))
            if isinstance(program, CelError):
                found.append(invalid(f"{place}.expression", text, str(program)))
        if not name:
            found.append(required(f"{place}.name"))
            continue
        found += [invalid(f"{place}.name", name, complaint) for complaint in names.label_key(name)]
        if name in seen:
            found.append(duplicate(f"{place}.name", name))
        seen.add(name)
    return found
