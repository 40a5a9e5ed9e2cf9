"""Requests made from the OpenAPI that the server publishes: whatever they ask, the answer is never its own failure.

schemathesis reads the documents and makes requests that fit them, and some that nearly do; the seed is fixed. A few
answers above 499 are a real server's own (recorded) ways of refusing, and are told by their words.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from drakkar.cluster.machinery import openapi
from tests.cluster.apiserver.world import World

DOCUMENTS = ("api/v1", "apis/apps/v1", "apis/batch/v1", "apis/resource.k8s.io/v1", "apis/rbac.authorization.k8s.io/v1")
SECONDS = 7.0
"""For each document; what a slow machine does not reach, another does."""
AS_KUBERNETES = (
    "strconv.ParseUint",
    "Too large resource version",
    "resourceVersion should not be set on objects to be created",
    "target.name: Required value",
    "target.kind: Unsupported value",
    "serve no HTTP",
    "failed to create typed patch object",
)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_request_that_the_document_allows_is_the_servers_failure(document: str) -> None:
    schema = schemathesis.openapi.from_dict(msgspec.json.decode(openapi.document(document)))
    operations = [found.ok() for found in schema.get_all_operations()]
    world = World()
    codes: Counter[int] = Counter()
    end = time.monotonic() + SECONDS

    def check(case: schemathesis.Case) -> None:
        method, url, body, headers = _request(case)
        answer = asyncio.run(_asked(world, method, url, body, headers))
        codes[answer.status] += 1
        message = answer.body.get("message", "") if isinstance(answer.body, dict) else ""
        known = any(words in message for words in AS_KUBERNETES)
        assert answer.status < 500 or known, f"{method} {url}\n{body!r}\n{answer.status} {message}"

    # Neighbours in the document are much alike: far apart ones first.
    for operation in sorted(operations, key=lambda one: hash_of(f"{one.method} {one.path}")):
        if time.monotonic() > end and sum(codes.values()) >= 10 and len(codes) >= 2:
            break
        seed(20260101)(
            settings(
                max_examples=6,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )(given(case=operation.as_strategy())(check))
        )()
    assert sum(codes.values()) >= 10 and len(codes) >= 2, codes


def hash_of(text: str) -> int:
    """The same order in every run."""
    return sum(ord(one) * 31**index for index, one in enumerate(text)) % 1009


def _request(case: schemathesis.Case) -> tuple[str, str, bytes, dict[str, str]]:
    query = urlencode(dict(case.query or {}), doseq=True)
    body = case.body
    try:
        text = msgspec.json.encode(body) if isinstance(body, dict | list | str | int | float | bool | None) else b""
    except (msgspec.EncodeError, OverflowError, UnicodeEncodeError):
        text = b"{}"
    kind = case.media_type or "application/json"
    headers = {"content-type": "application/json" if kind == "*/*" else kind, "user-agent": "schemathesis"}
    return case.method.upper(), f"{case.formatted_path}?{query}" if query else case.formatted_path, text, headers


async def _asked(world: World, method: str, url: str, body: bytes, headers: dict[str, str]) -> Any:
    answer = await world.ask(method, url, body, headers)
    if hasattr(answer.body, "aclose"):  # a watch
        await answer.body.aclose()
    return answer
