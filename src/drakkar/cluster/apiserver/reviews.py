"""Questions that are asked by creating an object which is answered and never stored: who am I, may I, whose token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from drakkar.cluster.apiserver import answers
from drakkar.cluster.apiserver.authorization import Attributes, Decision
from drakkar.cluster.apiserver.bodies import object_body
from drakkar.cluster.apiserver.calls import Answer, Call
from drakkar.cluster.apiserver.identities import User
from drakkar.cluster.apiserver.options import check_write

Value = dict[str, Any]


async def create(call: Call) -> Answer:
    """Answer any review."""
    check_write(call, "CreateOptions")
    review = object_body(call)
    review["metadata"] = {**(review.get("metadata") or {})}
    if call.row.kind == "SelfSubjectReview":
        review["metadata"]["creationTimestamp"] = call.timestamp
    review["status"] = _ANSWERS[call.row.kind](call, review.get("spec") or {})
    return answers.value(call, review, 201)


def _who_am_i(call: Call, spec: Value) -> Value:
    del spec
    return {"userInfo": call.user.info()}


def _token(call: Call, spec: Value) -> Value:
    token = spec.get("token", "")
    user = call.server.tokens.user(token, call.now.timestamp()) if token else None
    if user is None:
        return {"user": {}, "error": "[invalid bearer token, Token has been invalidated]"} if token else {"user": {}}
    wanted, known = spec.get("audiences") or [], call.server.tokens.audiences(token)
    shared = [audience for audience in wanted if audience in known] if wanted else known
    if not shared:
        return {"user": {}, "error": f"[token audiences {known} is invalid for the target audiences {wanted}]"}
    return {"authenticated": True, "user": user.info(), "audiences": shared}


def _subject_access(call: Call, spec: Value) -> Value:
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)
    return _decided(call.server.authorizer.decide(user, _attributes(spec)))


def _self_access(call: Call, spec: Value) -> Value:
    return _decided(call.server.authorizer.decide(call.user, _attributes(spec)))


def _decided(decision: Decision) -> Value:
    answer: Value = {"allowed": decision.allowed}
    if decision.reason:
        answer["reason"] = decision.reason
    return answer


def _attributes(spec: Value) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path:
        return Attributes(path.get("verb", ""), path=path.get("path", ""))
    resource = spec.get("resourceAttributes") or {}
    selector = (resource.get("fieldSelector") or {}).get("rawSelector", "")
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Attributes(**{name: resource.get(name, "") for name in names}, field_selector=selector)


def _rules(call: Call, spec: Value) -> Value:
    namespace = spec.get("namespace", "")
    resources: list[Value] = []
    paths: list[Value] = []
    grants, missing = call.server.authorizer.grants(call.user)
    for grant in grants:
        if grant.namespace and grant.namespace != namespace:
            continue
        rule = grant.rule
        if rule.get("nonResourceURLs"):
            paths.append({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]})
        if rule.get("resources"):
            kept = ("verbs", "apiGroups", "resources", "resourceNames")
            resources.append({name: rule[name] for name in kept if rule.get(name)})
    answer: Value = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": bool(missing)}
    if missing:
        answer["evaluationError"] = ", ".join(text for _, text in missing)
    return answer


_ANSWERS: Final[dict[str, Callable[[Call, Value], Value]]] = {
    "SelfSubjectReview": _who_am_i,
    "TokenReview": _token,
    "SubjectAccessReview": _subject_access,
    "LocalSubjectAccessReview": _subject_access,
    "SelfSubjectAccessReview": _self_access,
    "SelfSubjectRulesReview": _rules,
}
