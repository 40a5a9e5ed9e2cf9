"""Spans of a driver: off by default and then free, on by the standard variables, one tree for each call."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gpu_node import DRIVER, GpuNode, running
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from drakkar.drivers.kit import tracing
from drakkar.drivers.kit.otel import Spans
from drakkar.errors import DrakkarError


class Traced(GpuNode):
    """A node whose driver tells its spans to `exporter`."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        spans = Spans(SimpleSpanProcessor(self.exporter), "drakkar-test")
        super().__init__(folder, spans=spans, **options)

    def finished(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.finished(name)
        return span

    def children(self, parent: ReadableSpan) -> list[str]:
        own = parent.get_span_context()
        assert own is not None
        spans = [
            span for span in self.exporter.get_finished_spans() if span.parent and span.parent.span_id == own.span_id
        ]
        return [span.name for span in sorted(spans, key=lambda span: span.start_time or 0)]


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def test_a_call_is_a_tree_of_its_claims_and_their_phases(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Traced(tmp_path)) as node:
            await node.published()
            uid = node.claim("train", "gpu-3")
            assert not (await node.prepare("train", uid)).error
            assert not (await node.unprepare("train", uid)).error
            call, claim = node.only("NodePrepareResources"), node.only("prepare")
            assert node.children(call) == ["prepare"]
            assert node.children(claim) == [
                "read claim", "wait for holders", "CDI write", "barrier", "journal completion",
            ]  # fmt: skip
            identity = {
                "drakkar.driver": DRIVER,
                "drakkar.node": "n1",
                "drakkar.claim.uid": uid,
                "drakkar.claim.namespace": "team-a",
                "drakkar.claim.name": "train",
            }
            assert attributes(claim) == identity | {"drakkar.devices": ("gpu-3",)}
            for phase in ("read claim", "CDI write", "barrier"):
                assert attributes(node.only(phase)) == {"drakkar.driver": DRIVER, "drakkar.node": "n1"}
            assert node.children(node.only("NodeUnprepareResources")) == ["unprepare"]
            undone = node.only("unprepare")
            assert node.children(undone) == ["device release", "CDI removal", "journal release"]
            assert {key: attributes(undone)[key] for key in identity} == identity
            assert attributes(node.finished("publish")[0])["drakkar.node"] == "n1"
            assert claim.resource.attributes["service.name"] == "drakkar-test"
            assert call.parent is None

    asyncio.run(main())


def test_hardware_that_is_set_up_has_a_span_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Traced(tmp_path)) as node:
            slicing = {
                "apiVersion": "resource.nvidia.com/v1beta1",
                "kind": "GpuConfig",
                "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
            }
            uid = node.claim("c", "gpu-0", configs=[slicing])
            assert not (await node.prepare("c", uid)).error
            assert node.children(node.only("prepare"))[2:] == [
                "journal intent", "device setup", "CDI write", "journal completion",
            ]  # fmt: skip

    asyncio.run(main())


def test_a_refusal_is_a_failed_span_with_the_sentence_that_the_kubelet_gets(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(Traced(tmp_path)) as node:
            uid = node.claim("c", "gpu-99")
            error = (await node.prepare("c", uid)).error
            span = node.only("prepare")
            assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, error)
            assert "drakkar.devices" not in attributes(span)

    asyncio.run(main())


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
        {"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "console"},
        {"OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": " "},
    ],
)
def test_it_is_off_unless_asked_for(environment: dict[str, str]) -> None:
    assert tracing.configured("s", environment=environment) is tracing.OFF


def test_off_imports_nothing_and_makes_no_object() -> None:
    script = (
        "import sys; from drakkar.drivers.gpu import process; from drakkar.drivers.kit import tracing;"
        "assert tracing.configured('s') is tracing.OFF; assert tracing.OFF.span('a') is tracing.OFF;"
        "print([name for name in sys.modules if name.startswith('opentelemetry') or name.endswith('kit.otel')])"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=clean)
    assert done.stdout.strip() == "[]"


def test_console_is_an_exporter_of_the_sdk() -> None:
    spans = tracing.configured("s", environment={"OTEL_TRACES_EXPORTER": "console"})
    try:
        assert isinstance(spans, Spans)
    finally:
        spans.shutdown()


@pytest.mark.parametrize(
    ("environment", "endpoint", "said", "next_step"),
    [
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "", "http/protobuf", "opentelemetry-exporter-otlp-proto-http"),
        ({}, "http://collector:4318/v1/traces", "http/protobuf", "opentelemetry-exporter-otlp-proto-http"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "",
            "grpc", "opentelemetry-exporter-otlp-proto-grpc",
        ),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "", "zipkin", "name another one"),
        ({"OTEL_TRACES_EXPORTER": "otlp,console"}, "", "several", ""),
    ],
)  # fmt: skip
def test_an_exporter_that_is_not_installed_is_named_with_its_package(
    environment: dict[str, str], endpoint: str, said: str, next_step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [])
    with pytest.raises(DrakkarError, match=said) as caught:
        tracing.configured("s", endpoint, environment)
    assert next_step in caught.value.next_step


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "drakkar.drivers.kit.otel", raising=False)
    monkeypatch.delattr("drakkar.drivers.kit.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(DrakkarError, match="OpenTelemetry SDK") as caught:
        tracing.configured("s", environment={"OTEL_TRACES_EXPORTER": "console"})
    assert caught.value.next_step == "pip install 'drakkar[otel]'"


def test_the_service_has_the_name_that_the_environment_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gpus")
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter), "drakkar-test")
    with ended(spans), spans.span("one"):
        pass
    assert exporter.get_finished_spans()[0].resource.attributes["service.name"] == "gpus"


def test_a_collector_that_does_not_answer_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    class Silent(InMemorySpanExporter):
        def export(self, spans: Any) -> Any:
            answer.wait()
            return super().export(spans)

    monkeypatch.setattr("drakkar.drivers.kit.otel._SHUTDOWN_SECONDS", 0.05)
    spans = Spans(Silent(), "drakkar-test")
    try:
        with spans.span("one"):
            pass
        spans.shutdown()  # returns
    finally:
        answer.set()


@contextmanager
def ended(spans: Spans) -> Iterator[None]:
    try:
        yield
    finally:
        spans.shutdown()
