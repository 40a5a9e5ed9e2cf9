"""Node groups and their autoscaler in a fleet file.

`groups` says what the provider has, `autoscaler` how cluster-autoscaler is set, in the names of its flags. Read as
strictly as the rest of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from drakkar.cluster.autoscaler.options import EXPANDERS, GROUP_LABEL, NodeGroup, Provisioning, Settings, Stockout
from drakkar.cluster.fleet_fields import (
    MAX_NODES,
    RACK_LABEL,
    ZONE_LABEL,
    Field,
    label_word,
    labels_of,
    model_of,
    taint_of,
)
from drakkar.errors import DrakkarError
from drakkar.kube import names

__all__ = ["AUTOSCALER_FIELDS", "read_groups", "read_settings"]

_GROUP_FIELDS: Final = (
    "name", "model", "min", "max", "initial", "zone", "rack", "labels", "taints", "startupTaints", "provisioning",
    "templateSlices", "partitions",
)  # fmt: skip
_PROVISIONING_FIELDS: Final = ("delay", "driverDelay", "failureRate", "quota", "refused", "stockouts")
_LONGEST_NAME: Final = 57  # a node's name has a number more and must be a label's value


def read_groups(field: Field) -> list[NodeGroup]:
    """The groups; raises `DrakkarError` with the path of what is wrong."""
    groups: list[NodeGroup] = []
    for entry in field.items("a list of node groups"):
        group = _group(entry)
        if any(group.name == other.name for other in groups):
            entry.child("name", group.name).wrong(f"a second group {group.name!r}", "another name")
        groups.append(group)
    total = sum(group.maximum for group in groups)
    if total > MAX_NODES:
        field.wrong(f"groups may have {total} nodes together", f"at most {MAX_NODES}")
    return groups


def read_settings(field: Field) -> Settings:
    """The settings; those that are not there have cluster-autoscaler's defaults."""
    if field.value is None:
        return Settings()
    known = field.mapping("settings of the autoscaler", tuple(AUTOSCALER_FIELDS))
    given = {
        AUTOSCALER_FIELDS[name][0]: AUTOSCALER_FIELDS[name][1](below)
        for name, below in known.items()
        if below.value is not None
    }
    settings = Settings(**given)
    if settings.max_node_group_backoff < settings.initial_node_group_backoff:
        known["maxNodeGroupBackoffDuration"].wrong(
            "the longest back-off is shorter than the first", "initialNodeGroupBackoffDuration or more"
        )
    if settings.priorities and "priority" not in settings.expander:
        known["priorities"].wrong("priorities count only for the priority expander", "expander: priority")
    return settings


def _group(entry: Field) -> NodeGroup:
    known = entry.mapping("a node group: name, model, max, …", _GROUP_FIELDS)
    name = known["name"].text("the name of the group; its nodes are called NAME-0, NAME-1 and so on")
    for complaint in names.dns_label(name) or names.label_value(name):
        known["name"].wrong(f"{name!r} cannot be the name of a group", complaint)
    if len(name) > _LONGEST_NAME:
        known["name"].wrong(f"{name!r} is too long", f"at most {_LONGEST_NAME} characters")
    least = known["min"].count(0)
    most = known["max"].count(max(1, least))
    initial = known["initial"].count(least)
    if most < 1:
        known["max"].wrong("a group without room for a node", "1 or more")
    if least > most:
        known["min"].wrong(f"min {least} is more than max {most}", f"at most {most}")
    if not least <= initial <= most:
        known["initial"].wrong(f"initial {initial} is not between min {least} and max {most}", f"{least} to {most}")
    labels = labels_of(known["labels"])
    for key, label in (("zone", ZONE_LABEL), ("rack", RACK_LABEL)):
        if known[key].value is not None:
            labels[label] = label_word(known[key])
    return NodeGroup(
        name=name,
        model=model_of(known["model"]),
        minimum=least,
        maximum=most,
        initial=initial,
        labels={**labels, GROUP_LABEL: name},
        taints=tuple(taint_of(one) for one in known["taints"].items("a list of taints")),
        startup_taints=tuple(taint_of(one) for one in known["startupTaints"].items("a list of taints")),
        provisioning=_provisioning(known["provisioning"]),
        template_slices=known["templateSlices"].flag(True),
        partitions=known["partitions"].flag(),
    )


def _provisioning(field: Field) -> Provisioning:
    if field.value is None:
        return Provisioning()
    known = field.mapping("how machines are made: delay, failureRate, …", _PROVISIONING_FIELDS)
    return Provisioning(
        delay=_delay(known["delay"]),
        driver_delay=known["driverDelay"].seconds() if known["driverDelay"].value is not None else 0.0,
        failure_rate=_share(known["failureRate"]),
        quota=known["quota"].count(0) if known["quota"].value is not None else None,
        refused=known["refused"].flag(),
        stockouts=tuple(_stockout(one) for one in known["stockouts"].items("a list of stockouts: after and for")),
    )


def _delay(field: Field) -> tuple[float, float]:
    """A duration, or a list of the shortest and the longest."""
    if field.value is None:
        return Provisioning().delay
    if not isinstance(field.value, list):
        seconds = field.seconds()
        return seconds, seconds
    ends = [one.seconds() for one in field.items("")]
    if len(ends) != 2 or ends[0] > ends[1]:
        field.wrong(f"{field.value!r} is no range of durations", "the shortest and the longest: [1m, 3m]")
    return ends[0], ends[1]


def _stockout(field: Field) -> Stockout:
    known = field.mapping("a stockout: after and for", ("after", "for"))
    after = known["after"].seconds() if known["after"].value is not None else 0.0
    return Stockout(after, known["for"].seconds() if known["for"].value is not None else None)


def _share(field: Field) -> float:
    if field.value is None:
        return 0.0
    if isinstance(field.value, bool) or not isinstance(field.value, int | float) or not 0 <= field.value <= 1:
        field.wrong(f"{field.value!r} is no share", "a number from 0 to 1")
    return float(field.value)


def _positive(field: Field) -> float:
    seconds = field.seconds()
    if seconds <= 0:
        field.wrong(f"{field.value!r} is no time to wait", "more than 0s")
    return seconds


def _at_least_one(field: Field) -> int:
    count = field.whole()
    if count < 1:
        field.wrong(f"{count} is too few", "1 or more")
    return count


def _not_negative(field: Field) -> int:
    count = field.whole()
    if count < 0:
        field.wrong(f"{count} is too few", "0 or more; 0 means without limit")
    return count


def _expanders(field: Field) -> tuple[str, ...]:
    found = tuple(word.strip() for word in field.text("one of " + ", ".join(EXPANDERS)).split(","))
    for word in found:
        if word not in EXPANDERS:
            field.wrong(f"unknown expander {word!r}", "one of " + ", ".join(EXPANDERS) + ", or several with commas")
    return found


def _priorities(field: Field) -> Mapping[int, tuple[str, ...]]:
    from drakkar.cluster.autoscaler.expanders import read_priorities

    try:
        return read_priorities(field.value, field.path)
    except DrakkarError as error:
        field.wrong(error.message, error.expected)


AUTOSCALER_FIELDS: Final[dict[str, tuple[str, Callable[[Field], Any]]]] = {
    "expander": ("expander", _expanders),
    "priorities": ("priorities", _priorities),
    "scanInterval": ("scan_interval", _positive),
    "maxNodesTotal": ("max_nodes_total", _not_negative),
    "maxNodeProvisionTime": ("max_node_provision_time", _positive),
    "newPodScaleUpDelay": ("new_pod_scale_up_delay", Field.seconds),
    "expendablePodsPriorityCutoff": ("expendable_pods_priority_cutoff", Field.whole),
    "initialNodeGroupBackoffDuration": ("initial_node_group_backoff", _positive),
    "maxNodeGroupBackoffDuration": ("max_node_group_backoff", _positive),
    "nodeGroupBackoffResetTimeout": ("node_group_backoff_reset_timeout", Field.seconds),
    "scaleDownEnabled": ("scale_down_enabled", Field.flag),
    "scaleDownUnneededTime": ("scale_down_unneeded_time", Field.seconds),
    "scaleDownUnreadyTime": ("scale_down_unready_time", Field.seconds),
    "scaleDownUtilizationThreshold": ("scale_down_utilization_threshold", _share),
    "scaleDownDelayAfterAdd": ("scale_down_delay_after_add", Field.seconds),
    "scaleDownDelayAfterDelete": ("scale_down_delay_after_delete", Field.seconds),
    "scaleDownDelayAfterFailure": ("scale_down_delay_after_failure", Field.seconds),
    "unremovableNodeRecheckTimeout": ("unremovable_node_recheck_timeout", Field.seconds),
    "maxGracefulTermination": ("max_graceful_termination", Field.seconds),
    "maxPodEvictionTime": ("max_pod_eviction_time", Field.seconds),
    "maxScaleDownParallelism": ("max_scale_down_parallelism", _at_least_one),
    "maxDrainParallelism": ("max_drain_parallelism", _at_least_one),
    "skipNodesWithSystemPods": ("skip_nodes_with_system_pods", Field.flag),
    "skipNodesWithLocalStorage": ("skip_nodes_with_local_storage", Field.flag),
    "skipNodesWithCustomControllerPods": ("skip_nodes_with_custom_controller_pods", Field.flag),
    "ignoreDaemonsetsUtilization": ("ignore_daemonsets_utilization", Field.flag),
}
"""Fields of `autoscaler` with the attribute of `Settings` and what reads them."""
