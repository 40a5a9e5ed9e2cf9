"""Prometheus rules and Grafana dashboards that look for GPUs among extended resources.

kube-state-metrics knows neither claims nor slices (2.20), so the counts come from `drakkar metrics`; a quota's own
metric has the new name. A query that needs a label which the new metric does not have is refused: a wrong number would
look like a right one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from drakkar.migration.converting.devices import DOMAIN, DeviceType, device_class, device_type, profile_class
from drakkar.migration.converting.work import Work
from drakkar.migration.documents import Steps
from drakkar.migration.promql import Call, Expression, PromqlError, Selector, parse, walk

__all__ = ["convert_queries", "has_queries"]

_METRICS: Final = (
    r"kube_(?:pod_container_resource_(?:limits|requests)|node_status_(?:allocatable|capacity)|resourcequota)"
)
_SELECTOR: Final = re.compile(rf"""\b({_METRICS})\s*\{{((?:[^{{}}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}}""")
_RESOURCE: Final = re.compile(r"""\bresource\s*=\s*["'](?P<name>[^"']*)["']""")
_GONE: Final = re.compile(r"\b(device_plugin_[a-z_]+|kubelet_device_plugin_[a-z_]+)\b")
_OTHER_LABELS: Final = re.compile(r"""(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_QUERY_FIELDS: Final = frozenset({"expr", "query", "definition"})


def has_queries(value: Any) -> bool:
    """Whether a value looks like rules or a dashboard."""
    if not isinstance(value, dict):
        return False
    kind = value.get("kind")
    return (
        kind in ("PrometheusRule", "GrafanaDashboard")
        or (kind is None and ("groups" in value or "panels" in value or "serverFiles" in value))
        or (kind == "ConfigMap" and isinstance(value.get("data"), dict))
    )


def convert_queries(work: Work) -> None:
    """Rewrite every query of a rule file or dashboard, also of dashboards inside ConfigMaps."""
    if work.settings.to != "claims":
        return
    _walk(work, (), work.value)


def _walk(work: Work, steps: Steps, value: Any) -> None:
    items: Iterator[tuple[str | int, Any]]
    if isinstance(value, dict):
        items = iter(list(value.items()))
    elif isinstance(value, list):
        items = iter(list(enumerate(value)))
    else:
        return
    for key, inner in items:
        place = (*steps, key)
        if isinstance(inner, str):
            if key in _QUERY_FIELDS:
                value[key] = _converted(work, place, inner)
            elif _embedded(work, steps, key):
                value[key] = _document_inside(work, place, inner)
        else:
            _walk(work, place, inner)


def _embedded(work: Work, steps: Steps, key: str | int) -> bool:
    if work.document.kind == "ConfigMap":
        return steps == ("data",)
    return work.document.kind == "GrafanaDashboard" and key == "json"


def _document_inside(work: Work, place: Steps, text: str) -> str:
    """A dashboard as text (or rules): each query replaced where it stands, so that the rest stays as it was."""
    for old in dict.fromkeys(_queries(text)):
        new = _converted(work, place, old)
        if new != old:
            for quoted_old, quoted_new in (
                (json.dumps(old), json.dumps(new)),
                (json.dumps(old, ensure_ascii=False), json.dumps(new, ensure_ascii=False)),
                (old, new),
            ):
                if quoted_old in text:
                    text = text.replace(quoted_old, quoted_new)
                    break
    return text


def _queries(text: str) -> Iterator[str]:
    from drakkar.kube import yamltext

    try:
        inside = yamltext.load(text) if len(text) < 4 << 20 else None
    except yamltext.YamlError:
        return
    pending = [inside]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in _QUERY_FIELDS and isinstance(inner, str):
                    yield inner
                else:
                    pending.append(inner)
        elif isinstance(value, list):
            pending += value


def _converted(work: Work, place: Steps, text: str) -> str:
    """A query with the old metrics replaced; the text as it was where there are none or they cannot be."""
    gone = _GONE.search(text)
    if gone:
        work.refuse(
            "metric-gone", place, f"{gone[1]} is the device plugin's own metric; nodes with the DRA driver have none"
        )
        return text
    found = [match for match in _SELECTOR.finditer(text) if _device(match) is not None]
    if not found:
        return text
    if not _counts_only(text) and any(match[1] != "kube_resourcequota" for match in found):
        message = (
            f"{found[0][1]} is wanted by labels that no metric of claims has; kube_pod_resourceclaim_info"
            " (kube-state-metrics)"
            " names the claims of pods, drakkar_devices the devices of nodes"
        )
        work.refuse("query-by-pod", place, message)
        return text
    for match in found:
        kind = _device(match)
        if kind is not None and kind.profile:
            name = profile_class(kind.profile)
            work.classes.setdefault(name, device_class(name, kind.profile))
    made = _SELECTOR.sub(_replacement, text)
    work.note("changed", "query", place, f"{text.strip()} becomes {made.strip()}")
    return made


def _device(match: re.Match[str]) -> DeviceType | None:
    named = _RESOURCE.search(match[2])
    if named is None:
        return None
    name = named["name"].removeprefix("requests.")
    if name.startswith("nvidia_com_"):
        name = "nvidia.com/" + name.removeprefix("nvidia_com_").replace("mig_", "mig-")
        name = re.sub(
            r"mig-(\d+g)_(\d+gb)(?:_(\w+))?$", lambda m: f"mig-{m[1]}.{m[2]}" + (f".{m[3]}" if m[3] else ""), name
        )
    return device_type(name)


def _replacement(match: re.Match[str]) -> str:
    kind = _device(match)
    if kind is None:
        return match[0]
    others = [
        f"{name}{sign}{value}"
        for name, sign, value in _OTHER_LABELS.findall(match[2])
        if name not in ("resource", "unit")
    ]
    if match[1] == "kube_resourcequota":
        class_name = profile_class(kind.profile) if kind.profile else DOMAIN
        resource = f'resource="{class_name}.deviceclass.resource.k8s.io/devices"'
        return f"kube_resourcequota{{{', '.join([resource, *others])}}}"
    if kind.profile:
        labels = [f'deviceclass="{profile_class(kind.profile)}"']
        name = "drakkar_class_devices"
    else:
        labels = [f'driver="{DOMAIN}"', 'type="gpu"']
        name = "drakkar_devices"
    if "pod_container" in match[1]:
        labels.append('state="held"')
    return f"{name}{{{', '.join([*labels, *others])}}}"


def _counts_only(text: str) -> bool:
    """Whether every old metric is summed up to the cluster or to nodes, and asked for by no other label."""
    if "without" in text or "$" in text:
        return False
    try:
        tree = parse(text)
    except PromqlError:
        return False
    return all(_fits(node, above) for node, above in walk(tree) if isinstance(node, Selector))


def _fits(selector: Selector, above: tuple[Expression, ...]) -> bool:
    if not selector.metric.startswith(("kube_pod_container_resource", "kube_node_status")):
        return True
    labels = {matcher.label for matcher in selector.matchers} - {"resource", "unit"}
    nearest = next((node for node in reversed(above) if isinstance(node, Call)), None)
    profile = any("mig" in matcher.value for matcher in selector.matchers if matcher.label == "resource")
    allowed = set() if profile else {"node"}
    return nearest is not None and nearest.name == "sum" and set(nearest.by) <= allowed and labels <= allowed
