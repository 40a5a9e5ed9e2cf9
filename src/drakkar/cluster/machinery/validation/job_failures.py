"""What is wrong with a job's policy about failed pods (KEP-3329)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, invalid, not_supported, required, too_many
from drakkar.kube import names

__all__ = ["check_failure_policy"]

Json = Mapping[str, Any]
Found = list[FieldError]
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS: Final = ("In", "NotIn")
_STATUSES: Final = ("False", "True", "Unknown")
_MOST_RULES: Final = 20
_MOST_CODES: Final = 255


def check_failure_policy(spec: Json, path: str) -> Found:
    """The rules of `spec.podFailurePolicy` of a job."""
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {one.get("name") for kind in ("containers", "initContainers") for one in pod.get(kind) or ()}
    by_index = spec.get("backoffLimitPerIndex") is not None
    found: Found = []
    if len(rules) > _MOST_RULES:
        found.append(too_many(f"{path}.rules", len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        found += _rule(rule, f"{path}.rules[{index}]", containers, by_index=by_index)
    return found


def _rule(rule: Json, path: str, containers: Collection[Any], *, by_index: bool) -> Found:
    action, codes, conditions = rule.get("action") or "", rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    found: Found = []
    if not action:
        found.append(required(f"{path}.action", f"valid values: {_listed(_ACTIONS)}"))
    elif action == "FailIndex":
        if not by_index:
            found.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    elif action not in _ACTIONS:
        found.append(not_supported(f"{path}.action", action, _ACTIONS))
    if codes is not None:
        found += _exit_codes(codes, f"{path}.onExitCodes", containers)
    found += _conditions(conditions, f"{path}.onPodConditions")
    if codes is not None and conditions:
        found.append(_about_rule(path, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not conditions:
        found.append(_about_rule(path, "specifying one of OnExitCodes and OnPodConditions is required"))
    return found


def _about_rule(path: str, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", path, detail, omitted=True)


def _exit_codes(codes: Json, path: str, containers: Collection[Any]) -> Found:
    operator, numbers, name = codes.get("operator") or "", codes.get("values") or [], codes.get("containerName")
    found: Found = []
    if not operator:
        found.append(required(f"{path}.operator", f"valid values: {_listed(_OPERATORS)}"))
    elif operator not in _OPERATORS:
        found.append(not_supported(f"{path}.operator", operator, _OPERATORS))
    if name is not None and name not in containers:
        told = "must be one of the container or initContainer names in the pod template"
        found.append(invalid(f"{path}.containerName", name, told))
    if not numbers:
        found.append(invalid(f"{path}.values", numbers, "at least one value is required"))
    elif len(numbers) > _MOST_CODES:
        found.append(too_many(f"{path}.values", len(numbers), _MOST_CODES))
    for index, code in enumerate(numbers):
        if operator == "In" and code == 0:
            found.append(invalid(f"{path}.values[{index}]", code, "must not be 0 for the In operator"))
        if code in numbers[:index]:
            found.append(duplicate(f"{path}.values[{index}]", code))
    if list(numbers) != sorted(numbers):
        found.append(invalid(f"{path}.values", numbers, "must be ordered"))
    return found


def _conditions(conditions: Any, path: str) -> Found:
    found: Found = []
    if len(conditions) > _MOST_RULES:
        found.append(too_many(path, len(conditions), _MOST_RULES))
    for index, pattern in enumerate(conditions):
        place, kind, status = f"{path}[{index}]", pattern.get("type") or "", pattern.get("status") or ""
        found += [invalid(f"{place}.type", kind, text) for text in names.label_key(kind)]
        if not status:
            found.append(required(f"{place}.status", f"valid values: {_listed(_STATUSES)}"))
        elif status not in _STATUSES:
            found.append(not_supported(f"{place}.status", status, _STATUSES))
    return found


def _listed(values: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{value}"' for value in values) + "]"
