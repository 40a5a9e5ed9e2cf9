"""What `kubectl get` shows: ages, states in words, columns."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drakkar.cluster.machinery.tables import cells, columns, table
from drakkar.cluster.machinery.tables.ages import human
from drakkar.kube.resources import PODS, RESOURCE_CLAIMS, Resource

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 59, "10m"), (179 * MINUTE, "179m"), (3 * HOUR, "3h"), (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR + 5 * MINUTE, "8h"), (47 * HOUR, "47h"), (2 * DAY, "2d"), (2 * DAY + 3 * HOUR, "2d3h"),
        (8 * DAY + 3 * HOUR, "8d"), (2 * YEAR - 1, "729d"), (2 * YEAR, "2y"), (2 * YEAR + 9 * DAY, "2y9d"),
        (8 * YEAR + 9 * DAY, "8y"),
    ],
)  # fmt: skip
def test_ages(seconds: int, text: str) -> None:
    assert human(seconds) == text


def pod(
    *containers: dict[str, Any], phase: str = "Running", init: tuple[dict[str, Any], ...] = (), **more: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T11:00:00Z", **more.pop("metadata", {})},
        "spec": {
            "containers": [{"name": each["name"]} for each in containers],
            "initContainers": [{"name": each["name"], **each.pop("spec", {})} for each in init],
            **more.pop("spec", {}),
        },
        "status": {
            "phase": phase,
            "containerStatuses": [each for each in containers if "state" in each],
            "initContainerStatuses": list(init),
            **more,
        },
    }


def running(name: str = "a", *, ready: bool = True, restarts: int = 0) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": {"running": {}}}


def waiting(reason: str, restarts: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": "a", "ready": False, "restartCount": restarts, "state": {"waiting": {"reason": reason}}, **more}


def ended(name: str = "a", **terminated: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "restartCount": 0, "state": {"terminated": terminated}}


DELETED = {"deletionTimestamp": "2026-01-01T11:59:00Z"}
LAST = {"lastState": {"terminated": {"finishedAt": "2026-01-01T11:55:00Z"}}}


@pytest.mark.parametrize(
    ("obj", "ready", "state", "restarts"),
    [
        (pod({"name": "a"}, phase="Pending"), "0/1", "Pending", "0"),
        (pod(running(), running("b", ready=False)), "1/2", "Running", "0"),
        (pod(waiting("ContainerCreating"), phase="Pending"), "0/1", "ContainerCreating", "0"),
        (pod(waiting("CrashLoopBackOff", 3, **LAST)), "0/1", "CrashLoopBackOff", "3 (5m ago)"),
        (pod(ended(exitCode=0, reason="Completed"), phase="Succeeded"), "0/1", "Completed", "0"),
        (pod(ended(exitCode=1, reason="Error"), phase="Failed"), "0/1", "Error", "0"),
        (pod(ended(exitCode=137), phase="Failed"), "0/1", "ExitCode:137", "0"),
        (pod(ended(exitCode=0, signal=9), phase="Failed"), "0/1", "Signal:9", "0"),
        (pod(running(), metadata=DELETED), "1/1", "Terminating", "0"),
        (pod(running(), metadata=DELETED, reason="NodeLost"), "1/1", "Unknown", "0"),
        (pod({"name": "a"}, phase="Failed", reason="Evicted"), "0/1", "Evicted", "0"),
        (pod({"name": "a"}, phase="Pending", spec={"schedulingGates": [{"name": "g"}]}), "0/1", "Pending", "0"),
        (
            pod(
                {"name": "a"}, phase="Pending",
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            ),
            "0/1", "SchedulingGated", "0",
        ),
        (pod({"name": "a"}, phase="Pending", init=(running("i", ready=False),)), "0/1", "Init:0/1", "0"),
        (pod({"name": "a"}, phase="Pending", init=(ended("i", exitCode=2),)), "0/1", "Init:ExitCode:2", "0"),
        (
            pod({"name": "a"}, phase="Pending", init=({**waiting("CrashLoopBackOff", 2), "name": "i"},)),
            "0/1", "Init:CrashLoopBackOff", "2",
        ),
    ],
)  # fmt: skip
def test_pods(obj: dict[str, Any], ready: str, state: str, restarts: str) -> None:
    assert cells("Pod", obj, NOW).cells[:5] == ["p", ready, state, restarts, "60m"]


def claim(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "c", "namespace": "n", "creationTimestamp": (NOW - timedelta(seconds=5)).isoformat()[:19] + "Z",
            **status.pop("metadata", {}),
        },
        "status": status,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("obj", "state"),
    [
        (claim(), "pending"),
        (claim(allocation={}), "allocated"),
        (claim(allocation={}, reservedFor=[{"name": "p"}]), "allocated,reserved"),
        (claim(metadata={"deletionTimestamp": "2026-01-01T11:59:00Z"}), "deleted"),
    ],
)
def test_claims(obj: dict[str, Any], state: str) -> None:
    assert cells("ResourceClaim", obj, NOW).cells == ["c", state, "5s"]


def test_tables_carry_metadata_only_by_default() -> None:
    found = table(RESOURCE_CLAIMS, [claim()], now=NOW, list_metadata={"resourceVersion": "7"})
    assert found["kind"] == "Table"
    assert found["metadata"] == {"resourceVersion": "7"}
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "State", "Age"]
    (row,) = found["rows"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert "status" not in row["object"]
    assert "spec" in table(RESOURCE_CLAIMS, [{**claim(), "spec": {}}], now=NOW, include="Object")["rows"][0]["object"]
    assert table(RESOURCE_CLAIMS, [claim()], now=NOW, include="None")["rows"][0].get("object") is None


def test_rows_of_finished_pods_say_so() -> None:
    (row,) = table(PODS, [pod(ended(exitCode=0, reason="Completed"), phase="Succeeded")], now=NOW)["rows"]
    assert [condition["type"] for condition in row["conditions"]] == ["Completed"]


@pytest.mark.parametrize(
    "kind",
    [
        "Pod", "Node", "Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount", "Event", "ResourceQuota",
        "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "Lease", "ResourceClaim",
        "ResourceClaimTemplate", "ResourceSlice", "DeviceClass", "DeviceTaintRule", "Role", "RoleBinding",
        "ClusterRoleBinding", "PriorityClass", "RuntimeClass", "PodDisruptionBudget", "EndpointSlice", "Ingress",
        "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "NetworkPolicy",
        "HorizontalPodAutoscaler", "ControllerRevision", "LimitRange", "Endpoints", "PodTemplate",
    ],
)  # fmt: skip
def test_an_object_with_nothing_in_it_has_a_cell_for_each_column(kind: str) -> None:
    empty = {"kind": kind, "apiVersion": "v1", "metadata": {"name": "x"}}
    assert len(cells(kind, empty, NOW).cells) == len(columns(kind))


def test_custom_resources_show_their_own_columns() -> None:
    own = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Words", "type": "string", "jsonPath": ".spec.words[*]"},
        {"name": "All", "type": "string", "jsonPath": ".spec.words"},
        {"name": "Second", "type": "string", "jsonPath": ".spec.items[?(@.name=='b')].value"},
        {"name": "Since", "type": "date", "jsonPath": ".spec.since"},
        {"name": "Wrong", "type": "boolean", "jsonPath": ".spec.size"},
        {"name": "Missing", "type": "string", "jsonPath": ".spec.none"},
    ]
    obj = {
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {
            "size": 3,
            "words": ["a", "b"],
            "items": [{"name": "a", "value": 1}, {"name": "b", "value": 2}],
            "since": "2026-01-01T11:58:00Z",
        },
    }
    assert cells("Widget", obj, NOW, own).cells == ["w", 3, "a", '["a","b"]', "2", "2m", None, None]
    assert [column["name"] for column in columns("Widget", own)][:2] == ["Name", "Size"]


def test_a_custom_resource_may_have_the_name_of_a_built_in_kind() -> None:
    volcano = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job", True)
    job = {"kind": "Job", "metadata": {"name": "j", "creationTimestamp": "2026-01-01T11:59:00Z"}}
    found = table(volcano, [job], now=NOW)
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Age"]
    assert found["rows"][0]["cells"] == ["j", "60s"]


def test_kinds_without_a_printer_show_when_they_were_created() -> None:
    assert [column["name"] for column in columns("LimitRange")] == ["Name", "Created At"]
    limits = {"kind": "LimitRange", "metadata": {"name": "l", "creationTimestamp": "2026-01-01T11:59:00Z"}}
    assert cells("LimitRange", limits, NOW).cells == ["l", "2026-01-01T11:59:00Z"]
