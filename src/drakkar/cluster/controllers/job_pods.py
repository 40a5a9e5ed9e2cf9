"""Pods of a Job: how they are made, which completion index they work on, and what their end means.

Completion indexes are kept as text ranges ("0-2,5"), as Kubernetes writes them in `status.completedIndexes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drakkar.cluster.controllers import pods
from drakkar.kube.resources import JOBS

Object = dict[str, Any]

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_LABELS = {
    "batch.kubernetes.io/controller-uid": "uid",
    "controller-uid": "uid",
    "batch.kubernetes.io/job-name": "name",
    "job-name": "name",
}


def is_indexed(job: Mapping[str, Any]) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def make_pod(job: Object, index: int | None) -> Object:
    """A pod to create, for completion `index` of an indexed job."""
    pod = pods.from_template(job["spec"]["template"], job, JOBS)
    metadata = pod["metadata"]
    marks = {label: job["metadata"][field] for label, field in _LABELS.items()}
    metadata["labels"] = {**(metadata.get("labels") or {}), **marks}
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), FINALIZER]
    if index is not None:
        name = f"{job['metadata']['name']}-{index}"
        metadata["generateName"] = name + "-"
        metadata["labels"][INDEX] = str(index)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX: str(index)}
        pod["spec"]["hostname"] = name
        for kind in ("containers", "initContainers"):
            if pod["spec"].get(kind):
                pod["spec"][kind] = [_with_index_variable(one) for one in pod["spec"][kind]]
    return pod


def index_of(pod: Mapping[str, Any]) -> int | None:
    """The completion index a pod works on; None if it has none that can be read."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return int(text) if text is not None and text.isdecimal() else None


def is_tracked(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's end still has to be counted."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def has_succeeded(pod: Mapping[str, Any]) -> bool:
    return pods.phase(pod) == "Succeeded"


def has_failed(pod: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Failed, or on its way out while the job replaces terminating pods at once."""
    if pods.phase(pod) == "Failed":
        return True
    replaces_early = job["spec"].get("podReplacementPolicy", "TerminatingOrFailed") == "TerminatingOrFailed"
    return replaces_early and pods.is_deleting(pod) and not has_succeeded(pod)


def ignored_by_policy(pod: Mapping[str, Any], job: Mapping[str, Any]) -> tuple[str, str]:
    """What the pod failure policy (KEP-3329) says of a failed pod: ("Ignore"|"FailJob"|"Count"|"", message)."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    for number, rule in enumerate(rules):
        message = _matches_rule(rule, pod)
        if message:
            return rule["action"], f"{message} matching {rule['action']} rule at index {number}"
    return "", ""


def parse_indexes(text: str) -> set[int]:
    """The indexes of a range text such as "0-2,5"."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Indexes as Kubernetes writes them: two neighbours as "1,2", more as "1-3"."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(str(index) for index in run) for run in runs)


def _with_index_variable(container: Mapping[str, Any]) -> Object:
    if any(one.get("name") == "JOB_COMPLETION_INDEX" for one in container.get("env") or ()):
        return dict(container)
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
    return {**container, "env": [*(container.get("env") or ()), variable]}


def _matches_rule(rule: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    codes = rule.get("onExitCodes")
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if codes:
        status = pod.get("status") or {}
        for one in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
            ended = (one.get("state") or {}).get("terminated")
            if not ended or not ended.get("exitCode") or codes.get("containerName", one["name"]) != one["name"]:
                continue
            listed = ended["exitCode"] in (codes.get("values") or ())
            if listed == (codes.get("operator") == "In"):
                return f"Container {one['name']} for pod {name} failed with exit code {ended['exitCode']}"
        return ""
    for wanted in rule.get("onPodConditions") or ():
        condition = pods.condition(pod, wanted["type"])
        if condition is not None and condition.get("status") == wanted.get("status", "True"):
            return f"Pod {name} has condition {wanted['type']}"
    return ""
