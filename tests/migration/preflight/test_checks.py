"""Each check, in the clusters that it is for."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.errors import DrakkarError
from drakkar.migration.preflight import FAILED, OK, UNKNOWN, WARNING, ClusterFacts, Plan, preflight
from tests.migration.preflight.worlds import SERVED, facts, node, only, pod, results, secret

NVIDIA = "dra-driver-nvidia-gpu"
GOOD = {"gpuResourcesEnabledOverride": True}


def test_a_good_cluster_passes_every_check() -> None:
    assert {one.status for one in preflight(facts(), Plan())} == {OK}


@pytest.mark.parametrize(
    ("version", "status"), [("1.33.9", FAILED), ("1.34.0", OK), ("1.37.2", OK), ("1.40.0", WARNING), ("", UNKNOWN)]
)
def test_versions_of_kubernetes(version: str, status: str) -> None:
    assert only(facts(version=version), "kubernetes-version").status == status


def test_an_old_kubelet_is_named() -> None:
    found = results(facts(node("old", kubelet="v1.33.1"), node("new")), "kubernetes-version")
    assert [(one.status, one.subject) for one in found] == [(OK, "API server"), (FAILED, "Node/old")]


def test_apis_that_are_not_served() -> None:
    served = SERVED - {"resource.k8s.io/v1/deviceclasses"}
    assert only(facts(served=served), "api-versions").subject == "resource.k8s.io/v1/deviceclasses"
    without_policies = frozenset(one for one in SERVED if one.startswith("resource"))
    assert len(results(facts(served=without_policies), "api-versions")) == 2
    off = Plan(values={"policies": {"slices": False, "configurations": False}})
    assert only(facts(served=without_policies), "api-versions", off).status == OK
    monitored = Plan(values={"metrics": {"serviceMonitor": {"enabled": True}}})
    assert only(facts(), "api-versions", monitored).subject == "monitoring.coreos.com/v1/servicemonitors"


def test_what_cannot_be_read_is_unknown_and_says_why() -> None:
    blind = ClusterFacts(facts().snapshot, unread={"served": "forbidden", "releases": "no Secrets for you"})
    assert only(blind, "api-versions").status == UNKNOWN
    assert "no Secrets for you" in only(blind, "chart-history").message


@pytest.mark.parametrize(
    ("values", "version", "gates", "status"),
    [
        ({"driver": {"dynamicMig": True}}, "1.35.0", {}, WARNING),
        ({"driver": {"dynamicMig": True}}, "1.35.0", {"DRAPartitionableDevices": True}, OK),
        ({"driver": {"dynamicMig": True}}, "1.36.0", {}, OK),
        ({"driver": {"dynamicMig": True}}, "1.36.0", {"DRAPartitionableDevices": False}, WARNING),
        ({"driver": {"shares": 4}}, "1.36.0", {"DRAConsumableCapacity": False}, WARNING),
        ({}, "1.34.0", {"DynamicResourceAllocation": False}, FAILED),
        ({}, "1.35.0", {"DynamicResourceAllocation": False}, FAILED),
    ],
)
def test_gates_of_kubernetes(values: dict[str, Any], version: str, gates: dict[str, bool], status: str) -> None:
    plan = Plan(values=values | {"deviceClasses": {"extendedResource": False}})
    assert only(facts(version=version, gates=gates), "kubernetes-gates", plan).status == status


def test_extended_resources_need_their_gate() -> None:
    assert only(facts(version="1.35.0"), "kubernetes-gates").subject == "DRAExtendedResource"


def test_nodes_without_labels() -> None:
    assert only(facts(node(labels={})), "node-labels").status == FAILED
    foreign = {"nvidia.com/gpu.product": "H100"}
    warned, failed = results(facts(node(labels=foreign)), "node-labels")
    assert (warned.status, warned.subject, failed.status) == (WARNING, "Node/n1", FAILED)
    everywhere = Plan(values={"affinity": None})
    assert only(facts(node(labels={})), "node-labels", everywhere).status == OK


def test_taints_that_the_daemon_set_does_not_tolerate() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    warned, failed = results(facts(node(taints=[taint])), "node-labels")
    assert "team=a:NoSchedule" in warned.message
    assert failed.status == FAILED
    assert only(facts(node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])), "node-labels").status == OK


@pytest.mark.parametrize(
    ("runtime", "status"),
    [
        ("containerd://2.1.5", OK),
        ("containerd://1.7.29", WARNING),
        ("containerd://1.6.31", FAILED),
        ("cri-o://1.34.1", OK),
        ("cri-o://1.22.0", FAILED),
        ("docker://27.0.0", FAILED),
        ("something://1.0", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_runtimes_by_their_version(runtime: str, status: str) -> None:
    assert only(facts(node(runtime=runtime)), "runtime-cdi").status == status


@pytest.mark.parametrize(
    ("section", "settings", "status"),
    [
        ("io.containerd.grpc.v1.cri", "enable_cdi = true", OK),
        ("io.containerd.grpc.v1.cri", "enable_cdi = false", FAILED),
        ("io.containerd.cri.v1.runtime", 'cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]', OK),
        ("io.containerd.cri.v1.runtime", 'cdi_spec_dirs = ["/etc/cdi"]', FAILED),
    ],
)
def test_runtimes_by_their_captured_configuration(section: str, settings: str, status: str) -> None:
    captures = {"n1": {"containerd.toml": f'[plugins."{section}"]\n{settings}\n'}}
    cluster = facts(node(runtime="containerd://1.7.29"), captures=captures)
    assert only(cluster, "runtime-cdi").status == status


def test_a_driver_in_a_container_needs_its_root() -> None:
    operator = pod("nvidia-driver-daemonset-x", "gpu-operator")
    found = only(facts(node(), operator), "driver-root")
    assert (found.status, found.next_step) == (FAILED, "set node.driverRoot to /run/nvidia/driver")
    contained = {"node": {"driverRoot": "/run/nvidia/driver"}}
    assert only(facts(node(), operator), "driver-root", Plan(values=contained)).status == OK
    assert only(facts(), "driver-root", Plan(values=contained)).status == FAILED
    theirs = Plan(NVIDIA, values={"nvidiaDriverRoot": "/run/nvidia/driver"} | GOOD)
    assert only(facts(node(), operator), "driver-root", theirs).status == OK
    simulated = Plan(values={"node": {"simulatedMachine": "dgx-h100"}})
    assert only(facts(node(), operator), "driver-root", simulated).status == OK


def test_a_device_plugin_beside_the_driver() -> None:
    offering = node(allocatable={"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "0"})
    found = only(facts(offering, pod("nvidia-device-plugin-daemonset-x", "plugins")), "other-allocator")
    assert found.status == FAILED
    assert "nvidia.com/gpu: 8 beside the claims, from pod plugins/nvidia-device-plugin-daemonset-x" in found.message
    idle = facts(node(allocatable={"nvidia.com/gpu": "0"}), pod("p", image="x/k8s-device-plugin:1"))
    assert only(idle, "other-allocator").status == WARNING
    elsewhere = facts(node(), node("other", labels={}, allocatable={"nvidia.com/gpu": "8"}))
    assert only(elsewhere, "other-allocator").status == OK


def test_another_driver_of_the_same_name() -> None:
    theirs = pod("dra-driver-nvidia-gpu-kubelet-plugin-x", image="x/dra-driver-nvidia-gpu:v0.5.0")
    assert "serves gpu.nvidia.com on n1 already" in only(facts(node(), theirs), "other-driver").message
    ours = pod("drakkar-x", args=["driver", "gpu"])
    assert only(facts(node(), ours), "other-driver").status == OK
    assert only(facts(node(), ours), "other-driver", Plan(NVIDIA, values=GOOD)).status == FAILED


def test_the_rename_of_nvidias_chart() -> None:
    cluster = facts(secrets=[secret("nvidia-dra-driver-gpu", "25.8.0")])
    old = facts(secrets=[secret("nvidia-dra-driver-gpu", "0.3.1")])
    found = only(old, "chart-history", Plan(NVIDIA, "0.5.0", GOOD))
    assert (found.status, found.next_step) == (FAILED, "set nameOverride: nvidia-dra-driver-gpu in the values")
    kept = Plan(NVIDIA, "0.5.0", GOOD | {"nameOverride": "nvidia-dra-driver-gpu"})
    assert only(old, "chart-history", kept).status == OK
    assert FAILED in {one.status for one in results(cluster, "chart-history", kept)}  # 25.8.0 counts as newer


@pytest.mark.parametrize(
    ("history", "target", "status"),
    [
        ([("0.1.0", "deployed")], "0.1.0", OK),
        ([("0.1.0", "deployed")], "0.2.0", OK),
        ([("0.2.0", "deployed")], "0.1.0", FAILED),
        ([("0.2.0", "superseded"), ("0.1.0", "deployed")], "0.1.0", FAILED),
        ([("0.1.0", "pending-upgrade")], "0.1.0", FAILED),
        ([("0.1.0", "failed")], "0.1.0", WARNING),
    ],
)
def test_no_way_back(history: list[tuple[str, str]], target: str, status: str) -> None:
    secrets = [secret("drakkar", version, revision=n + 1, status=state) for n, (version, state) in enumerate(history)]
    assert only(facts(secrets=secrets), "chart-history", Plan(version=target)).status == status


def test_two_releases_of_one_driver() -> None:
    twice = facts(secrets=[secret("drakkar", "0.1.0"), secret("drakkar", "0.1.0", name="again")])
    assert [one.status for one in results(twice, "chart-history")] == [OK, FAILED]
    assert only(twice, "chart-history", Plan(release="again")).status == OK


def test_damaged_secrets_are_no_releases() -> None:
    broken = secret("drakkar", "9.9.9")
    for data in ("", "!", "AAAA", "bm90IGpzb24="):
        cluster = facts(secrets=[broken | {"data": {"release": data}}])
        assert "first installation" in only(cluster, "chart-history").message


@pytest.mark.parametrize(
    ("gates", "subject"),
    [
        ({"DynamicMIG": True, "MPSSupport": True}, "DynamicMIG, MPSSupport"),
        ({"ComputeDomainCliques": True, "IMEXDaemonsWithDNSNames": False}, "ComputeDomainCliques"),
        ({"DeviceMetadata": True}, "DeviceMetadata"),
    ],
)
def test_gates_that_exclude_each_other(gates: dict[str, bool], subject: str) -> None:
    found = only(facts(), "exclusive-gates", Plan(NVIDIA, values=GOOD | {"featureGates": gates}))
    assert (found.status, found.subject) == (FAILED, subject)


def test_nvidias_chart_wants_its_override() -> None:
    assert only(facts(), "exclusive-gates", Plan(NVIDIA)).subject == "gpuResourcesEnabledOverride"
    assert only(facts(), "exclusive-gates", Plan(NVIDIA, values=GOOD)).status == OK


def test_an_unknown_chart_is_refused() -> None:
    with pytest.raises(DrakkarError, match="no chart of a GPU driver"):
        Plan("gpu-operator")
