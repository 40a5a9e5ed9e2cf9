"""What schedulers need around the allocator: scores of alternatives, extended resources, binding conditions."""

from __future__ import annotations

from drakkar.allocation import allocate
from drakkar.allocation.binding import binding_state, needs_binding
from drakkar.allocation.extended_resources import claim_status, class_for, is_special, mapped_resources, special_claim
from drakkar.allocation.scoring import normalized, score

from .objects import DRIVER, NODE, claim, cluster, device, slice_of

GPU_CLASS = {"metadata": {"name": "gpu.example.com"}, "spec": {"extendedResourceName": "example.com/gpu"}}


def alternatives(*classes: str):
    subs = [
        {"name": f"s{i}", "deviceClassName": c, "allocationMode": "ExactCount", "count": 1}
        for i, c in enumerate(classes)
    ]
    return {"name": "r", "firstAvailable": subs}


def class_named(name: str, expression: str):
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def test_the_first_alternative_scores_eight_and_later_ones_less() -> None:
    state = cluster(slice_of([device("d0"), device("d1")]), classes=(class_named("none", "false"),))
    found = allocate(state, [claim(alternatives("any")), claim(alternatives("none", "none", "any"), name="b")], NODE)
    assert found.alternatives == [[0], [2]]
    assert score(found) == 8 + 6


def test_scores_are_stretched_to_a_hundred() -> None:
    assert normalized([8, 4, 0]) == [100, 50, 0]
    assert normalized([0, 0]) == [0, 0]
    assert normalized([]) == []


def test_a_request_per_container_and_resource() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {
            "initContainers": [{"name": "init", "resources": {"requests": {"example.com/gpu": "1"}}}],
            "containers": [
                {"name": "plain", "resources": {"requests": {"cpu": "1"}}},
                {"name": "main", "resources": {"limits": {"cpu": "1", "example.com/gpu": "2", "memory": "1Gi"}}},
            ],
        },
    }
    mapped = mapped_resources(pod, [GPU_CLASS])
    assert [(m.container, m.request, m.devices) for m in mapped] == [
        ("init", "container-0-request-0", 1),
        ("main", "container-2-request-1", 2),
    ]
    made = special_claim(pod, mapped)
    assert is_special(made)
    assert made["metadata"]["generateName"] == "p-extended-resources-"
    assert [r["exactly"]["count"] for r in made["spec"]["devices"]["requests"]] == [1, 2]
    assert claim_status("p-x", mapped)["requestMappings"][1] == {
        "containerName": "main",
        "resourceName": "example.com/gpu",
        "requestName": "container-2-request-1",
    }
    assert allocate(cluster(slice_of([device(f"d{i}") for i in range(3)]), classes=(GPU_CLASS,)), [made], NODE)


def test_a_device_plugin_on_the_node_wins() -> None:
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]}}
    assert mapped_resources(pod, [GPU_CLASS], {"example.com/gpu"}) == []


def test_the_newest_class_of_a_resource_name_counts_then_the_first_by_name() -> None:
    def named(name: str, created: str):
        metadata = {"name": name, "creationTimestamp": created}
        return {"metadata": metadata, "spec": {"extendedResourceName": "example.com/gpu"}}

    old, new, twin = (
        named("a", "2026-01-01T00:00:00Z"),
        named("c", "2026-02-01T00:00:00Z"),
        named("b", "2026-02-01T00:00:00Z"),
    )
    assert class_for("example.com/gpu", [old, new, twin]) == "b"
    assert class_for("deviceclass.resource.kubernetes.io/c", [old, new]) == "c"
    assert class_for("example.com/other", [old]) is None


def test_binding_waits_for_conditions_and_ends_with_failures() -> None:
    result = {"request": "r", "driver": DRIVER, "pool": "p", "device": "d", "bindingConditions": ["ready"]}
    result["bindingFailureConditions"] = ["broken"]
    allocation = {"devices": {"results": [result]}}
    waiting = {"status": {"allocation": allocation}}
    assert needs_binding(allocation)
    assert binding_state(waiting).pending == (f"{DRIVER}/p/d: ready",)

    def reported(**conditions: str):
        entry = {"driver": DRIVER, "pool": "p", "device": "d"}
        entry["conditions"] = [{"type": kind, "status": status} for kind, status in conditions.items()]
        return binding_state({"status": {"allocation": allocation, "devices": [entry]}})

    assert reported(ready="True").ready
    assert reported(ready="False").pending
    assert reported(ready="True", broken="True").failed == (f"{DRIVER}/p/d: broken",)
    assert not reported(ready="True", broken="True").ready
