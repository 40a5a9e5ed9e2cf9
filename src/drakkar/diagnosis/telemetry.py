"""Wrong numbers about a path that works: series that are missing, cannot be tied to a pod, or never go away.

Scrapes in Prometheus text format are compared with what the slices publish, who holds it, and what nodes show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from drakkar.api.identities import DeviceKey
from drakkar.diagnosis.situation import GPU_DRIVER, Situation
from drakkar.diagnosis.verdict import Evidence, Finding
from drakkar.evidence.records import device_attribute
from drakkar.evidence.snapshot import name_of, namespace_of, reference

__all__ = ["Sample", "findings", "samples"]

Object = dict[str, Any]
_XID: Final = "DCGM_FI_DEV_XID_ERRORS"
_APPLICATION_XIDS: Final = frozenset({"13", "31", "43", "45", "68", "109"})  # faults of programs, not of hardware
_SHOWN: Final = 4


class Sample(NamedTuple):
    """One line of a scrape."""

    name: str
    labels: Mapping[str, str]
    value: str

    @property
    def host(self) -> str:
        """The node: exporters changed the label's spelling."""
        return self.labels.get("Hostname") or self.labels.get("hostname") or ""


def findings(situation: Situation) -> Iterator[Finding]:
    """What the scrapes get wrong."""
    scrapes = {file: list(samples(text)) for file, text in situation.snapshot.metrics.items()}
    yield from _idle_missing(situation, scrapes)
    yield from _not_attributable(situation, scrapes)
    yield from _sticky(situation, scrapes)
    yield from _message_limit(situation)
    yield from _renamed_labels(situation, scrapes)
    yield from _absent(situation, scrapes)
    yield from _historic_capacity(situation)


def samples(text: str) -> Iterator[Sample]:
    """The samples of a scrape; comments and broken lines are passed over."""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None:
            yield Sample(match[1], dict(_LABEL.findall(match[2] or "")), match[3])


_LINE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


def _idle_missing(situation: Situation, scrapes: Mapping[str, list[Sample]]) -> Iterator[Finding]:
    exporter = _exporter(situation)
    evidence: list[Evidence] = []
    nodes: list[str] = []
    for file, lines in scrapes.items():
        seen = {
            sample.labels["UUID"] for sample in lines if sample.name.startswith("DCGM_") and "UUID" in sample.labels
        }
        host = next((sample.host for sample in lines if sample.host), "")
        published = {
            device_attribute(situation.snapshot, item.key, "uuid"): item.key
            for item in situation.devices
            if item.node == host and not item.device.get("consumesCounters")
        }
        missing = {uuid: key for uuid, key in published.items() if uuid and uuid not in seen}
        absent = ", ".join(map(str, missing.values()))
        if not seen or not missing or any(key in situation.holders for key in missing.values()):
            continue
        capture = situation.snapshot.nodes.get(host)
        listed = [gpu.uuid for gpu in capture.gpus] if capture is not None and capture.gpus else []
        if listed and not all(uuid in listed for uuid in missing):
            continue
        nodes.append(host)
        evidence.append(
            Evidence(
                f"{host}: series for {len(seen)} of {len(published)} GPUs; without series: {absent}",
                f"metrics/{file}",
            )
        )
        evidence.append(Evidence(f"no claim holds {absent}"))
        if listed:
            evidence.append(Evidence(f"nvidia-smi on {host} lists {len(listed)} GPUs", f"{host} nvidia-smi-L.txt"))
    if not nodes or exporter is None:
        return
    version = _exporter_version(situation, exporter)
    yield Finding(
        "idle-gpus-missing",
        reference(exporter),
        f"{name_of(exporter)} {version} exports no series for idle GPUs; those on {', '.join(nodes)} are there",
        (Evidence(f"exporter version {version}", f"{reference(exporter)} image"), *evidence),
        "upgrade dcgm-exporter to 4.6.0 or newer",
    )


def _not_attributable(situation: Situation, scrapes: Mapping[str, list[Sample]]) -> Iterator[Finding]:
    for file, lines in scrapes.items():
        orphans = [
            s for s in lines if s.labels.get("GPU_I_ID") and not s.labels.get("pod") and s.name.startswith("DCGM_")
        ]
        host = next((sample.host for sample in orphans if sample.host), "")
        held = [
            key
            for key in situation.holders
            if key.pool == host and _is_mig(situation, key) and not device_attribute(situation.snapshot, key, "uuid")
        ]
        if not orphans or len(held) < 2:
            continue
        instances = sorted({(s.labels.get("GPU_I_PROFILE", ""), s.labels["GPU_I_ID"]) for s in orphans})
        users = [f"{key.device} by {namespace_of(c)}/{name_of(c)}" for key in held for c in situation.holders[key]]
        capture = situation.snapshot.nodes.get(host)
        if capture is not None and (capture.has("mig-lgi.txt") or capture.driver_claims):
            continue
        yield Finding(
            "not-attributable",
            f"Node/{host}",
            f"series of {host} name MIG instances by GPU_I_ID ({', '.join(f'{p} {i}' for p, i in instances)}), slices"
            " name neither these ids nor UUIDs: the data cannot tell which pod has which",
            (
                Evidence(f"GPU_I_ID {', '.join(i for _, i in instances)} without a pod label", f"metrics/{file}"),
                *(Evidence(f"{text}: no uuid attribute in the slice") for text in users),
            ),
            f"nvidia-smi -L, nvidia-smi mig -lgi, or the driver's checkpoint on {host} would decide",
        )


def _is_mig(situation: Situation, key: DeviceKey) -> bool:
    return device_attribute(situation.snapshot, key, "type") == "mig" or "-mig-" in key.device


def _sticky(situation: Situation, scrapes: Mapping[str, list[Sample]]) -> Iterator[Finding]:
    series: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for file, lines in sorted(scrapes.items()):
        for sample in lines:
            if sample.name == _XID and sample.value not in ("0", "0.0"):
                series.setdefault((sample.host, sample.labels.get("UUID", "")), []).append((file, sample.value))
    for (host, uuid), values in series.items():
        if len({file for file, _ in values}) < 2 or len({value for _, value in values}) != 1:
            continue
        code = values[0][1].partition(".")[0]
        capture = situation.snapshot.nodes.get(host)
        logged = capture.journal_lines("Xid") if capture is not None else []
        if len(logged) > 1:
            continue
        kind = " (a fault of the program, not of the GPU)" if code in _APPLICATION_XIDS else ""
        yield Finding(
            "sticky-gauge",
            f"Node/{host}",
            f"{_XID} stays at {code} on {host} since one event{kind}: the gauge keeps the last code",
            (
                *(Evidence(f"{_XID} {value} for {uuid}", f"metrics/{file}") for file, value in values[:_SHOWN]),
                *(Evidence(line.strip(), f"{host} journal.txt") for line in logged),
            ),
            "alert on DCGM_EXP_XID_ERRORS_TOTAL (exporter 4.8.3) or on changes of the gauge",
        )


def _message_limit(situation: Situation) -> Iterator[Finding]:
    for key, text in situation.snapshot.logs.items():
        if "exporter" not in key.pod and "exporter" not in key.container:
            continue
        line = next((line for line in text.splitlines() if "received message larger than max" in line), None)
        if line is not None:
            pod = situation.snapshot.get("Pod", key.pod, key.namespace)
            node = ((pod or {}).get("spec") or {}).get("nodeName", "")
            yield Finding(
                "exporter-message-limit",
                f"Node/{node}" if node else f"Pod/{key.namespace}/{key.pod}",
                f"the exporter on {node or key.pod} cannot read the kubelet's answer, which is larger than its limit:"
                f" {line.strip()}",
                (Evidence(line.strip(), f"log of {key.pod}/{key.container}"),),
                "raise the exporter's gRPC message limit, or upgrade it",
            )
            return


def _renamed_labels(situation: Situation, scrapes: Mapping[str, list[Sample]]) -> Iterator[Finding]:
    """``honorLabels: false`` turns ``pod`` into ``exported_pod``, and every query by pod finds the exporter instead."""
    for file, lines in scrapes.items():
        renamed = [sample for sample in lines if "exported_pod" in sample.labels and sample.name.startswith("DCGM_")]
        if renamed:
            labels = sorted({label for sample in renamed for label in sample.labels if label.startswith("exported_")})
            exporter = _exporter(situation)
            yield Finding(
                "label-rewrite",
                reference(exporter) if exporter is not None else f"Node/{renamed[0].host}",
                f"the scrape renames labels to {', '.join(labels)}, so queries by pod find the exporter itself",
                (Evidence(f"{renamed[0].name} has {', '.join(labels)}", f"metrics/{file}"),),
                "set honorLabels: true in the ServiceMonitor",
            )
            return


def _absent(situation: Situation, scrapes: Mapping[str, list[Sample]]) -> Iterator[Finding]:
    """Rules and dashboards that read a DCGM metric which no scrape has, although others are there."""
    exported = {sample.name for lines in scrapes.values() for sample in lines if sample.name.startswith("DCGM_")}
    if not exported:
        return
    for reader, text in _readers(situation):
        missing = sorted(set(_METRIC.findall(text)) - exported)
        if missing:
            yield Finding(
                "metric-absent",
                reference(reader),
                f"{reference(reader)} reads {', '.join(missing[:_SHOWN])}, which nothing exports",
                (
                    Evidence(f"reads {', '.join(missing[:_SHOWN])}", reference(reader)),
                    Evidence(f"{len(exported)} DCGM metrics are exported, not this one", ", ".join(sorted(scrapes))),
                ),
                "add the field to the exporter's counters file, or change the query",
            )


_METRIC: Final = re.compile(r"\bDCGM_(?:FI|EXP)_[A-Z0-9_]+\b")


def _readers(situation: Situation) -> Iterator[tuple[Object, str]]:
    """Objects with queries in them, and the queries' text."""
    for rule in situation.snapshot.all("PrometheusRule"):
        groups = (rule.get("spec") or {}).get("groups") or ()
        rules = [entry for group in groups for entry in group.get("rules") or ()]
        yield rule, "\n".join(str(entry.get("expr", "")) for entry in rules)
    for board in situation.snapshot.all("ConfigMap"):
        texts = [str(text) for name, text in (board.get("data") or {}).items() if name.endswith(".json")]
        yield board, "\n".join(text for text in texts if '"expr"' in text)


def _historic_capacity(situation: Situation) -> Iterator[Finding]:
    """A resource of an earlier layout that a node still lists with nothing to give."""
    for node in situation.snapshot.all("Node"):
        status = node.get("status") or {}
        allocatable = status.get("allocatable") or {}
        left = [
            name
            for name in status.get("capacity") or {}
            if name.startswith("nvidia.com/") and str(allocatable.get(name)) == "0"
        ]
        if left and not situation.slices_of(name_of(node), GPU_DRIVER):
            shown = ", ".join(f"{name}: {(status.get('capacity') or {})[name]}" for name in left)
            yield Finding(
                "historic-capacity",
                reference(node),
                f"{name_of(node)} still lists {shown} with nothing allocatable: left over from an earlier layout",
                (Evidence(f"capacity {shown}, allocatable 0", f"{reference(node)} status"),),
                "count allocatable, not capacity; the kubelet forgets the name at its next restart",
                "likely",
            )


def _exporter(situation: Situation) -> Object | None:
    return next((d for d in situation.snapshot.all("DaemonSet") if "dcgm-exporter" in name_of(d)), None)


def _exporter_version(situation: Situation, exporter: Object) -> str:
    for container in (exporter["spec"]["template"].get("spec") or {}).get("containers") or ():
        match = re.search(r"dcgm-exporter:v?([\d.]+-[\d.]+)", container.get("image", ""))
        if match:
            return match[1]
    return "of unknown version"
