"""CustomResourceDefinitions: served as soon as they exist, with schema, status, columns and versions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tests.cluster.apiserver.world import World

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DOMAINS = "/apis/resource.example.com/v1/namespaces/default/domains"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "nodes": {"type": "integer", "minimum": 1, "default": 4},
                "mode": {"type": "string", "enum": ["Single", "All"], "default": "Single"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "port": {"x-kubernetes-int-or-string": True},
            },
        },
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    },
}


def definition(**spec: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.nodes", "statusReplicasPath": ".status.n"}},
        "additionalPrinterColumns": [{"name": "Nodes", "type": "integer", "jsonPath": ".spec.nodes"}],
    }
    return {
        "metadata": {"name": "domains.resource.example.com"},
        "spec": {
            "group": "resource.example.com",
            "scope": "Namespaced",
            "names": {"plural": "domains", "kind": "Domain", "shortNames": ["dom"]},
            "versions": [version],
            **spec,
        },
    }


def with_definition(body: Callable[[World], Awaitable[None]], crd: dict[str, Any] | None = None) -> None:
    async def main() -> None:
        world = World()
        await world.made(CRDS, crd or definition())
        await _settle()
        await body(world)

    asyncio.run(main())


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def domain(name: str, /, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "resource.example.com/v1", "kind": "Domain", "metadata": {"name": name}, "spec": spec}


def test_a_definition_is_established_and_discovered() -> None:
    async def body(world: World) -> None:
        crd = (await world.get(f"{CRDS}/domains.resource.example.com")).body
        assert [(one["type"], one["status"]) for one in crd["status"]["conditions"]] == [
            ("NamesAccepted", "True"),
            ("Established", "True"),
        ]
        assert crd["status"]["storedVersions"] == ["v1"]
        found = (await world.get("/apis/resource.example.com/v1")).body["resources"]
        assert [one["name"] for one in found] == ["domains", "domains/scale", "domains/status"]
        assert found[0]["shortNames"] == ["dom"]

    with_definition(body)


def test_objects_are_defaulted_pruned_and_validated() -> None:
    async def body(world: World) -> None:
        made = await world.made(DOMAINS, domain("a", free={"any": {"thing": 1}}, port="http"))
        assert made["spec"] == {"nodes": 4, "mode": "Single", "free": {"any": {"thing": 1}}, "port": "http"}
        warned = await world.post(DOMAINS, domain("b", colour="red"))
        assert warned.status == 201 and 'unknown field \\"spec.colour\\"' in warned.headers["Warning"]
        assert "colour" not in warned.body["spec"]
        strict = await world.post(f"{DOMAINS}?fieldValidation=Strict", domain("c", colour="red"))
        assert strict.status == 400
        bad = await world.post(DOMAINS, domain("d", nodes=0, mode="None", name="ABC", port=True))
        causes = {cause["field"]: cause["message"] for cause in bad.body["details"]["causes"]}
        assert causes == {
            "spec.nodes": "Invalid value: 0: spec.nodes in body should be greater than or equal to 1",
            "spec.mode": 'Unsupported value: "None": supported values: "Single", "All"',
            "spec.name": "Invalid value: \"ABC\": spec.name in body should match '^[a-z]+$'",
            "spec.port": 'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
        }
        missing = await world.post(DOMAINS, {"metadata": {"name": "e"}})
        assert missing.body["message"].endswith("spec: Required value")

    with_definition(body)


def test_the_status_is_a_subresource_and_counts_no_generation() -> None:
    async def body(world: World) -> None:
        made = await world.made(DOMAINS, {**domain("a"), "status": {"ready": True}})
        assert "status" not in made and made["metadata"]["generation"] == 1
        answer = await world.merge(f"{DOMAINS}/a/status", {"status": {"ready": True}, "spec": {"nodes": 9}})
        assert answer.body["status"] == {"ready": True}
        assert (answer.body["spec"]["nodes"], answer.body["metadata"]["generation"]) == (4, 1)
        changed = await world.merge(f"{DOMAINS}/a", {"spec": {"nodes": 9}, "status": {"ready": False}})
        assert (changed.body["status"], changed.body["metadata"]["generation"]) == ({"ready": True}, 2)
        no_version = await world.put(f"{DOMAINS}/a", domain("a"))
        assert no_version.status == 422 and "metadata.resourceVersion" in no_version.body["message"]

    with_definition(body)


def test_lists_tables_watches_and_scale() -> None:
    async def body(world: World) -> None:
        await world.made(DOMAINS, domain("a"))
        listed = (await world.get(DOMAINS)).body
        assert (listed["kind"], listed["items"][0]["kind"]) == ("DomainList", "Domain")
        accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
        table = (await world.get(DOMAINS, headers=accept)).body
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Nodes"]
        assert table["rows"][0]["cells"] == ["a", 4]
        scaled = await world.merge(f"{DOMAINS}/a/scale", {"spec": {"replicas": 7}})
        assert scaled.body["spec"] == {"replicas": 7}
        assert (await world.get(f"{DOMAINS}/a")).body["spec"]["nodes"] == 7

    with_definition(body)


def test_server_side_apply_owns_fields() -> None:
    async def body(world: World) -> None:
        apply = {"content-type": "application/apply-patch+yaml"}
        first = await world.ask("PATCH", f"{DOMAINS}/a?fieldManager=one", domain("a", nodes=2), headers=apply)
        assert first.status == 201
        clash = await world.ask("PATCH", f"{DOMAINS}/a?fieldManager=two", domain("a", nodes=3), headers=apply)
        assert clash.status == 409 and ".spec.nodes" in clash.body["message"]
        forced = await world.ask(
            "PATCH", f"{DOMAINS}/a?fieldManager=two&force=true", domain("a", nodes=3), headers=apply
        )
        assert forced.body["spec"]["nodes"] == 3

    with_definition(body)


def test_the_schema_is_published_for_explain_and_validation() -> None:
    async def body(world: World) -> None:
        name = "apis/resource.example.com/v1"
        assert name in (await world.get("/openapi/v3")).body["paths"]
        document = msgspec.json.decode((await world.get(f"/openapi/v3/{name}")).body)
        schema = document["components"]["schemas"]["com.example.resource.v1.Domain"]
        assert schema["properties"]["spec"]["properties"]["nodes"]["minimum"] == 1
        patch = document["paths"][f"/{name}/namespaces/{{namespace}}/domains/{{name}}"]["patch"]
        assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]

    with_definition(body)


def test_versions_show_the_same_object() -> None:
    first = definition()["spec"]["versions"][0]
    both = [first, {**first, "name": "v1beta1", "storage": False}]

    async def body(world: World) -> None:
        old = "/apis/resource.example.com/v1beta1/namespaces/default/domains"
        made = await world.made(old, {"metadata": {"name": "a"}, "spec": {}})
        assert made["apiVersion"] == "resource.example.com/v1beta1"
        assert (await world.get(f"{DOMAINS}/a")).body["apiVersion"] == "resource.example.com/v1"
        groups = (await world.get("/apis/resource.example.com")).body
        assert [one["version"] for one in groups["versions"]] == ["v1", "v1beta1"]

    with_definition(body, definition(versions=both))


def test_versions_that_were_stored_stay_in_their_order() -> None:
    first = definition()["spec"]["versions"][0]

    def stored_as(name: str) -> list[dict[str, Any]]:
        return [{**first, "name": one, "storage": one == name} for one in ("v1", "v2")]

    async def body(world: World) -> None:
        for name, stored in (("v1", ["v1"]), ("v2", ["v1", "v2"]), ("v1", ["v1", "v2"])):
            crd = (await world.get(f"{CRDS}/domains.resource.example.com")).body
            crd["spec"]["versions"] = stored_as(name)
            assert (await world.put(f"{CRDS}/domains.resource.example.com", crd)).status == 200
            await _settle()
            now = (await world.get(f"{CRDS}/domains.resource.example.com")).body
            assert now["status"]["storedVersions"] == stored
            assert now["status"]["acceptedNames"] == now["spec"]["names"]

    with_definition(body)


def test_deleting_a_definition_takes_its_objects_along() -> None:
    async def body(world: World) -> None:
        held = domain("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await world.made(DOMAINS, domain("a"))
        await world.made(DOMAINS, held)
        await world.delete(f"{CRDS}/domains.resource.example.com")
        await _settle()
        assert (await world.get(f"{DOMAINS}/a")).status == 404
        assert (await world.get(f"{DOMAINS}/held")).body["metadata"]["deletionTimestamp"]
        await world.merge(f"{DOMAINS}/held", {"metadata": {"finalizers": None}})
        await _settle()
        assert (await world.get(DOMAINS)).status == 404
        assert (await world.get(f"{CRDS}/domains.resource.example.com")).status == 404

    with_definition(body)


def test_taken_names_are_not_accepted() -> None:
    async def main() -> None:
        world = World()
        await world.made(CRDS, definition())
        other = definition(names={"plural": "realms", "kind": "Domain"})
        other["metadata"]["name"] = "realms.resource.example.com"
        await world.made(CRDS, other)
        await _settle()
        status = (await world.get(f"{CRDS}/realms.resource.example.com")).body["status"]
        assert status["conditions"][0]["message"] == '"Domain" is already in use'
        assert (await world.get("/apis/resource.example.com/v1/realms")).status == 404

    asyncio.run(main())
