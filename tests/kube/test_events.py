"""Events are aggregated, and never stand in the way."""

import asyncio
from typing import Any

from drakkar.kube.client import Client
from drakkar.kube.clock import FakeClock
from drakkar.kube.events import EventRecorder
from drakkar.kube.transport import ApiRequest, ApiResponse

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": "p", "uid": "u"}}


class Server:
    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.gone = False

    async def send(self, request: ApiRequest) -> ApiResponse:
        self.seen.append((request.method, request.body))
        if self.gone and request.method == "PATCH":
            return ApiResponse(404, {}, {"kind": "Status", "reason": "NotFound", "message": "gone"})
        return ApiResponse(201, {}, request.body)


def recorded(style: str, *messages: str, gone: bool = False) -> list[tuple[str, Any]]:
    async def scenario() -> list[tuple[str, Any]]:
        server = Server()
        server.gone = gone
        recorder = EventRecorder(Client(server), "kubelet", "n1", style=style, clock=FakeClock())
        for message in messages:
            recorder.record(POD, "Normal", "Started", message, field_path="spec.containers{c}")
        await recorder.flush()
        await recorder.stop()
        return server.seen

    return asyncio.run(scenario())


def test_equal_events_become_one_with_a_count() -> None:
    (method, event), *repeats = recorded("core", "x", "x", "x", "y")
    assert method == "POST"
    assert event["source"] == {"component": "kubelet", "host": "n1"} and event["count"] == 1
    assert event["involvedObject"]["fieldPath"] == "spec.containers{c}"
    assert [(method, body.get("count")) for method, body in repeats] == [("PATCH", 2), ("PATCH", 3), ("POST", 1)]


def test_the_scheduler_s_style_keeps_a_series() -> None:
    (_, event), (_, patch) = recorded("events.k8s.io", "x", "x")
    assert event["source"] == {} and "count" not in event and event["eventTime"].endswith("Z")
    assert patch["series"]["count"] == 2


def test_an_event_that_somebody_removed_is_written_anew() -> None:
    assert [method for method, _ in recorded("core", "x", "x", gone=True)] == ["POST", "PATCH", "POST"]
