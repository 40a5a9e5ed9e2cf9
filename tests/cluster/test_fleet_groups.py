"""Node groups in fleet files: what they say, and the sentence for what they should not say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from drakkar.cluster.autoscaler.options import NodeGroup, Provisioning, Settings, Stockout
from drakkar.cluster.autoscaler.provider import initial_nodes
from drakkar.cluster.fleet_file import read_fleet
from drakkar.cluster.fleet_groups import AUTOSCALER_FIELDS
from drakkar.errors import DrakkarError
from drakkar.planning.files import read_manifests
from tests.cluster.fleets import fleet_in

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/groups.yaml"


def test_example() -> None:
    fleet = read_fleet(EXAMPLE, manifests=read_manifests)
    first, second = fleet.groups
    assert first == NodeGroup(
        name="h100",
        model="dgx-h100",
        maximum=4,
        labels={
            "example.com/team": "training",
            "topology.kubernetes.io/zone": "north",
            "drakkar.dev/node-group": "h100",
        },
        taints=({"key": "example.com/only", "value": "gpu", "effect": "NoSchedule"},),
        provisioning=Provisioning(delay=(60, 180), driver_delay=20),
    )
    assert (second.minimum, second.initial, second.maximum) == (1, 1, 8)
    assert second.provisioning == Provisioning((40, 40), failure_rate=0.1, stockouts=(Stockout(1800, 3600),))
    assert fleet.autoscaler == Settings(scale_down_unneeded_time=300)
    assert fleet.seed == 7


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    fleet = fleet_in(
        tmp_path,
        """
        groups:
        - name: a
          model: t4
          min: 1
          max: 5
          initial: 2
          rack: r1
          startupTaints: [{key: k, effect: NoExecute}]
          templateSlices: false
          partitions: true
          provisioning: {delay: 90, quota: 3, refused: true, stockouts: [{}, {after: 1h}]}
        autoscaler:
          expander: "priority, most-pods"
          priorities: {10: [a, b.*], 50: [c]}
          maxNodesTotal: 10
          scaleDownEnabled: false
          scaleDownUtilizationThreshold: 0.7
        """,
    )
    [group] = fleet.groups
    assert group.provisioning == Provisioning((90, 90), quota=3, refused=True, stockouts=(Stockout(), Stockout(3600)))
    assert group.startup_taints == ({"key": "k", "effect": "NoExecute"},)
    assert not group.template_slices and group.partitions and group.labels["drakkar.dev/rack"] == "r1"
    assert fleet.autoscaler == Settings(
        expander=("priority", "most-pods"),
        priorities={10: ("a", "b.*"), 50: ("c",)},
        max_nodes_total=10,
        scale_down_enabled=False,
        scale_down_utilization_threshold=0.7,
    )
    assert [(one.name, one.partitions) for one in initial_nodes(fleet.groups, ["a-1"])] == [
        ("a-0", True),
        ("a-2", True),
    ]


def test_every_setting_has_a_field() -> None:
    assert {attribute for attribute, _ in AUTOSCALER_FIELDS.values()} == {one.name for one in fields(Settings)}
    for name, (attribute, _) in AUTOSCALER_FIELDS.items():
        words = name[0] + "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name[1:])
        assert words.removesuffix("_duration") == attribute


def test_faults_may_hit_nodes_that_a_group_has_from_the_start(tmp_path: Path) -> None:
    fleet = fleet_in(
        tmp_path,
        """
        groups: [{name: a, model: t4, initial: 2, max: 3, rack: r}]
        faults: [{after: 1s, fault: node-lost, rack: r}]
        """,
    )
    assert [fault.arguments["node"] for fault in fleet.faults] == ["a-0", "a-1"]


GROUP = "name: a, model: t4"
WRONG = {
    "no list": ("groups: {a: b}", "groups", "no list"),
    "unknown field": ("groups: [{name: a, model: t4, maximum: 3}]", "groups[0].maximum", "did you mean 'max'"),
    "no name": ("groups: [{model: t4}]", "groups[0].name", "text is missing"),
    "name": ("groups: [{name: A_b, model: t4}]", "groups[0].name", "cannot be the name"),
    "long name": (f"groups: [{{name: {'a' * 60}, model: t4}}]", "groups[0].name", "too long"),
    "twice": (f"groups: [{{{GROUP}}}, {{{GROUP}}}]", "groups[1].name", "second group"),
    "no model": ("groups: [{name: a}]", "groups[0].model", "text is missing"),
    "model": ("groups: [{name: a, model: t5}]", "groups[0].model", "unknown node model 't5'"),
    "min": (f"groups: [{{{GROUP}, min: 3, max: 2}}]", "groups[0].min", "more than max"),
    "max": (f"groups: [{{{GROUP}, max: 0}}]", "groups[0].max", "without room"),
    "max text": (f"groups: [{{{GROUP}, max: many}}]", "groups[0].max", "no number of nodes"),
    "initial": (f"groups: [{{{GROUP}, max: 2, initial: 3}}]", "groups[0].initial", "not between"),
    "too many": (f"groups: [{{{GROUP}, max: 3000}}, {{name: b, model: t4, max: 3000}}]", "groups", "6000 nodes"),
    "zone": (f"groups: [{{{GROUP}, zone: 'a b'}}]", "groups[0].zone", "value of a label"),
    "label": (f"groups: [{{{GROUP}, labels: {{a: 1}}}}]", "groups[0].labels.a", "no text"),
    "taint": (f"groups: [{{{GROUP}, taints: [x]}}]", "groups[0].taints[0]", "no taint"),
    "slices": (f"groups: [{{{GROUP}, templateSlices: 'no'}}]", "groups[0].templateSlices", "neither true nor false"),
    "provisioning": (f"groups: [{{{GROUP}, provisioning: 3m}}]", "groups[0].provisioning", "no mapping"),
    "delay": (f"groups: [{{{GROUP}, provisioning: {{delay: soon}}}}]", "groups[0].provisioning.delay", "no duration"),
    "range": (
        f"groups: [{{{GROUP}, provisioning: {{delay: [3m, 1m]}}}}]", "groups[0].provisioning.delay", "no range",
    ),
    "one of a range": (
        f"groups: [{{{GROUP}, provisioning: {{delay: [3m]}}}}]", "groups[0].provisioning.delay", "no range",
    ),
    "rate": (
        f"groups: [{{{GROUP}, provisioning: {{failureRate: 2}}}}]", "groups[0].provisioning.failureRate", "no share",
    ),
    "stockout": (
        f"groups: [{{{GROUP}, provisioning: {{stockouts: [5m]}}}}]",
        "groups[0].provisioning.stockouts[0]", "no mapping",
    ),
    "no groups": ("autoscaler: {scanInterval: 1s}", "autoscaler", "nothing to scale"),
    "unknown setting": (f"groups: [{{{GROUP}}}]\nautoscaler: {{scan: 1s}}", "autoscaler.scan", "unknown field"),
    "interval": (f"groups: [{{{GROUP}}}]\nautoscaler: {{scanInterval: 0s}}", "autoscaler.scanInterval", "no time"),
    "expander": (f"groups: [{{{GROUP}}}]\nautoscaler: {{expander: best}}", "autoscaler.expander", "unknown expander"),
    "priorities": (
        f"groups: [{{{GROUP}}}]\nautoscaler: {{priorities: {{10: [a]}}}}", "autoscaler.priorities", "only for",
    ),
    "priority": (
        f"groups: [{{{GROUP}}}]\nautoscaler: {{expander: priority, priorities: {{x: [a]}}}}",
        "autoscaler.priorities", "no priority",
    ),
    "expression": (
        f"groups: [{{{GROUP}}}]\nautoscaler: {{expander: priority, priorities: {{1: ['(']}}}}",
        "autoscaler.priorities", "no regular expression: error parsing regexp: missing closing ): `(`",
    ),
    "threshold": (
        f"groups: [{{{GROUP}}}]\nautoscaler: {{scaleDownUtilizationThreshold: 50}}",
        "autoscaler.scaleDownUtilizationThreshold", "no share",
    ),
    "parallel": (
        f"groups: [{{{GROUP}}}]\nautoscaler: {{maxDrainParallelism: 0}}", "autoscaler.maxDrainParallelism", "too few",
    ),
    "fault": (
        f"groups: [{{{GROUP}}}]\nfaults: [{{after: 1s, fault: stockout, group: b}}]", "faults[0].group", "no group 'b'",
    ),
    "fault without groups": ("faults: [{after: 1s, fault: stockout, group: b}]", "faults[0].group", "no group 'b'"),
    "backoff": (
        f"groups: [{{{GROUP}}}]\nautoscaler: {{maxNodeGroupBackoffDuration: 1m}}",
        "autoscaler.maxNodeGroupBackoffDuration", "shorter than the first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong(tmp_path: Path, name: str) -> None:
    text, path, told = WRONG[name]
    with pytest.raises(DrakkarError) as caught:
        fleet_in(tmp_path, text)
    assert caught.value.subject.endswith(f"fleet.yaml: {path}"), caught.value.subject
    assert told in caught.value.message
    assert caught.value.expected
