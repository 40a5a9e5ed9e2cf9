"""Helm values wherever they stand: in a values file, a Flux HelmRelease, an Argo CD Application, a ClusterPolicy.

A value that is not written is unknown, not the chart's default: somebody may set it elsewhere. `get` therefore answers
None for it, and rules say nothing, unless the absence itself is the mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drakkar.migration.documents import Document, Steps
from drakkar.migration.findings import Finding

__all__ = ["Values", "values_of"]

_CHARTS: Final = {
    "dra": "dra", "dra-driver": "dra", "dra-driver-nvidia-gpu": "dra", "nvidia-dra-driver-gpu": "dra",
    "k8s-dra-driver": "dra", "k8s-dra-driver-gpu": "dra",
    "operator": "operator", "gpu-operator": "operator",
    "dcgm-exporter": "dcgm-exporter", "karpenter": "karpenter", "kube-state-metrics": "kube-state-metrics",
}  # fmt: skip
_TELLING: Final = (
    ("dra", {"gpuResourcesEnabledOverride", "nvidiaDriverRoot"}),
    ("operator", {"devicePlugin", "migManager", "dcgmExporter"}),
    ("dcgm-exporter", {"kubernetesDRA"}),
    ("kube-state-metrics", {"metricLabelsAllowlist"}),
)


@dataclass(frozen=True)
class Values:
    """The values of one release: `chart` is dra, operator, dcgm-exporter, karpenter or kube-state-metrics."""

    document: Document
    prefix: Steps
    chart: str
    values: Mapping[str, Any]

    def get(self, *steps: str) -> Any:
        """What is written, None if nothing is."""
        return self.document.at((*self.prefix, *steps))

    def mapping(self, *steps: str) -> Mapping[str, Any]:
        """What is written where a mapping belongs, empty if nothing is."""
        value = self.get(*steps)
        return value if isinstance(value, dict) else {}

    def finding(self, code: str, steps: Iterable[str | int], message: str, fix: str = "") -> Finding:
        """A finding at a value."""
        return self.document.finding(code, (*self.prefix, *steps), message, fix)


def values_of(documents: Iterable[Document]) -> list[Values]:
    """Every set of values of a chart that is known here."""
    found = list(documents)
    repositories = {(doc.kind, doc.name): doc for doc in found if doc.kind in ("OCIRepository", "HelmChart")}
    return [values for document in found for values in _values(document, repositories)]


def _values(document: Document, repositories: Mapping[tuple[str, str], Document]) -> Iterator[Values]:
    if document.chart:
        chart = _CHARTS.get(document.chart) or _guess(document.value)
        if chart:
            yield Values(document, (), chart, document.value)
    elif document.kind == "ClusterPolicy" and document.group == "nvidia.com":
        spec = document.at(("spec",))
        yield Values(document, ("spec",), "operator", spec if isinstance(spec, dict) else {})
    elif document.kind == "HelmRelease":
        name = document.at(("spec", "chart", "spec", "chart")) or _referred(document, repositories)
        yield from _embedded(document, ("spec", "values"), str(name or ""))
    elif document.kind == "Application":
        source = document.at(("spec", "source", "chart")) or document.at(("spec", "source", "repoURL"))
        yield from _embedded(document, ("spec", "source", "helm", "valuesObject"), _last(str(source or "")))


def _embedded(document: Document, steps: Steps, name: str) -> Iterator[Values]:
    values = document.at(steps)
    if isinstance(values, dict):
        chart = _CHARTS.get(name) or _guess(values)
        if chart:
            yield Values(document, steps, chart, values)


def _referred(release: Document, repositories: Mapping[tuple[str, str], Document]) -> str:
    reference = release.at(("spec", "chartRef"))
    if not isinstance(reference, dict):
        return ""
    repository = repositories.get((str(reference.get("kind")), str(reference.get("name"))))
    return _last(str(repository.at(("spec", "url")) or "")) if repository else ""


def _last(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def _guess(values: Mapping[str, Any]) -> str:
    return next((chart for chart, keys in _TELLING if keys & values.keys()), "")
