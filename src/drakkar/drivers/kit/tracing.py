"""Spans of a driver's work, for OpenTelemetry; nothing at all unless somebody asks for them.

On is what the standard variables say (`OTEL_TRACES_EXPORTER`, `OTEL_EXPORTER_OTLP_ENDPOINT`, …; OpenTelemetry's
"Environment Variable Specification") or `--otlp`; sampling, resource, headers and batching are the SDK's business and
follow its variables. Off costs nothing: the SDK is not imported, and a span is one shared object that does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from drakkar.errors import DrakkarError

_EXTRA = "pip install 'drakkar[otel]'"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
#: Name of an exporter, or of OTLP's protocol, to the entry point that exporters register and the package that has it.
_EXPORTERS = {
    "console": ("console", "opentelemetry-sdk"),
    "grpc": ("otlp_proto_grpc", "opentelemetry-exporter-otlp-proto-grpc"),
    "http/protobuf": ("otlp_proto_http", "opentelemetry-exporter-otlp-proto-http"),
}
_GROUP = "opentelemetry_traces_exporter"


class Span(Protocol):
    """Something that takes time; `note` adds to it, `fail` says that it did not succeed."""

    def note(self, name: str, value: str | int | float | bool | Sequence[str]) -> None:
        """An attribute that is known only on the way."""

    def fail(self, message: str) -> None:
        """It ends as a failure."""


class Tracing(Protocol):
    """Makes spans. One begun inside another, also in a task that it starts, is its child."""

    def span(self, name: str, attributes: Mapping[str, Any] | None = None) -> AbstractContextManager[Span]:
        """A span for as long as the block runs; an exception that leaves it is recorded."""

    def shutdown(self) -> None:
        """Send what is waiting."""


class _Nothing:
    """Tracing that is off, its span, and the block around it: one object for everything."""

    __slots__ = ()

    def span(self, name: str, attributes: Mapping[str, Any] | None = None) -> AbstractContextManager[Span]:
        return self

    def shutdown(self) -> None:
        return

    def note(self, name: str, value: str | int | float | bool | Sequence[str]) -> None:
        return

    def fail(self, message: str) -> None:
        return

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


OFF: Tracing = _Nothing()


def configured(service: str, endpoint: str = "", environment: Mapping[str, str] | None = None) -> Tracing:
    """Tracing as the environment says; `OFF` when it says nothing.

    Args:
        service: the service's name, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` has another.
        endpoint: URL of an OTLP collector, instead of the variables' one.

    Raises:
        DrakkarError: an exporter that does not exist, or is not installed (with the package that has it).
    """
    given = os.environ if environment is None else environment
    wanted = _wanted(given, endpoint)
    if wanted is None:
        return OFF
    try:
        from drakkar.drivers.kit import otel
    except ModuleNotFoundError as error:
        raise DrakkarError(
            f"spans need the OpenTelemetry SDK: {error.name} is not installed",
            reason="ExtraMissing",
            subject=error.name or "",
            next_step=_EXTRA,
        ) from error
    return otel.Spans(_exporter(wanted, endpoint), service)


def _wanted(given: Mapping[str, str], endpoint: str) -> str | None:
    """A key of `_EXPORTERS`, another entry point's name, or None for off."""
    if given.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    chosen = given.get("OTEL_TRACES_EXPORTER", "").strip()
    if not chosen:
        chosen = "otlp" if endpoint or any(given.get(name, "").strip() for name in _ENDPOINTS) else "none"
    if chosen == "none":
        return None
    if "," in chosen:
        raise DrakkarError(
            f"OTEL_TRACES_EXPORTER {chosen!r} names several exporters",
            reason="UnknownExporter",
            expected="one of otlp, console, none",
        )
    if chosen != "otlp":
        return chosen
    return next((given[name].strip() for name in _PROTOCOLS if given.get(name, "").strip()), "http/protobuf")


def _exporter(wanted: str, endpoint: str) -> Any:
    from importlib.metadata import entry_points

    name, package = _EXPORTERS.get(wanted, (wanted, ""))
    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        known = sorted({one.name for one in entry_points(group=_GROUP)} | {"none", "otlp"})
        raise DrakkarError(
            f"the exporter {wanted!r} of spans is not installed",
            reason="ExporterMissing",
            subject=package or wanted,
            expected="one of " + ", ".join(known),
            next_step=f"pip install {package}" if package else "name another one in OTEL_TRACES_EXPORTER",
        )
    try:
        made = found[0].load()
        return made(endpoint=endpoint) if endpoint and name.startswith("otlp") else made()
    except (ImportError, TypeError, ValueError) as error:
        raise DrakkarError(
            f"the exporter {wanted!r} of spans cannot be used: {error}", reason="ExporterFailed", subject=wanted
        ) from error
