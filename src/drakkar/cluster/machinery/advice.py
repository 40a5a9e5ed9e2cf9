"""Warnings about objects that are accepted but probably not what somebody wants, as Kubernetes words them."""

from __future__ import annotations

from typing import Any, Final

from drakkar.kube.names import dns_label

__all__ = ["UNASKED", "warnings"]

Json = dict[str, Any]
_TEMPLATES: Final = {
    "DaemonSet",
    "Deployment",
    "Job",
    "ReplicaSet",
    "StatefulSet",
    "ReplicationController",
    "PodTemplate",
}


def warnings(group: str, kind: str, new: Json, old: Json | None = None) -> list[str]:
    """Texts for Warning headers; a spec that did not change is not looked at again."""
    named = _name(group, kind, new) if old is None else []
    if kind == "Pod":
        unchanged = old is not None and old.get("spec") == new.get("spec")
        return [] if unchanged else named + _pod(new.get("spec") or {}, "spec")
    if kind in _TEMPLATES:
        template = _template(kind, new)
        if old is not None and _template(kind, old) == template:
            return []
        path = "template.spec" if kind == "PodTemplate" else "spec.template.spec"
        return named + _pod(template.get("spec") or {}, path)
    if kind == "CronJob":
        return named
    if kind.endswith("WebhookConfiguration") and group == "admissionregistration.k8s.io":
        return _rules_without_effect(new)
    return []


_POD_NAMES: Final = "Pod names and hostnames"
_HOSTNAMES: Final = {
    ("", "Pod"): "the Pod's hostname",
    ("", "ReplicationController"): _POD_NAMES,
    ("apps", "Deployment"): _POD_NAMES,
    ("apps", "ReplicaSet"): _POD_NAMES,
    ("batch", "Job"): _POD_NAMES,
    ("batch", "CronJob"): _POD_NAMES,
}
"""Whose names become hostnames of pods."""


def _name(group: str, kind: str, obj: Json) -> list[str]:
    used = _HOSTNAMES.get((group, kind))
    complaints = dns_label((obj.get("metadata") or {}).get("name") or "") if used else []
    if not complaints:
        return []
    told = "which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: this is used in {used}, {told}: [{' '.join(complaints)}]"]


UNASKED: Final = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    }
)
"""Groups and resources that no webhook and no policy is asked about: a cluster could lock itself out."""


def _rules_without_effect(configuration: Json) -> list[str]:
    found: list[str] = []
    for index, hook in enumerate(configuration.get("webhooks") or ()):
        for number, rule in enumerate(hook.get("rules") or ()):
            groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
            if "*" in groups or "*" in resources:
                continue
            named = dict.fromkeys(
                f"{resource}.{group}" for group in groups for resource in resources if (group, resource) in UNASKED
            )
            place = f"webhooks[{index}].rules[{number}]"
            words = "is excluded from admission webhooks; this rule will have no effect"
            found += [f"{place}: {name} {words}" for name in named]
    return found


def _template(kind: str, obj: Json) -> Json:
    holder = obj if kind == "PodTemplate" else obj.get("spec") or {}
    return holder.get("template") or {}


def _pod(spec: Json, path: str) -> list[str]:
    found: list[str] = []
    for name in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(name) or ()):
            place = f"{path}.{name}[{index}]"
            found += _duplicates(container.get("env") or (), f"{place}.env")
            found += _ports(container.get("ports") or (), f"{place}.ports")
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        found.append(
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        )
    for index, alias in enumerate(spec.get("imagePullSecrets") or ()):
        if not alias.get("name"):
            found.append(f'{path}.imagePullSecrets[{index}].name: invalid empty name ""')
    return found


def _duplicates(variables: Any, path: str) -> list[str]:
    found: list[str] = []
    first: dict[str, int] = {}
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if name in first:
            found.append(
                f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
            )
        first[name] = index
    return found


def _ports(ports: Any, path: str) -> list[str]:
    found: list[str] = []
    seen: dict[tuple[Any, ...], int] = {}
    for index, port in enumerate(ports):
        key = (port.get("containerPort"), port.get("protocol") or "TCP", port.get("hostPort"), port.get("hostIP"))
        if key in seen:
            found.append(f"{path}[{index}]: duplicate port definition with {path}[{seen[key]}]")
        else:
            seen[key] = index
    return found
