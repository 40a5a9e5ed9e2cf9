"""What is wrong with webhook configurations, and with the rules that policies share with them.

Texts and their order are those of `pkg/apis/admissionregistration/validation`. Expressions are compiled here: a
condition that cannot be evaluated is refused when it is written, not when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from drakkar.api.fields import FieldError, duplicate, invalid, not_supported, required
from drakkar.cluster.machinery.validation import admission_policies, values, webhook_clients
from drakkar.cluster.machinery.validation.admission_rules import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    check_conditions,
    check_rule,
)
from drakkar.kube import names

__all__ = ["CREATE", "UPDATE"]

Json = Mapping[str, Any]
Found = list[FieldError]
STATIC_SUFFIX: Final = ".static.k8s.io"
_NO_EFFECTS: Final = ("None", "NoneOnDryRun")
_EFFECTS: Final = ("None", "NoneOnDryRun", "Some", "Unknown")
_CHOICES: Final = (("failurePolicy", FAILURE_POLICIES), ("matchPolicy", MATCH_POLICIES))
_MOST_SEGMENTS: Final = 3


def _created(obj: Json) -> Found:
    found = _configuration(obj, None)
    name = (obj.get("metadata") or {}).get("name") or ""
    if name.endswith(STATIC_SUFFIX):
        detail = (
            f'names ending with "{STATIC_SUFFIX}" are reserved for static manifest-based configurations and cannot be'
            " managed via the API"
        )
        found.append(invalid("metadata.name", name, detail))
    return found


def _configuration(obj: Json, old: Json | None) -> Found:
    """Webhooks of either kind. What was wrong already in `old` may stay."""
    hooks, before = obj.get("webhooks") or (), (old or {}).get("webhooks") or ()
    effects = _NO_EFFECTS if all(one.get("sideEffects") in _NO_EFFECTS for one in before) else _EFFECTS
    listed = [one.get("admissionReviewVersions") for one in before]
    recognised = all(webhook_clients.is_recognised(versions) for versions in listed if versions)
    unique = len({one.get("name") for one in before}) == len(before)
    conditions = old is None or [one.get("matchConditions") for one in hooks] != [
        one.get("matchConditions") for one in before
    ]
    seen: set[str] = set()
    found: Found = []
    for index, hook in enumerate(hooks):
        path = f"webhooks[{index}]"
        found += _webhook(hook, path, effects, conditions=conditions)
        found += _review_versions(hook, f"{path}.admissionReviewVersions", recognised=recognised)
        name = hook.get("name") or ""
        if unique and name:
            if name in seen:
                found.append(duplicate(f"{path}.name", name))
            seen.add(name)
    return found


def _webhook(hook: Json, path: str, effects: Sequence[str], *, conditions: bool) -> Found:
    found = _qualified_name(hook.get("name") or "", f"{path}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        found += check_rule(rule, f"{path}.rules[{index}]")
    for name, allowed in _CHOICES:
        if hook.get(name) is not None and hook[name] not in allowed:
            found.append(not_supported(f"{path}.{name}", hook[name], allowed))
    effect = hook.get("sideEffects")
    if effect is None:
        found.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(effects)}"))
    elif effect not in effects:
        found.append(not_supported(f"{path}.sideEffects", effect, effects))
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        found.append(invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds"))
    for name in ("namespaceSelector", "objectSelector"):
        found += values.check_label_selector(hook.get(name), f"{path}.{name}")
    policy = hook.get("reinvocationPolicy")
    if policy is not None and policy not in ("IfNeeded", "Never"):
        found.append(not_supported(f"{path}.reinvocationPolicy", policy, ("IfNeeded", "Never")))
    found += webhook_clients.check_client(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    if conditions:
        found += check_conditions(hook.get("matchConditions") or (), f"{path}.matchConditions")
    return found


def _qualified_name(name: str, path: str) -> Found:
    if not name:
        return [required(path)]
    complaints = names.dns_subdomain(name)
    if complaints:
        return [invalid(path, name, ",".join(complaints))]
    if name.count(".") < _MOST_SEGMENTS - 1:
        return [invalid(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def _review_versions(hook: Json, path: str, *, recognised: bool) -> Found:
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        return [required(path, f"must specify one of {', '.join(webhook_clients.REVIEW_VERSIONS)}")]
    return webhook_clients.check_review_versions(versions, path, recognised=recognised)


CREATE: Final[dict[str, Callable[[Json], Found]]] = {
    "MutatingWebhookConfiguration": _created,
    "ValidatingWebhookConfiguration": _created,
    **admission_policies.CREATE,
}
UPDATE: Final[dict[tuple[str, str], Callable[[Json, Json], Found]]] = {
    ("MutatingWebhookConfiguration", ""): _configuration,
    ("ValidatingWebhookConfiguration", ""): _configuration,
    **admission_policies.UPDATE,
}
