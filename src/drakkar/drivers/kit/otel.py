"""Spans through OpenTelemetry's SDK (extra `otel`); imported only where `tracing` is on.

Spans are handed on in batches by a thread of the SDK, so that a collector that does not answer delays no prepare.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Status, StatusCode, use_span

from drakkar.drivers.kit.tracing import Span

_PREFIX = "drakkar."
_SHUTDOWN_SECONDS = 3.0


class Spans:
    """`drakkar.drivers.kit.tracing.Tracing` on the SDK.

    Args:
        exporter: where spans go, or a processor that decides that itself.
        service: the service's name where the environment has none.
    """

    def __init__(self, exporter: SpanExporter | SpanProcessor, service: str) -> None:
        told = Resource.create()
        if str(told.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
            told = told.merge(Resource({SERVICE_NAME: service}))
        self._provider = TracerProvider(resource=told, shutdown_on_exit=False)
        processor = exporter if isinstance(exporter, SpanProcessor) else BatchSpanProcessor(exporter)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("drakkar.drivers.kit")

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Any] | None = None) -> Iterator[Span]:
        """A span for as long as the block runs."""
        named = {_PREFIX + key: value for key, value in (attributes or {}).items()}
        own = self._tracer.start_span(name, attributes=named)
        with use_span(own, end_on_exit=True):
            yield _Noted(own)

    def shutdown(self) -> None:
        """Sends what is waiting, for a moment: a silent collector must not hold up the end of a driver."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(_SHUTDOWN_SECONDS)


class _Noted:
    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    def note(self, name: str, value: str | int | float | bool | Sequence[str]) -> None:
        """An attribute that is known only on the way."""
        self._span.set_attribute(_PREFIX + name, value)

    def fail(self, message: str) -> None:
        """It ends as a failure."""
        self._span.set_status(Status(StatusCode.ERROR, message))
