"""Small inputs for reviews: texts by file name, and the pieces that manifests are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import dedent
from typing import Any

from drakkar.migration.documents import Source, read_bytes
from drakkar.migration.findings import Finding
from drakkar.migration.lint import Context, lint


def sources(files: Mapping[str, str]) -> list[Source]:
    """The documents of texts by file name."""
    return [source for name, text in files.items() for source in read_bytes(dedent(text).encode(), name)]


def review(
    files: Mapping[str, str] | str, *, minor: int = 36, exporter: str = "", inventory: Iterable[Any] | None = None
) -> list[Finding]:
    """What is found in some files, or in one that is called m.yaml."""
    named = {"m.yaml": files} if isinstance(files, str) else files
    context = Context(f"1.{minor}", dcgm_exporter=exporter or "4.6.0-4.8.3")
    return lint(sources(named), inventory=inventory, context=context)


def found(files: Mapping[str, str] | str, **options: Any) -> list[tuple[str, str]]:
    """Code and path of what is found."""
    return [(finding.code, finding.path) for finding in review(files, **options)]


def template(
    request: str = "deviceClassName: gpu.nvidia.com", *, name: str = "t", more: str = "", head: str = ""
) -> str:
    """A ResourceClaimTemplate in namespace a; `request` are the fields under exactly, `more` those beside requests."""
    fields = "".join(f"\n          {line}" for line in dedent(request).strip().splitlines())
    beside = "".join(f"\n      {line}" for line in dedent(more).strip().splitlines())
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: {name}, namespace: a}}\n"
        f"spec:\n  spec:\n    devices:\n      requests:\n      - name: gpu\n        exactly:{fields}{beside}\n"
    )


def pod(spec: str = "", container: str = "", *, claim: str = "resourceClaimTemplateName: t", labels: str = "{}") -> str:
    """A Pod in namespace a whose container uses its claim `gpu`."""
    fields = "".join(f"\n  {line}" for line in dedent(spec).strip().splitlines())
    inside = "".join(f"\n    {line}" for line in dedent(container).strip().splitlines())
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: a, labels: {labels}}}\nspec:\n"
        f"  resourceClaims:\n  - name: gpu\n    {claim}\n"
        f"  containers:\n  - name: main\n    image: x{inside or ''}"
        + ("" if "resources:" in container else "\n    resources: {claims: [{name: gpu}]}")
        + f"{fields}\n"
    )


def cel(expression: str, class_name: str = "gpu.nvidia.com") -> str:
    """A template with one selector."""
    return template(f"deviceClassName: {class_name}\nselectors:\n- cel:\n    expression: {expression!r}")


def alert(expression: str, name: str = "Something", *, kind: str = "alert") -> str:
    """A PrometheusRule with one rule."""
    return (
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: r}\n"
        "spec:\n  groups:\n  - name: g\n"
        f"    rules:\n    - {kind}: {name}\n      expr: {expression!r}\n"
    )


DRA = "gpuResourcesEnabledOverride: true\nresources: {gpus: {enabled: true}, computeDomains: {enabled: false}}\n"
