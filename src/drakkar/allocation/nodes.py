"""Which nodes a slice or device is for: `nodeName`, `allNodes` or a node selector.

Own implementation of core/v1 NodeSelector as upstream's scheduler reads it: terms are alternatives, an empty term
matches nothing, `matchFields` knows `metadata.name` with exactly one value. A selector that cannot be parsed is an
error of the whole scheduling attempt, so the text keeps upstream's form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from drakkar.allocation.errors import AllocationError
from drakkar.kube.names import label_key, label_value
from drakkar.kube.selectors import Requirement

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS: Final = ("In", "NotIn")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64: Final = 1 << 63


def node_selector_matches(selector: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether the node (core/v1 JSON) is selected; raises `AllocationError` if the selector cannot be parsed."""
    problem = node_selector_problem(selector)
    if problem:
        raise AllocationError(problem, reason="InvalidNodeSelector")
    metadata = node.get("metadata") or {}
    labels = metadata.get("labels") or {}
    name = metadata.get("name") or ""
    return any(_term_matches(term, labels, name) for term in selector.get("nodeSelectorTerms") or ())


def node_selector_problem(selector: Mapping[str, Any]) -> str:
    """What is wrong with a selector, in upstream's words, or an empty text."""
    problems = []
    for number, term in enumerate(selector.get("nodeSelectorTerms") or ()):
        path = f"nodeSelectorTerms[{number}]"
        for index, requirement in enumerate(term.get("matchExpressions") or ()):
            problems += _expression_problems(requirement, f"{path}.matchExpressions[{index}]")
        for index, requirement in enumerate(term.get("matchFields") or ()):
            problems += _field_problems(requirement, f"{path}.matchFields[{index}]")
    if not problems:
        return ""
    text = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
    return f"failed to parse node selector {_go_text(selector)}: {text}"


def _term_matches(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_expression_matches(requirement, labels) for requirement in expressions) and all(
        _field_matches(requirement, name) for requirement in fields
    )


def _expression_matches(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator, values = str(requirement.get("operator")), tuple(requirement.get("values") or ())
    return Requirement(str(requirement.get("key") or ""), operator, values).matches(labels)


def _field_matches(requirement: Mapping[str, Any], name: str) -> bool:
    actual = name if requirement.get("key") == "metadata.name" else ""
    return bool(actual == requirement["values"][0]) == (requirement.get("operator") == "In")


def _expression_problems(requirement: Mapping[str, Any], path: str) -> list[str]:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    key = requirement.get("key") or ""
    found = [f'{path}.key: Invalid value: "{key}": {"; ".join(names)}' for names in [label_key(key)] if names]
    shown = f"{path}.values: Invalid value: {_json_list(requirement.get('values'))}:"
    if operator not in _OPERATORS:
        supported = ", ".join(f'"{name}"' for name in _OPERATORS)
        found.append(f'{path}.operator: Unsupported value: "{operator}": supported values: {supported}')
    elif operator in ("In", "NotIn") and not values:
        found.append(f"{shown} for 'in', 'notin' operators, values set can't be empty")
    elif operator in ("Exists", "DoesNotExist") and values:
        found.append(f"{shown} values set must be empty for exists and does not exist")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(f"{shown} for 'Gt', 'Lt' operators, exactly one value is required")
        found += [
            f'{path}.values[{place}]: Invalid value: "{value}": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
            for place, value in enumerate(values)
            if _int64(value) is None
        ]
    for place, value in enumerate(values):
        complaints = label_value(value)
        if complaints:
            found.append(f'{path}.values[{place}][{key}]: Invalid value: "{value}": {"; ".join(complaints)}')
    return found


def _field_problems(requirement: Mapping[str, Any], path: str) -> list[str]:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator not in _FIELD_OPERATORS:
        supported = ", ".join(f'"{name}"' for name in _FIELD_OPERATORS)
        return [f'{path}.operator: Unsupported value: "{operator}": supported values: {supported}']
    if len(values) != 1:
        return [f"{path}.values: Invalid value: {_json_list(requirement.get('values'))}: must have one element"]
    return []


def _int64(text: str) -> int | None:
    if not isinstance(text, str) or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def _json_list(values: Sequence[str] | None) -> str:
    if values is None:
        return "null"
    return "[" + ",".join(f'"{value}"' for value in values) + "]"


def _go_text(selector: Mapping[str, Any]) -> str:
    terms = "".join(
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{"
        + _go_requirements(term.get("matchExpressions") or ())
        + "},MatchFields:[]NodeSelectorRequirement{"
        + _go_requirements(term.get("matchFields") or ())
        + "},},"
        for term in selector.get("nodeSelectorTerms") or ()
    )
    return "&NodeSelector{NodeSelectorTerms:[]NodeSelectorTerm{" + terms + "},}"


def _go_requirements(requirements: Sequence[Mapping[str, Any]]) -> str:
    return "".join(
        f"NodeSelectorRequirement{{Key:{item.get('key', '')},Operator:{item.get('operator', '')},"
        f"Values:[{' '.join(item.get('values') or ())}],}},"
        for item in requirements
    )
