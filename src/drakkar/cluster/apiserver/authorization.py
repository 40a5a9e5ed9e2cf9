"""Who may: roles and bindings (RBAC) behind the node authoriser, as ``--authorization-mode=Node,RBAC``.

Decisions read the stored Role and ClusterRole objects themselves, so a change counts with the next request. The rules
that apply to a user are collected once and kept until one of the four RBAC collections changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from drakkar.cluster.apiserver import statuses
from drakkar.cluster.apiserver.identities import MASTERS, SERVICE_ACCOUNT_PREFIX, User
from drakkar.cluster.apiserver.node_authorization import NodeAuthorizer
from drakkar.cluster.store import Store, StoredObject

GROUP: Final = "rbac.authorization.k8s.io"
_COLLECTIONS: Final = tuple(
    f"{plural}.{GROUP}" for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
)


class Attributes(msgspec.Struct, frozen=True):
    """One question. `path` alone for non-resource requests; `field_selector` serves the node authoriser."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: str = ""


class Decision(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


class Grant(msgspec.Struct, frozen=True):
    """A rule that applies to a user, where (``""``: everywhere), and by which binding."""

    rule: dict[str, Any]
    namespace: str
    source: str


class Authorizer:
    """Answers whether a user may do something."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nodes = NodeAuthorizer(store)
        self._grants: dict[tuple[str, tuple[str, ...]], tuple[list[Grant], list[tuple[str, str]]]] = {}
        self._decisions: dict[tuple[str, tuple[str, ...], Attributes], Decision] = {}
        self._seen = (-1, -1, -1, -1)

    def decide(self, user: User, asked: Attributes) -> Decision:
        """The first authoriser that allows wins; otherwise the reasons of all of them are joined."""
        if MASTERS in user.groups:
            return Decision(True)
        reasons = []
        if user.name.startswith("system:node:") and "system:nodes" in user.groups:
            allowed, reason = self._nodes.decide(user.name.removeprefix("system:node:"), asked)
            if allowed:
                return Decision(True)
            if reason:
                reasons.append(f"node: {reason}")
        decision = self._by_roles(user, asked)
        if decision.allowed:
            return decision
        if decision.reason:
            reasons.append(f"rbac: {decision.reason}")
        return Decision(False, ", ".join(reasons))

    def require(self, user: User, asked: Attributes) -> None:
        """Raises `StatusError` 403 in Kubernetes' words."""
        decision = self.decide(user, asked)
        if not decision.allowed:
            raise refusal(user, asked, decision.reason)

    def grants(self, user: User) -> tuple[list[Grant], list[tuple[str, str]]]:
        """All rules for a user, and the roles that bindings name but that do not exist, as (namespace, text)."""
        self._refresh()
        key = (user.name, user.groups)
        found = self._grants.get(key)
        if found is None:
            if len(self._grants) > 1000:
                self._grants.clear()
            found = self._grants[key] = self._collect(user)
        return found

    def _refresh(self) -> None:
        now = tuple(self._store.collection(name).last_change for name in _COLLECTIONS)
        if now != self._seen:
            self._seen = now  # type: ignore[assignment]
            self._grants.clear()
            self._decisions.clear()

    def _by_roles(self, user: User, asked: Attributes) -> Decision:
        grants, missing = self.grants(user)
        key = (user.name, user.groups, asked)
        known = self._decisions.get(key)
        if known is not None:
            return known
        decision = next(
            (
                Decision(True, f"RBAC: allowed by {grant.source}")
                for grant in grants
                if (not grant.namespace or grant.namespace == asked.namespace) and rule_allows(grant.rule, asked)
            ),
            None,
        )
        if decision is None:
            absent = [text for namespace, text in missing if not namespace or namespace == asked.namespace]
            decision = Decision(
                False, f"RBAC: {absent[0]}" if len(absent) == 1 else f"RBAC: [{', '.join(absent)}]" if absent else ""
            )
        if len(self._decisions) > 10_000:
            self._decisions.clear()
        self._decisions[key] = decision
        return decision

    def _collect(self, user: User) -> tuple[list[Grant], list[tuple[str, str]]]:
        grants: list[Grant] = []
        missing: list[tuple[str, str]] = []
        for stored, namespace in self._bindings():
            binding = stored.value
            if not any(_is_subject(subject, namespace, user) for subject in binding.get("subjects") or ()):
                continue
            reference = binding["roleRef"]
            role = self._role(reference, namespace)
            if role is None:
                plural = f"{reference['kind'].lower()}.{GROUP}"
                missing.append((namespace, f'{plural} "{reference["name"]}" not found'))
                continue
            kind = "RoleBinding" if namespace else "ClusterRoleBinding"
            shown = f"{binding['metadata']['name']}/{namespace}" if namespace else binding["metadata"]["name"]
            subject = _shown_subject(binding, namespace, user)
            source = f'{kind} "{shown}" of {reference["kind"]} "{reference["name"]}" to {subject}'
            grants += [Grant(rule, namespace, source) for rule in self.rules_of(role)]
        return grants, missing

    def _bindings(self) -> Iterator[tuple[StoredObject, str]]:
        for stored in self._store.collection(_COLLECTIONS[1]).objects():
            yield stored, ""
        for stored in self._store.collection(_COLLECTIONS[3]).objects():
            yield stored, stored.value["metadata"]["namespace"]

    def _role(self, reference: dict[str, Any], namespace: str) -> dict[str, Any] | None:
        if reference["kind"] == "ClusterRole":
            found = self._store.collection(_COLLECTIONS[0]).get(reference["name"])
        else:
            found = self._store.collection(_COLLECTIONS[2]).get(f"{namespace}/{reference['name']}")
        return found.value if found is not None else None

    def rules_of(self, role: dict[str, Any]) -> list[dict[str, Any]]:
        """A role's rules; those of an aggregated ClusterRole are gathered by its selectors."""
        rules = list(role.get("rules") or ())
        aggregation = role.get("aggregationRule")
        if aggregation:
            from drakkar.kube.selectors import LabelSelector

            selectors = [LabelSelector.from_object(one) for one in aggregation.get("clusterRoleSelectors") or ()]
            for stored in self._store.collection(_COLLECTIONS[0]).objects():
                if stored.value["metadata"]["name"] == role["metadata"]["name"]:
                    continue
                if any(selector.matches(stored.labels) for selector in selectors):
                    rules += [rule for rule in stored.value.get("rules") or () if rule not in rules]
        return rules


def refusal(user: User, asked: Attributes, reason: str) -> statuses.StatusError:
    """The 403 for a question that was answered with no."""
    if asked.path:
        return statuses.forbidden_path(user.name, asked.verb, asked.path, reason)
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}'
    return statuses.forbidden(asked.group, asked.resource, asked.name, f"{why}: {reason}" if reason else why)


def rule_allows(rule: dict[str, Any], asked: Attributes) -> bool:
    """`rbac.RuleAllows` of the RBAC evaluation helpers."""
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and asked.verb not in verbs:
        return False
    if asked.path:
        return any(
            url in ("*", asked.path) or (url.endswith("*") and asked.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or ()
        )
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and asked.group not in groups:
        return False
    combined = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    resources = rule.get("resources") or ()
    if not ("*" in resources or combined in resources or (asked.subresource and f"*/{asked.subresource}" in resources)):
        return False
    names = rule.get("resourceNames") or ()
    return not names or asked.name in names


def _is_subject(subject: dict[str, Any], namespace: str, user: User) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    if kind == "ServiceAccount":
        home = subject.get("namespace") or namespace
        return bool(home) and user.name == f"{SERVICE_ACCOUNT_PREFIX}{home}:{name}"
    return False


def _shown_subject(binding: dict[str, Any], namespace: str, user: User) -> str:
    for subject in binding.get("subjects") or ():
        if _is_subject(subject, namespace, user):
            if subject["kind"] == "ServiceAccount":
                return f'ServiceAccount "{subject["name"]}/{subject.get("namespace") or namespace}"'
            return f'{subject["kind"]} "{subject["name"]}"'
    return ""
