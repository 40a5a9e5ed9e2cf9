"""Rules over series that do not exist: metrics nobody exports, and metrics without values for MIG instances."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from drakkar.migration.alerts import Alert, alerts_of
from drakkar.migration.findings import Finding
from drakkar.migration.metrics import MIG_INSTEAD, fields
from drakkar.migration.promql import Call, Selector
from drakkar.migration.review import Review
from drakkar.migration.rules import rule

_INSTANCE: Final = ("GPU_I_ID", "GPU_I_PROFILE")
_MIG_NAME: Final = re.compile(r"(?:^|[^a-z])mig(?:[^a-z]|$)|MIG")
_NOT_IN_KSM: Final = ("kube_resourceclaim_", "kube_resourceslice_", "kube_deviceclass_", "kube_resourceclaimtemplate_")


def exported(review: Review) -> set[str] | None:
    """Metrics that the counter files of the input export; None if there is none."""
    if not review.counter_files:
        return None
    return {columns[0] for csv in review.counter_files for _, columns in csv.rows()}


@rule("series")
def absent(review: Review) -> Iterator[Finding]:
    """Metrics that no counter file in the input exports."""
    known = exported(review)
    for alert in alerts_of(review):
        for metric in alert.metrics:
            if known is not None and metric.startswith("DCGM_") and metric not in known:
                yield alert.finding(
                    "rule-metric-absent",
                    f"no counter file here exports {metric}, so the expression has no data; add its line to the file",
                    metric,
                )
            elif metric.startswith(_NOT_IN_KSM) and _has_state_metrics(review):
                yield alert.finding(
                    "rule-metric-absent",
                    f"kube-state-metrics exports no {metric}; of claims it has kube_pod_resourceclaim_info only",
                )


def _has_state_metrics(review: Review) -> bool:
    return any("/kube-state-metrics" in f"/{box.image}" for pod in review.pods for box in pod.containers)


@rule("series")
def no_mig_data(review: Review) -> Iterator[Finding]:
    """Metrics of the whole GPU, asked per MIG instance."""
    for alert in alerts_of(review):
        reported = set()
        for selector, above in alert.selectors():
            field = fields().get(selector.metric)
            if (
                field is None
                or field.mig != "blank"
                or selector.metric in reported
                or not _per_instance(alert, selector, above)
            ):
                continue
            reported.add(selector.metric)
            instead = MIG_INSTEAD.get(selector.metric, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
            yield alert.finding(
                "rule-no-mig-data",
                f"{selector.metric} has no values for MIG instances (a GPU in MIG mode yields none at all); use"
                f" {instead}"
                " (0 to 1)",
                instead,
            )


def _per_instance(alert: Alert, selector: Selector, above: tuple[object, ...]) -> bool:
    for matcher in selector.matchers:
        if matcher.label in _INSTANCE:
            return not matcher.matches("")
    grouped = any(isinstance(node, Call) and set(node.by) & set(_INSTANCE) for node in above)
    return grouped or bool(_MIG_NAME.search(alert.name))
