"""Whether the chart can follow what is installed: renames, no way back, releases that hang; gates that conflict.

NVIDIA's chart was called `nvidia-dra-driver-gpu` before 0.4.0. Names and selectors of its objects come from the chart's
name and a DaemonSet's selector cannot change, so an upgrade over that line needs `nameOverride`; otherwise a second set
of plugins starts beside the first. State on the nodes is read by newer drivers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drakkar.migration.context import release as numbers
from drakkar.migration.preflight.facts import ClusterFacts, Release
from drakkar.migration.preflight.plan import NVIDIA, Plan
from drakkar.migration.preflight.results import FAILED, OK, UNKNOWN, WARNING, Result
from drakkar.migration.rules.charts import chart_table

_OLD_NAME: Final = "nvidia-dra-driver-gpu"
_RENAMED_IN: Final = (0, 4, 0)
_HANGING: Final = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


def history(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """What was installed before, and whether the planned version can follow it."""
    if facts.releases is None:
        message = f"what was installed before is unknown: {facts.why('releases')}"
        yield Result(
            "chart-history", UNKNOWN, plan.chart, message, "let the caller read Secrets of type helm.sh/release.v1"
        )
        return
    ours = [one for one in facts.releases if one.chart in plan.names and (not plan.release or one.name == plan.release)]
    if not ours:
        yield Result("chart-history", OK, plan.chart, f"no release of {plan.chart} yet: this is a first installation")
        return
    latest = {(one.namespace, one.name): one for one in ours}  # releases come with the oldest revision first
    problems = [result for one in latest.values() for result in _follows(one, ours, plan)]
    yield from problems
    if not problems:
        listed = ", ".join(f"{one.name} {one.version}" for one in latest.values())
        yield Result("chart-history", OK, listed, f"{plan.chart} {plan.target} can follow {listed}")
    if len(latest) > 1:
        listed = ", ".join(f"{one.namespace}/{one.name}" for one in latest.values())
        message = f"there are {len(latest)} releases of the same driver: {listed}"
        yield Result("chart-history", FAILED, listed, message, "uninstall all but one; name the other with --release")


def _follows(present: Release, every: list[Release], plan: Plan) -> Iterator[Result]:
    subject = f"release {present.namespace}/{present.name}"
    if present.status in _HANGING:
        message = f"{present.name} is in the state {present.status}: an earlier helm command did not end"
        yield Result("chart-history", FAILED, subject, message, f"helm rollback {present.name} -n {present.namespace}")
    elif present.status == "failed":
        message = f"the last revision of {present.name} failed"
        yield Result("chart-history", WARNING, subject, message, f"helm history {present.name} -n {present.namespace}")
    target = numbers(plan.target)
    own = [one for one in every if (one.namespace, one.name) == (present.namespace, present.name)]
    newest = max(own, key=lambda one: (numbers(one.version), one.revision))
    if target < numbers(newest.version):
        seen = "runs" if newest is present else f"ran as revision {newest.revision}"
        yield Result(
            "chart-history",
            FAILED,
            subject,
            f"{newest.version} {seen}, {plan.target} is older: an older driver cannot read its state on the nodes",
            f"install {newest.version} or newer, or drain the nodes and uninstall first (drakkar preflight uninstall)",
        )
    crosses = present.chart == _OLD_NAME or numbers(present.version) < _RENAMED_IN <= target
    if plan.chart == NVIDIA and crosses and plan.get("nameOverride") != _OLD_NAME:
        yield Result(
            "chart-history",
            FAILED,
            subject,
            f"{present.chart} {present.version} was renamed to {NVIDIA} in 0.4.0: without nameOverride the old plugins"
            " go on beside the new ones",
            f"set nameOverride: {_OLD_NAME} in the values",
        )


def exclusive_gates(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """Features that the driver refuses together, or without another one."""
    table = chart_table()
    on = plan.gates
    fine = True
    for first, second in table.exclusive:
        if on.get(first) and on.get(second):
            fine = False
            message = f"the driver refuses to start with {first} and {second} together"
            yield Result("exclusive-gates", FAILED, f"{first}, {second}", message, "switch one of them off")
    for gate, needed, default in table.needs if plan.chart == NVIDIA else ():
        if on.get(gate, default) and (gate in on or needed in on) and not on.get(needed, default):
            fine = False
            message = f"the driver refuses to start with {gate} but without {needed}"
            yield Result("exclusive-gates", FAILED, gate, message, f"switch {needed} on, or {gate} off")
    if plan.chart == NVIDIA:
        enabled = plan.get("resources", "gpus", "enabled") is True
        if enabled and plan.get("gpuResourcesEnabledOverride") is not True:
            fine = False
            message = "with resources.gpus.enabled the chart aborts unless gpuResourcesEnabledOverride is true"
            yield Result("exclusive-gates", FAILED, "gpuResourcesEnabledOverride", message, "set it to true")
    if fine:
        yield Result("exclusive-gates", OK, ", ".join(name for name, it in on.items() if it) or "values", "no conflict")
