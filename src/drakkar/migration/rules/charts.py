"""The chart of the GPU driver: its address, values it aborts on or does not have, and gates that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from drakkar.migration.charts import Values
from drakkar.migration.documents import Document, Steps
from drakkar.migration.findings import Finding
from drakkar.migration.review import Review
from drakkar.migration.rules import rule


class Chart(msgspec.Struct, frozen=True):
    """A chart: its address, names it is called by, its values (None: anything), its gates and their conflicts.

    `needs` are (gate, needed gate, whether the needed one is on by default).
    """

    path: str
    names: list[str]
    values: dict[str, Any]
    gates: list[str]
    exclusive: list[tuple[str, str]]
    needs: list[tuple[str, str, bool]]


class PartOfChart(msgspec.Struct, frozen=True):
    """A chart of which some values are known: enough to see that a name is misspelt, not that it is unknown."""

    values: list[str]


class Charts(msgspec.Struct, frozen=True, rename="kebab"):
    """The charts of the table."""

    dra: Chart
    operator: PartOfChart
    dcgm_exporter: PartOfChart


@cache
def _charts() -> Charts:
    data = files("drakkar.migration").joinpath("data/charts.json").read_bytes()
    return msgspec.json.decode(data, type=Charts)


def chart_table() -> Chart:
    """NVIDIA's chart: its names, values, gates and their conflicts."""
    return _charts().dra


_REPOSITORY: Final = "registry.k8s.io/dra-driver-nvidia"
_PLACES: Final[tuple[tuple[str, Steps, Steps], ...]] = (
    ("HelmRelease", ("spec", "chart", "spec", "chart"), ()),
    ("HelmChart", ("spec", "chart"), ("spec", "repo")),
    ("Application", ("spec", "source", "chart"), ("spec", "source", "repoURL")),
)
"""Kinds that name a chart, where, and where its repository stands."""


@rule("charts")
def chart_path(review: Review) -> Iterator[Finding]:
    """Addresses under which the chart is not."""
    repositories = {document.name: document for document in review.kind("HelmRepository")}
    for document in review.kind("OCIRepository"):
        yield from _address(document, ("spec", "url"), document.at(("spec", "url")))
    for kind, chart, repo in _PLACES:
        for document in review.kind(kind):
            yield from _named(document, chart, repo, repositories)
    for document in review.documents:
        for field, key in (("dependencies", "repository"), ("helmCharts", "repo")):
            entries = document.value.get(field)
            for number, entry in enumerate(entries if isinstance(entries, list) else ()):
                if isinstance(entry, dict) and entry.get("name") in _charts().dra.names:
                    url = f"{entry.get(key, '')}/{entry['name']}"
                    yield from _address(document, (field, number, key), url)


def _named(document: Document, chart: Steps, repo: Steps, repositories: Mapping[str, Document]) -> Iterator[Finding]:
    name = document.at(chart)
    if not isinstance(name, str):
        return
    if "/" in name:
        yield from _address(document, chart, name)
    elif name in _charts().dra.names and repo:
        yield from _address(document, repo, f"{document.at(repo) or ''}/{name}")
    elif name in _charts().dra.names:
        reference = document.at((*chart[:-1], "sourceRef", "name"))
        repository = repositories.get(str(reference))
        if repository is not None:
            url = repository.at(("spec", "url"))
            yield from _address(repository, ("spec", "url"), f"{url}/{name}")


def _address(document: Document, steps: Steps, url: Any) -> Iterator[Finding]:
    if not isinstance(url, str):
        return
    chart = _charts().dra
    address = url.partition("://")[2] or url
    parts = [part for part in address.rstrip("/").split("/") if part]
    if not parts or parts[-1] not in chart.names or address.rstrip("/").endswith(chart.path.partition("/")[2]):
        return
    old = parts[-1] != chart.names[0]
    if old or address.startswith(_REPOSITORY):
        yield document.finding(
            "chart-path-wrong",
            steps,
            f"the chart is not at {url}; it is oci://{chart.path}",
            f"oci://{chart.path}",
        )


@rule("charts")
def override(review: Review) -> Iterator[Finding]:
    """GPUs enabled without the override that the chart asks for."""
    for values in review.chart("dra"):
        if values.get("resources", "gpus", "enabled") is True and values.get("gpuResourcesEnabledOverride") is not True:
            yield values.finding(
                "chart-override-missing",
                ("resources", "gpus", "enabled"),
                "with resources.gpus.enabled the chart aborts unless gpuResourcesEnabledOverride is true",
                "gpuResourcesEnabledOverride: true",
            )


@rule("charts")
def unknown_values(review: Review) -> Iterator[Finding]:
    """Values and gates that the chart does not have."""
    for values in review.chart("dra"):
        yield from _unknown(values, (), values.values, _charts().dra.values)
        for gate in values.mapping("featureGates"):
            if gate not in _charts().dra.gates:
                near = _near(gate, _charts().dra.gates)
                message = f"the driver has no feature gate {gate}{near}; it refuses to start"
                yield values.finding("chart-value-unknown", ("featureGates", gate), message)


@rule("charts")
def misspelt_values(review: Review) -> Iterator[Finding]:
    """Top-level values of other charts that are known but for their spelling."""
    for name, chart in (("operator", _charts().operator), ("dcgm-exporter", _charts().dcgm_exporter)):
        for values in review.chart(name):
            for key in values.values:
                near = next((known for known in chart.values if known.lower() == key.lower()), "")
                if key not in chart.values and near:
                    message = f"the chart {name} has no value {key}, so it is ignored; did you mean {near}?"
                    yield values.finding("chart-value-unknown", (key,), message, near)


def _unknown(values: Values, steps: tuple[str, ...], value: Any, known: Mapping[str, Any]) -> Iterator[Finding]:
    for name, inner in value.items() if isinstance(value, dict) else ():
        place = (*steps, name)
        if name not in known:
            yield values.finding(
                "chart-value-unknown",
                place,
                f"the chart dra-driver-nvidia-gpu has no value {'.'.join(place)}, so it is"
                f" ignored{_near(name, list(known))}",
            )
        elif isinstance(known[name], dict):
            yield from _unknown(values, place, inner, known[name])


def _near(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


@rule("charts")
def exclusive_gates(review: Review) -> Iterator[Finding]:
    """Gates that the driver refuses together, or without another one."""
    chart = _charts().dra
    for values in review.chart("dra"):
        gates = values.mapping("featureGates")
        for first, second in chart.exclusive:
            if gates.get(first) is True and gates.get(second) is True:
                yield values.finding(
                    "gates-exclusive",
                    ("featureGates",),
                    f"the driver refuses to start with {first} and {second} together; switch one of them off",
                )
        for gate, needed, default in chart.needs:
            wanted = gates.get(gate, default) is True
            if wanted and (gate in gates or needed in gates) and gates.get(needed, default) is not True:
                yield values.finding(
                    "gates-exclusive",
                    ("featureGates",),
                    f"the driver refuses to start with {gate} but without {needed}",
                )
