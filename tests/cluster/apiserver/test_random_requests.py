"""Requests from a generator that knows the published OpenAPI and loves to break it: the server never fails itself.

Where schemathesis makes few requests with much thought, this makes many: objects of the right shape with values of the
wrong type here and there, patches of all four kinds, options that contradict each other. The seed is fixed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from drakkar.cluster.machinery import openapi
from tests.cluster.apiserver.test_published_openapi import AS_KUBERNETES
from tests.cluster.apiserver.world import World

SEED, REQUESTS = 20260101, 2500
DOCUMENTS = (
    "api/v1", "apis/apps/v1", "apis/resource.k8s.io/v1", "apis/batch/v1", "apis/rbac.authorization.k8s.io/v1",
    "apis/authorization.k8s.io/v1", "apis/coordination.k8s.io/v1", "apis/policy/v1", "apis/apiextensions.k8s.io/v1",
    "apis/events.k8s.io/v1", "apis/scheduling.k8s.io/v1", "apis/networking.k8s.io/v1", "apis/node.k8s.io/v1",
)  # fmt: skip
WORDS = (
    "", "a", "default", "x-y", "A b", "é", "0", "-1", "1", "true", "false", "All", "Foreground", "metadata.name=a",
    "a in (b,c)", "!x", "=", "2147483648", "9" * 30, "\0", "../x", "%2f", "nvidia.com/gpu", "1Gi", "10m", "Exact",
    "2026-01-01T00:00:00Z", "NotOlderThan", "Strict",
)  # fmt: skip
NUMBERS = (0, 1, -1, 5, 1 << 31, 1 << 40, (1 << 63) - 1, 1.5, 1e300)
_JSON_PATCH_PATHS = ("/metadata/labels", "/spec", "/metadata/name", "", "/a/b", "/spec/containers/0", "/a~1b")
Json = Any


class Maker:
    """Makes values, objects and requests."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.documents = [msgspec.json.decode(openapi.document(name)) for name in DOCUMENTS]
        self.operations = [
            (document, path, method, operation)
            for document in self.documents
            for path, item in document["paths"].items()
            for method, operation in item.items()
            if method in ("get", "post", "put", "patch", "delete") and "/proxy" not in path
        ]

    def junk(self, depth: int = 0) -> Json:
        kind = self.dice.randrange(7 if depth < 3 else 4)
        if kind == 0:
            return self.dice.choice(WORDS)
        if kind == 1:
            return self.dice.choice(NUMBERS)
        if kind < 4:
            return self.dice.choice((True, False, None))
        if kind == 4:
            return [self.junk(depth + 1) for _ in range(self.dice.randrange(3))]
        names = (*WORDS, "metadata", "spec", "name", "containers")
        return {self.dice.choice(names): self.junk(depth + 1) for _ in range(self.dice.randrange(3))}

    def value(self, document: Json, schema: Json, depth: int = 0) -> Json:
        if self.dice.random() < 0.03:
            return self.junk()
        for key in ("allOf", "oneOf"):
            if key in schema:
                return self.value(document, self.dice.choice(schema[key]), depth)
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "properties" in schema or schema.get("type") == "object":
            return self.struct(document, schema, depth)
        if schema.get("type") == "array":
            return [self.value(document, schema["items"], depth + 1) for _ in range(self.dice.randrange(3))]
        simple = {"integer": NUMBERS, "number": NUMBERS, "boolean": (True, False), "string": WORDS}
        return self.dice.choice(schema.get("enum") or simple.get(schema.get("type"), WORDS))

    def struct(self, document: Json, schema: Json, depth: int) -> Json:
        share = 0.5 if depth < 2 else 0.25 if depth < 9 else 0
        made = {
            name: self.value(document, inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if (name in schema.get("required", ()) or self.dice.random() < share)
            and not (depth < 2 and name in ("kind", "apiVersion", "managedFields"))
        }
        if "additionalProperties" in schema:
            for _ in range(self.dice.randrange(3)):
                made[self.dice.choice(WORDS)] = self.value(document, schema["additionalProperties"], depth + 1)
        return made

    def request(self) -> tuple[str, str, bytes, str]:
        """Method, URL, body and content type."""
        document, path, method, operation = self.dice.choice(self.operations)
        url = path.replace("{namespace}", "default" if self.dice.random() < 0.9 else "b")
        for name in ("name", "path", "logpath"):
            url = url.replace(f"{{{name}}}", quote(self.dice.choice(("a", "b", "x-y", *WORDS[:6])), safe=""))
        listed = operation.get("parameters", []) + document["paths"][path].get("parameters", [])
        names = [one["name"] for one in listed if one.get("in") == "query" and one["name"] != "watch"]
        query = {name: self.dice.choice(WORDS) for name in names if self.dice.random() < 0.12}
        body, kind = b"", "application/json"
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]
            kind = self.dice.choice(list(content))
            value = self.patch(document, path, kind) if method == "patch" else None
            if method != "patch":
                value = self.named(self.value(document, content[kind]["schema"]), url, new=method == "post")
            if "apply" in kind:
                query |= {"fieldManager": "f", "force": self.dice.choice(("true", "false"))}
                value = self.applied(value, operation)
            body = msgspec.json.encode(value)
        return method.upper(), f"{url}?{urlencode(query)}", body, "application/json" if kind == "*/*" else kind

    def patch(self, document: Json, path: str, kind: str) -> Json:
        if "json-patch" in kind:
            verbs = ("add", "replace", "remove", "test", "copy", "move")
            return [
                {
                    "op": self.dice.choice(verbs),
                    "path": self.dice.choice(_JSON_PATCH_PATHS),
                    "from": "/spec",
                    "value": self.junk(),
                }
                for _ in range(self.dice.randrange(3))
            ]
        put = document["paths"][path].get("put")
        return self.value(document, put["requestBody"]["content"]["*/*"]["schema"]) if put else self.junk()

    def named(self, value: Json, url: str, *, new: bool) -> Json:
        if isinstance(value, dict) and isinstance(value.get("metadata", {}), dict) and self.dice.random() < 0.8:
            metadata = value.setdefault("metadata", {})
            metadata["name"] = self.dice.choice("ab") if new else url.rpartition("/")[2]
            for name in ("resourceVersion", "namespace", "uid"):
                if self.dice.random() < 0.8:
                    metadata.pop(name, None)
        return value

    def applied(self, value: Json, operation: Json) -> Json:
        known = operation.get("x-kubernetes-group-version-kind")
        if known and isinstance(value, dict):
            version = f"{known['group']}/{known['version']}" if known["group"] else known["version"]
            value |= {"apiVersion": version, "kind": known["kind"]}
        return value


def test_whatever_is_asked_the_server_does_not_fail() -> None:
    async def main() -> Counter[int]:
        world = World()
        await world.service_account()
        maker = Maker(SEED)
        codes: Counter[int] = Counter()
        for _ in range(REQUESTS):
            method, url, body, kind = maker.request()
            answer = await world.ask(method, url, body, {"content-type": kind, "user-agent": "random"})
            if hasattr(answer.body, "aclose"):
                await answer.body.aclose()
            codes[answer.status] += 1
            message = answer.body.get("message", "") if isinstance(answer.body, dict) else ""
            known = any(words in message for words in AS_KUBERNETES)
            assert answer.status < 500 or known, f"{method} {url}\n{kind} {body!r}\n{answer.status} {message}"
        return codes

    codes = asyncio.run(main())
    assert {200, 201, 400, 404, 409, 415, 422} <= set(codes), codes
