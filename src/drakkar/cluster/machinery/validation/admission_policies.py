"""What is wrong with ValidatingAdmissionPolicies and their bindings (KEP-3488).

Texts and their order are those of `pkg/apis/admissionregistration/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.api import metadata
from drakkar.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from drakkar.cel import CelError, Program, types
from drakkar.cel.parser import RESERVED
from drakkar.cluster.machinery.expressions import Compiler
from drakkar.cluster.machinery.validation import values
from drakkar.cluster.machinery.validation.admission_rules import (
    FAILURE_POLICIES,
    check_conditions,
    check_match_resources,
)
from drakkar.kube import names

__all__ = ["CREATE", "UPDATE"]

Json = Mapping[str, Any]
Found = list[FieldError]
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_MOST_ANNOTATIONS: Final = 20
_LONGEST_VALUE: Final = 5 * 1024
_IDENTIFIER: Final = re.compile("[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
_BREAKS: Final = re.compile("[\n\r]")


def _policy(obj: Json, old: Json | None = None) -> Found:
    spec = obj.get("spec") or {}
    compiler = Compiler(spec)
    found = _check_failure_policy(spec)
    found += _check_param_kind(spec)
    found += _check_constraints(spec)
    before = (old or {}).get("spec") or {}
    same = old is not None and all(spec.get(part) == before.get(part) for part in ("paramKind", "matchConditions"))
    if not same:
        found += check_conditions(
            spec.get("matchConditions") or (), "spec.matchConditions", params=spec.get("paramKind") is not None
        )
    found += _check_variables(spec, compiler)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        text = "validations or auditAnnotations must contain at least one item"
        return [*found, required("spec.validations", text), required("spec.auditAnnotations", text)]
    for index, validation in enumerate(validations):
        found += _validation(validation, f"spec.validations[{index}]", compiler)
    return found + _annotations(obj, annotations, compiler)


def _check_failure_policy(spec: Json) -> Found:
    """Fail or Ignore."""
    policy = spec.get("failurePolicy")
    if policy is None:
        return [required("spec.failurePolicy")]
    return [] if policy in FAILURE_POLICIES else [not_supported("spec.failurePolicy", policy, FAILURE_POLICIES)]


def _check_constraints(spec: Json) -> Found:
    """What a policy is about: at least one rule."""
    constraints = spec.get("matchConstraints")
    if constraints is None:
        return [required("spec.matchConstraints")]
    found = check_match_resources(constraints, "spec.matchConstraints")
    if not constraints.get("resourceRules"):
        found.append(required("spec.matchConstraints.resourceRules"))
    return found


def _check_param_kind(spec: Json) -> Found:
    """The kind of parameters, if there are any."""
    kind, path = spec.get("paramKind"), "spec.paramKind"
    if kind is None:
        return []
    found: Found = []
    api_version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    place = f"{path}.apiVersion"
    group, _, version = api_version.rpartition("/")
    if not api_version:
        found.append(required(place))
    elif api_version.count("/") > 1:
        found.append(invalid(place, api_version, f"unexpected GroupVersion string: {api_version}"))
    else:
        if group:
            found += [invalid(place, group, ",".join(c)) for c in [names.dns_subdomain(group)] if c]
        if not version:
            found.append(invalid(place, api_version, "version must be specified"))
        else:
            found += [invalid(place, version, ",".join(c)) for c in [names.dns_1035_label(version)] if c]
    if not name:
        found.append(required(f"{path}.kind"))
    else:
        complaints = names.dns_1035_label(name.lower())
        if complaints:
            detail = f"may have mixed case, but should otherwise match: {','.join(complaints)}"
            found.append(invalid(f"{path}.kind", name, detail))
    return found


def _check_variables(spec: Json, compiler: Compiler) -> Found:
    """Variables: names that CEL takes, expressions that compile."""
    found: Found = []
    for index, variable in enumerate(spec.get("variables") or ()):
        path = f"spec.variables[{index}]"
        name, text = variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            found.append(required(f"{path}.name", "name is not specified"))
        elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
            found.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
        if not text.strip():
            found.append(required(f"{path}.expression", "expression is not specified"))
        else:
            found += _faults(compiler.variable(name, text), f"{path}.expression", text)
    return found


def _faults(program: Program | CelError, path: str, text: str) -> Found:
    return [invalid(path, text, str(program))] if isinstance(program, CelError) else []


def _validation(validation: Json, path: str, compiler: Compiler) -> Found:
    text, message = validation.get("expression") or "", validation.get("message") or ""
    message_text = validation.get("messageExpression") or ""
    found: Found = []
    if not text.strip():
        found.append(required(f"{path}.expression", "expression is not specified"))
    else:
        found += _faults(compiler.compiled(text, types.BOOL), f"{path}.expression", text)
    if message_text and not message_text.strip():
        found.append(invalid(f"{path}.messageExpression", message_text, "must be non-empty if specified"))
    elif message_text:
        program = compiler.compiled(message_text, types.STRING, authorizer=False)
        found += _faults(program, f"{path}.messageExpression", message_text)
    if message and not message.strip():
        found.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif _BREAKS.search(message.strip()):
        found.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        found.append(not_supported(f"{path}.reason", reason, _REASONS))
    return found


def _annotations(obj: Json, annotations: Any, compiler: Compiler) -> Found:
    found: Found = []
    path = "spec.auditAnnotations"
    if len(annotations) > _MOST_ANNOTATIONS:
        found.append(invalid(path, annotations, f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"))
    name = (obj.get("metadata") or {}).get("name") or ""
    keys: set[str] = set()
    for index, annotation in enumerate(annotations):
        place = f"{path}[{index}]"
        key, text = annotation.get("key") or "", annotation.get("valueExpression") or ""
        if name:
            found += [invalid(f"{place}.key", f"{name}/{key}", told) for told in names.label_key(f"{name}/{key}")]
        else:
            found.append(invalid(f"{place}.key", key, "requires metadata.name be non-empty"))
        trimmed = text.strip()
        if not trimmed:
            found.append(required(f"{place}.valueExpression", "valueExpression is not specified"))
        elif len(trimmed.encode()) > _LONGEST_VALUE:
            found.append(required(f"{place}.valueExpression", f"must not exceed {_LONGEST_VALUE} bytes in length"))
        else:
            program = compiler.compiled(trimmed, types.STRING, types.NULL)
            found += _faults(program, f"{place}.valueExpression", text)
        if key in keys:
            found.append(duplicate(f"{place}.key", key))
        keys.add(key)
    return found


def _binding(obj: Json) -> Found:
    spec = obj.get("spec") or {}
    found = _check_policy_name(spec)
    found += _check_param_ref(spec)
    found += check_match_resources(spec.get("matchResources"), "spec.matchResources")
    path, actions = "spec.validationActions", spec.get("validationActions") or []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            found.append(not_supported(f"{path}[{index}]", action, _ACTIONS))
        if action in actions[:index]:
            found.append(duplicate(f"{path}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response"
            " and headers serves no purpose)"
        )
        found.append(invalid(path, actions, detail))
    if not actions:
        found.append(required(path))
    return found


def _check_policy_name(spec: Json) -> Found:
    """The policy that a binding is for."""
    name = spec.get("policyName") or ""
    if not name:
        return [required("spec.policyName")]
    return [invalid("spec.policyName", name, text) for text in names.dns_subdomain(name)]


def _check_param_ref(spec: Json) -> Found:
    """The parameters that a binding chooses: by name or by labels."""
    reference, path = spec.get("paramRef"), "spec.paramRef"
    if reference is None:
        return []
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    found: Found = []
    if name:
        found += [invalid(f"{path}.name", name, text) for text in names.path_segment(name)]
        if selector is not None:
            found.append(forbidden(f"{path}.name", both))
    if selector is not None:
        found += values.check_label_selector(selector, f"{path}.selector")
        if name:
            found.append(forbidden(f"{path}.selector", both))
    if not name and selector is None:
        found.append(required(path, "one of name or selector must be specified"))
    action = reference.get("parameterNotFoundAction")
    if not action:
        found.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Deny", "Allow"):
        found.append(not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))
    return found


def _status(obj: Json) -> Found:
    """What a type checker writes."""
    status = obj.get("status") or {}
    found: Found = []
    for index, warning in enumerate((status.get("typeChecking") or {}).get("expressionWarnings") or ()):
        path = f"status.typeChecking.expressionWarnings[{index}]"
        found += [
            required(f"{path}.{name}") for name in ("warning", "fieldRef") if not (warning.get(name) or "").strip()
        ]
    return found + metadata.check_conditions(status.get("conditions") or (), "status.conditions")


CREATE: Final[dict[str, Callable[[Json], Found]]] = {
    "ValidatingAdmissionPolicy": _policy,
    "ValidatingAdmissionPolicyBinding": _binding,
}
UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("ValidatingAdmissionPolicy", ""): _policy,
    ("ValidatingAdmissionPolicy", "status"): lambda new, _: _status(new),
    ("ValidatingAdmissionPolicyBinding", ""): lambda new, _: _binding(new),
}
