"""ValidatingAdmissionPolicy: what matches, what is denied and in which words, parameters, variables, failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drakkar.kube.transport import ApiResponse
from tests.cluster.apiserver.world import CONFIGS, World, config

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}


def policy(*validations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    constraints = spec.pop("matchConstraints", {"resourceRules": [RULE]})
    return {
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": constraints, "validations": list(validations), **spec},
    }


async def bound(world: World, *validations: dict[str, Any], binding: dict[str, Any] | None = None, **spec: Any) -> None:
    await world.made(POLICIES, policy(*validations, **spec))
    about = {"policyName": "p", "validationActions": ["Deny"], **(binding or {})}
    await world.made(BINDINGS, {"metadata": {"name": "b"}, "spec": about})


def run(work: Any) -> None:
    asyncio.run(work())


def said(answer: ApiResponse) -> str:
    return str(answer.body.get("message", ""))


def test_a_denial_in_kubernetes_words() -> None:
    async def main() -> None:
        world = World()
        await bound(world, {"expression": "has(object.data) && size(object.data) <= 1"})
        assert (await world.post(CONFIGS, config("ok", a="1"))).status == 201
        answer = await world.post(CONFIGS, config("no", a="1", b="2"))
        text = (
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request:"
            " failed expression: has(object.data) && size(object.data) <= 1"
        )
        assert answer.status == 422
        assert answer.body["reason"] == "Invalid"
        assert answer.body["message"] == f'configmaps "no" is forbidden: {text}'
        assert answer.body["details"]["causes"] == [{"message": text}]

    run(main)


@pytest.mark.parametrize(
    ("validation", "status", "text"),
    [
        ({"expression": "false", "message": "never"}, 422, "never"),
        ({"expression": "false", "message": "never", "reason": "Forbidden"}, 403, "never"),
        ({"expression": "false", "messageExpression": "'not ' + object.metadata.name"}, 422, "not c"),
        ({"expression": "false", "message": "m", "messageExpression": "string(object.x.y)"}, 422, "m"),
        ({"expression": "false", "message": "m", "messageExpression": "' '"}, 422, "m"),
        ({"expression": "object.data.nothing == '1'"}, 422, "resulted in error: no such key: nothing"),
        ({"expression": "request.operation == 'CREATE' && request.userInfo.username == 'x'"}, 422, "failed expression"),
        ({"expression": "request.name == 'c' && request.namespace == 'default' && oldObject == null"}, 201, ""),
        ({"expression": "namespaceObject.metadata.name == 'default'"}, 201, ""),
    ],
)
def test_validations(validation: dict[str, Any], status: int, text: str) -> None:
    async def main() -> None:
        world = World()
        await bound(world, validation)
        answer = await world.post(CONFIGS, config("c", a="1"))
        assert answer.status == status, answer.body
        assert text in said(answer)

    run(main)


def test_actions_warn_and_ignored_failures() -> None:
    async def main() -> None:
        world = World()
        await bound(world, {"expression": "false", "message": "odd"}, binding={"validationActions": ["Warn", "Audit"]})
        answer = await world.post(CONFIGS, config("c"))
        assert answer.status == 201
        text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': odd"
        assert answer.headers["Warning"] == f'299 - "{text}"'
        other = World()
        await bound(other, {"expression": "object.data.nothing == '1'"}, failurePolicy="Ignore")
        assert (await other.post(CONFIGS, config("c", a="1"))).status == 201

    run(main)


def test_variables_and_conditions() -> None:
    async def main() -> None:
        world = World()
        await bound(
            world,
            {"expression": "variables.twice == 2 || variables.broken == 1"},
            variables=[
                {"name": "count", "expression": "size(object.data)"},
                {"name": "twice", "expression": "variables.count * 2"},
                {"name": "broken", "expression": "object.data.nothing"},
            ],
            matchConditions=[{"name": "named", "expression": "object.metadata.name.startsWith('x')"}],
        )
        assert (await world.post(CONFIGS, config("x1", a="1"))).status == 201
        answer = await world.post(CONFIGS, config("x2", a="1", b="2"))
        assert 'composited variable "broken" fails to evaluate: no such key: nothing' in said(answer)
        assert (await world.post(CONFIGS, config("y", a="1", b="2"))).status == 201

    run(main)


def test_what_is_looked_at() -> None:
    async def main() -> None:
        world = World()
        await world.made("/api/v1/namespaces", {"metadata": {"name": "prod", "labels": {"env": "prod"}}})
        constraints = {
            "resourceRules": [{**RULE, "resources": ["configmaps", "secrets"], "operations": ["*"]}],
            "excludeResourceRules": [{**RULE, "resourceNames": ["free"], "operations": ["*"]}],
            "namespaceSelector": {"matchLabels": {"env": "prod"}},
            "objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
        }
        await bound(world, {"expression": "false"}, matchConstraints=constraints)
        prod = "/api/v1/namespaces/prod/configmaps"
        assert (await world.post(CONFIGS, config("c"))).status == 201
        assert (await world.post(prod, config("c"))).status == 422
        assert (await world.post(prod, config("free"))).status == 201
        labelled = {"metadata": {"name": "l", "labels": {"skip": "yes"}}}
        assert (await world.post(prod, labelled)).status == 201
        # an object does not escape by losing the label that made it free
        assert (await world.merge(f"{prod}/l", {"metadata": {"labels": {"skip": None}}})).status == 422
        assert (await world.delete(f"{prod}/free")).status == 200
        assert (await world.post("/api/v1/namespaces/prod/secrets", {"metadata": {"name": "s"}})).status == 422
        assert (await world.post("/api/v1/namespaces/prod/serviceaccounts", {"metadata": {"name": "s"}})).status == 201

    run(main)


def test_deletions_and_subresources_are_requests_too() -> None:
    async def main() -> None:
        world = World()
        rule = {**RULE, "resources": ["nodes", "nodes/status"], "operations": ["UPDATE", "DELETE"]}
        await world.made("/api/v1/nodes", {"metadata": {"name": "n"}})
        deleted = "object == null && oldObject.metadata.name != 'n'"
        expression = f"request.operation == 'DELETE' ? {deleted} : request.subResource == 'status'"
        await bound(world, {"expression": expression}, matchConstraints={"resourceRules": [rule]})
        assert (await world.delete("/api/v1/nodes/n")).status == 422
        assert (await world.merge("/api/v1/nodes/n", {"metadata": {"labels": {"a": "b"}}})).status == 422
        assert (await world.merge("/api/v1/nodes/n/status", {"status": {"phase": ""}})).status == 200

    run(main)


def test_parameters() -> None:
    async def main() -> None:
        world = World()
        await world.made(CONFIGS, config("limits", most="2"))
        await bound(
            world,
            {
                "expression": "size(object.data) <= int(params.data.most)",
                "messageExpression": "'most ' + params.data.most",
            },
            paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
            binding={"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}},
        )
        assert (await world.post(CONFIGS, config("two", a="1", b="2"))).status == 201
        assert "denied request: most 2" in said(await world.post(CONFIGS, config("three", a="1", b="2", c="3")))
        await world.merge(f"{CONFIGS}/limits", {"data": {"most": "3"}})
        assert (await world.post(CONFIGS, config("three", a="1", b="2", c="3"))).status == 201
        await world.delete(f"{BINDINGS}/b")
        await world.delete(f"{CONFIGS}/limits")
        missing = {"policyName": "p", "validationActions": ["Deny"]}
        for action, status in (("Deny", 422), ("Allow", 201)):
            spec = {**missing, "paramRef": {"name": "limits", "parameterNotFoundAction": action}}
            await world.made(BINDINGS, {"metadata": {"name": "b"}, "spec": spec})
            answer = await world.post(CONFIGS, config(f"four-{action.lower()}"))
            assert answer.status == status, answer.body
            await world.delete(f"{BINDINGS}/b")

    run(main)


def test_changes_of_policies_count_at_once_and_unbound_ones_never() -> None:
    async def main() -> None:
        world = World()
        await world.made(POLICIES, policy({"expression": "false"}))
        assert (await world.post(CONFIGS, config("a"))).status == 201
        binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
        await world.made(BINDINGS, binding)
        assert (await world.post(CONFIGS, config("b"))).status == 422
        change = {"spec": {"validations": [{"expression": "object.metadata.name == 'c'"}]}}
        assert (await world.merge(f"{POLICIES}/p", change)).status == 200
        assert (await world.post(CONFIGS, config("b"))).status == 422
        assert (await world.post(CONFIGS, config("c"))).status == 201
        await world.delete(f"{BINDINGS}/b")
        assert (await world.post(CONFIGS, config("b"))).status == 201

    run(main)


@pytest.mark.parametrize(
    ("validation", "field", "problem"),
    [
        ({"expression": "object.metadata."}, "expression", "compilation failed: "),
        ({"expression": "1 + 1"}, "expression", "must evaluate to bool but got int"),
        ({"expression": "nobody == 1"}, "expression", "compilation failed: "),
        ({"expression": "true", "messageExpression": "'a' + 1"}, "messageExpression", "compilation failed: "),
        (
            {"expression": "true", "messageExpression": "object.x"},
            "messageExpression",
            "must evaluate to string but got",
        ),
    ],
)
def test_expressions_must_compile(validation: dict[str, Any], field: str, problem: str) -> None:
    async def main() -> None:
        answer = await World().post(POLICIES, policy(validation))
        assert answer.status == 422
        assert f"spec.validations[0].{field}: Invalid value" in said(answer) and problem in said(answer)

    run(main)


def test_an_expression_that_costs_too_much_is_a_failure() -> None:
    async def main() -> None:
        world = World()
        numbers = "[" + ",".join(map(str, range(60))) + "]"
        loops = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, a + b + c + d >= 0))))"
        await bound(world, {"expression": loops})
        answer = await world.post(CONFIGS, config("c"))
        assert answer.status == 422 and "cost limit exceeded" in said(answer)

    run(main)
