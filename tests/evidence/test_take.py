"""A snapshot of a running cluster: everything readable, a note for everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from drakkar.evidence.snapshot import LogKey
from drakkar.evidence.take import take
from drakkar.kube.apierrors import ApiError, UnreachableError
from drakkar.kube.client import Client
from drakkar.kube.transport import ApiRequest, ApiResponse


class FakeServer:
    """Lists by path; anything else is refused."""

    def __init__(self, answers: dict[str, Any], code: int = 403, reason: str = "Forbidden") -> None:
        self.answers, self.code, self.reason = answers, code, reason

    async def send(self, request: ApiRequest) -> ApiResponse:
        if request.path in self.answers:
            return ApiResponse(200, {}, self.answers[request.path])
        status = {
            "kind": "Status",
            "status": "Failure",
            "reason": self.reason,
            "message": f"{request.path}: {self.reason}",
        }
        return ApiResponse(self.code, {}, status)

    def watch(self, request: ApiRequest) -> AsyncIterator[dict[str, Any]]:
        raise NotImplementedError

    def stream(self, request: ApiRequest) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def test_lists_become_objects_with_their_kind_and_refusals_become_notes() -> None:
    pod = {"metadata": {"name": "p", "namespace": "ml", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}}
    event = {"metadata": {"name": "e"}, "involvedObject": {"uid": "u"}, "reason": "Failed", "message": "no"}
    server = FakeServer(
        {
            "/api/v1/pods": {"items": [pod], "metadata": {}},
            "/api/v1/events": {"items": [event], "metadata": {}},
            "/api/v1/namespaces/ml/pods/p/log": "GPU 0\n",
            "/version": {"gitVersion": "v1.37.2"},
        }
    )
    snapshot = asyncio.run(take(Client(server), logs_of=[("ml", "p"), ("ml", "missing")]))
    found = snapshot.get("Pod", "p", "ml")
    assert found is not None
    assert (found["kind"], found["apiVersion"]) == ("Pod", "v1")
    assert "kind" not in pod, "what a client gives is never changed"
    assert [e["message"] for e in snapshot.events_of(found)] == ["no"]
    assert snapshot.logs == {LogKey("ml", "p", "main"): "GPU 0\n"}
    assert snapshot.kubernetes_version == "1.37.2"
    assert any("resourceslices" in text and "Forbidden" in text for text in snapshot.unread)


def test_pods_with_claims_have_their_logs_taken_unless_told_otherwise() -> None:
    spec = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu"}], "nodeName": "n1"}
    pods = [{"metadata": {"name": "p", "namespace": "ml", "uid": "u"}, "spec": spec}]
    answers = {"/api/v1/pods": {"items": pods, "metadata": {}}, "/api/v1/namespaces/ml/pods/p/log": b"GPU 0"}
    assert asyncio.run(take(Client(FakeServer(answers)))).logs == {LogKey("ml", "p", "main"): "GPU 0"}
    assert asyncio.run(take(Client(FakeServer(answers)), logs_of=())).logs == {}


def test_a_server_without_anything_gives_an_empty_snapshot() -> None:
    snapshot = asyncio.run(take(Client(FakeServer({}))))
    assert snapshot.objects == ()
    assert len(snapshot.unread) > 10


@pytest.mark.parametrize(("code", "reason"), [(401, "Unauthorized"), (500, "InternalError"), (429, "TooManyRequests")])
def test_other_failures_are_raised_as_they_came(code: int, reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        asyncio.run(take(Client(FakeServer({}, code, reason))))


def test_a_server_that_does_not_answer_is_no_empty_cluster() -> None:
    class Dead(FakeServer):
        async def send(self, request: ApiRequest) -> ApiResponse:
            raise UnreachableError("no answer")

    with pytest.raises(UnreachableError):
        asyncio.run(take(Client(Dead({}))))


def test_who_may_read_one_namespace_gets_that_one_and_is_told() -> None:
    pod = {"metadata": {"name": "p", "namespace": "ml", "uid": "u"}, "spec": {"containers": []}}
    server = FakeServer({"/api/v1/namespaces/ml/pods": {"items": [pod], "metadata": {}}})
    snapshot = asyncio.run(take(Client(server), namespace="ml"))
    assert snapshot.get("Pod", "p", "ml")
    assert "pods outside of namespace ml: /api/v1/pods: Forbidden" in snapshot.unread
    assert snapshot.why_unread("pods") == ""
    assert snapshot.why_unread("resourceslices.resource.k8s.io")
