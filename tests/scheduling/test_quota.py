"""What objects count against a quota."""

from __future__ import annotations

from typing import Any

import pytest

from drakkar.scheduling.extended_resources import ClassNames
from drakkar.scheduling.quota import applies, claim_usage, collection_of, counts_claims, paying_pod, total, usage

CLAIMS = "resourceclaims.resource.k8s.io"


def counted(collection: str, obj: dict[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in usage(collection, obj).items()}


def pod(phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [], **spec}, "status": {"phase": phase}}


def container(restart: str = "", **resources: dict[str, str]) -> dict[str, Any]:
    return {"name": "c", "resources": resources} | ({"restartPolicy": restart} if restart else {})


def claim(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests)}}}


def exactly(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": name, **fields}}


def test_pods_count_requests_and_limits() -> None:
    resources = {"requests": {"cpu": "500m", "nvidia.com/gpu": "2"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "2"}}
    assert counted("pods", pod(containers=[container(**resources)])) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "500m",
        "requests.cpu": "500m",
        "requests.nvidia.com/gpu": "2",
        "limits.memory": "1Gi",
    }


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_count_only_as_objects(phase: str) -> None:
    assert counted("pods", pod(phase, containers=[container(requests={"cpu": "1"})])) == {"count/pods": "1"}


def test_init_containers_raise_and_sidecars_add() -> None:
    spec = {
        "containers": [container(requests={"cpu": "1"})],
        "initContainers": [container("Always", requests={"cpu": "1"}), container(requests={"cpu": "3"})],
        "overhead": {"cpu": "250m"},
    }
    assert counted("pods", pod(**spec))["requests.cpu"] == "4250m"


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([exactly("gpu")], {"gpu": "1"}),
        ([exactly("gpu", count=3), exactly("gpu"), exactly("nic")], {"gpu": "4", "nic": "1"}),
        ([exactly("gpu", allocationMode="All")], {"gpu": "32"}),
        (
            [{"name": "r", "firstAvailable": [{"deviceClassName": "big"}, {"deviceClassName": "gpu", "count": 2}]}],
            {"big": "1", "gpu": "2"},
        ),
    ],
)
def test_claims_count_devices_by_class(requests: list[dict[str, Any]], expected: dict[str, str]) -> None:
    found = counted(CLAIMS, claim(*requests))
    assert found.pop(f"count/{CLAIMS}") == "1"
    assert found == {f"{name}.deviceclass.resource.k8s.io/devices": count for name, count in expected.items()}


def test_services_and_volume_claims() -> None:
    balancer = {"spec": {"type": "LoadBalancer", "ports": [{}, {}]}}
    assert counted("services", balancer)["services.nodeports"] == "2"
    assert counted("services", balancer)["services.loadbalancers"] == "1"
    volume = {"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}}
    assert counted("persistentvolumeclaims", volume)["fast.storageclass.storage.k8s.io/requests.storage"] == "1Gi"


@pytest.mark.parametrize(
    ("resource", "collection"),
    [
        ("count/deployments.apps", "deployments.apps"),
        ("gpu.deviceclass.resource.k8s.io/devices", CLAIMS),
        ("requests.cpu", "pods"),
        ("services.nodeports", "services"),
        ("secrets", "secrets"),
        ("requests.storage", "persistentvolumeclaims"),
    ],
)
def test_where_a_resource_is_counted(resource: str, collection: str) -> None:
    assert collection_of(resource) == collection


@pytest.mark.parametrize(
    ("quota", "spec", "expected"),
    [
        ({}, {}, True),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, {}, True),
        ({"scopes": ["NotBestEffort"]}, {"containers": [container(requests={"cpu": "1"})]}, True),
        ({"scopes": ["NotBestEffort"]}, {}, False),
    ],
)
def test_scopes(quota: dict[str, Any], spec: dict[str, Any], expected: bool) -> None:
    assert applies(quota, "pods", pod(**spec)) is expected


def test_scopes_by_priority_and_affinity() -> None:
    def scope(name: str, **fields: Any) -> dict[str, Any]:
        return {"scopeSelector": {"matchExpressions": [{"scopeName": name, "operator": "Exists", **fields}]}}

    high = scope("PriorityClass", operator="In", values=["high"])
    assert applies(high, "pods", pod(priorityClassName="high"))
    assert not applies(high, "pods", pod(priorityClassName="low"))
    term = {"topologyKey": "zone", "namespaces": ["other"]}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert applies(scope("CrossNamespacePodAffinity"), "pods", pod(affinity=near))
    assert not applies(scope("CrossNamespacePodAffinity"), "pods", pod())
    assert not applies(scope("PriorityClass"), "services", {"spec": {}})


def test_sums_are_exact() -> None:
    one = usage("pods", pod(containers=[container(requests={"cpu": "100m"})]))
    assert str(total([one] * 3)["requests.cpu"]) == "300m"


def test_claims_are_charged_as_extended_resources_less_what_their_pod_paid() -> None:
    classes = ClassNames([{"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "x.com/gpu"}}])
    implicit, explicit = "requests.deviceclass.resource.kubernetes.io/gpu", "requests.x.com/gpu"
    asked = {"metadata": {"name": "c"}, **claim(exactly("gpu", count=3), exactly("nic"))}
    found = {name: str(amount) for name, amount in claim_usage(asked, classes, None).items()}
    assert (found[implicit], found[explicit]) == ("3", "3")
    assert found["requests.deviceclass.resource.kubernetes.io/nic"] == "1"
    pod = {"spec": {"containers": [container(requests={"x.com/gpu": "3"})]}}
    less = {name: str(amount) for name, amount in claim_usage(asked, classes, pod).items()}
    assert less.get(explicit) is None
    assert less[implicit] == "3"
    assert counts_claims(explicit, classes)
    assert counts_claims(implicit, classes)
    assert not counts_claims("requests.cpu", classes)


def test_only_the_claim_that_a_pod_names_is_paid_by_it() -> None:
    pod: dict[str, Any] = {"metadata": {"name": "p", "uid": "u"}, "spec": {}}

    def special(name: str, created: str) -> dict[str, Any]:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
        marks = {"resource.kubernetes.io/extended-resource-claim": "true"}
        metadata = {"name": name, "annotations": marks, "ownerReferences": [owner], "creationTimestamp": created}
        return {"metadata": metadata}

    older, newer = special("b", "2026-01-01T00:00:00Z"), special("a", "2026-01-01T00:00:01Z")
    assert paying_pod(older, [pod], [older, newer]) is pod
    assert paying_pod(newer, [pod], [older, newer]) is None
    named = {**pod, "status": {"extendedResourceClaimStatus": {"resourceClaimName": "a"}}}
    assert paying_pod(newer, [named], [older, newer]) is named
    assert paying_pod(older, [named], [older, newer]) is None
    assert paying_pod({"metadata": {"name": "c"}}, [pod], []) is None
