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
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
_LABELS = {
    "batch.kubernetes.io/controller-uid": "uid",
    "controller-uid": "uid",
    "batch.kubernetes.io/job-name": "name",
    "job-name": "name",
}


def is_indexed(job: Mapping[str, Any]) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def limit_per_index(job: Mapping[str, Any]) -> int | None:
    """How often each index may fail (KEP-3850), None if only the whole job is limited."""
    limit = job["spec"].get("backoffLimitPerIndex")
    return None if limit is None else int(limit)


def make_pod(job: Object, index: int | None, replaced: Mapping[str, Any] | None = None) -> Object:
    """A pod to create, for completion `index` of an indexed job, after `replaced` failed."""
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
        if limit_per_index(job) is not None:
            metadata["annotations"] |= _failure_counts(job, replaced)
        pod["spec"]["hostname"] = name
        for kind in ("containers", "initContainers"):
            if pod["spec"].get(kind):
                pod["spec"][kind] = [_with_index_variable(one) for one in pod["spec"][kind]]
    return pod


def _failure_counts(job: Object, replaced: Mapping[str, Any] | None) -> dict[str, str]:
    counted, ignored = 0, 0
    if replaced is not None:
        counted, ignored = failures_of(replaced), failures_of(replaced, IGNORED_FAILURES)
        if failure_action(replaced, job)[0] == "Ignore":
            ignored += 1
        else:
            counted += 1
    return {FAILURES: str(counted)} | ({IGNORED_FAILURES: str(ignored)} if ignored else {})


def failures_of(pod: Mapping[str, Any], annotation: str = FAILURES) -> int:
    """How often the pod's index had failed when the pod was made."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation) or "0"
    return int(text) if text.isdecimal() else 0


def fails_index(pod: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether the end of this failed pod is the end of its index."""
    limit = limit_per_index(job)
    action = failure_action(pod, job)[0]
    return limit is not None and (action == "FailIndex" or (action != "Ignore" and failures_of(pod) >= limit))


def success_rule(job: Mapping[str, Any], succeeded: set[int]) -> str:
    """What Kubernetes says of the first rule of the success policy (KEP-3998) that is met; empty if none is."""
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        wanted = parse_indexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        counted = succeeded if wanted is None else succeeded & wanted
        count = rule.get("succeededCount")
        if (wanted is not None and wanted <= succeeded) or (count is not None and len(counted) >= int(count)):
            return f"Matched rules at index {number}"
    return ""


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


def failure_action(pod: Mapping[str, Any], job: Mapping[str, Any]) -> tuple[str, str]:
    """What the pod failure policy (KEP-3329) has for a failed pod, and what it says; empty texts if no rule matches."""
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
