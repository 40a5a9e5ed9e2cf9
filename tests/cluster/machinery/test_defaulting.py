"""Defaults and what creating and changing does to what the server owns."""

from typing import Any

import pytest

from drakkar.cluster.machinery.kinds import Kind, kind_of

NOW = "2026-01-01T00:00:00Z"


def kind(group: str, name: str) -> Kind:
    found = kind_of(group, "v1", name)
    assert found is not None
    return found


def made(group: str, name: str, obj: dict[str, Any]) -> dict[str, Any]:
    """The object as it would be created."""
    its = kind(group, name)
    return its.prepare_create(its.default(its.shape(obj).object, now=NOW))


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "i"}], **spec}}


def test_pods() -> None:
    spec = made("", "Pod", pod())["spec"]
    assert {name: spec[name] for name in sorted(spec) if name != "containers"} == {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    assert spec["containers"] == [
        {
            "name": "a",
            "image": "i",
            "imagePullPolicy": "Always",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ]


@pytest.mark.parametrize(
    ("image", "policy"), [("i", "Always"), ("i:latest", "Always"), ("i:1", "IfNotPresent"), ("r:5000/i", "Always")]
)
def test_untagged_images_are_pulled_always(image: str, policy: str) -> None:
    containers = [{"name": "a", "image": image}]
    assert made("", "Pod", pod(containers=containers))["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_limits_are_requests_where_nothing_is_requested() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    spec = made("", "Pod", pod(containers=[{"name": "a", "resources": resources}]))["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1"}}, "Guaranteed"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"example.com/x": "1"}, "limits": {"example.com/x": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service(resources: dict[str, Any], quality: str) -> None:
    status = made("", "Pod", pod(containers=[{"name": "a", "resources": resources}]))["status"]
    assert status == {"phase": "Pending", "qosClass": quality}


def test_gated_pods_say_so() -> None:
    (condition,) = made("", "Pod", pod(schedulingGates=[{"name": "x"}]))["status"]["conditions"]
    assert condition["reason"] == "SchedulingGated"


def test_deployments() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    obj = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        "status": {"replicas": 3},
    }
    found = made("apps", "Deployment", obj)
    assert found["metadata"]["generation"] == 1
    assert not found["status"]
    spec = found["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def test_jobs_get_a_selector_from_their_uid() -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}
    obj = {"metadata": {"name": "j", "uid": "u"}, "spec": {"template": template}}
    spec = made("batch", "Job", obj)["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)


def test_services_secrets_and_namespaces() -> None:
    service = made("", "Service", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})["spec"]
    assert (service["type"], service["sessionAffinity"]) == ("ClusterIP", "None")
    assert service["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    secret = made("", "Secret", {"metadata": {"name": "s"}, "stringData": {"a": "hi"}})
    assert (secret["data"], secret["type"], "stringData" in secret) == ({"a": "aGk="}, "Opaque", False)
    namespace = made("", "Namespace", {"metadata": {"name": "n"}})
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}


@pytest.mark.parametrize(
    ("group", "name"), [("", "Pod"), ("apps", "Deployment"), ("batch", "Job"), ("policy", "PodDisruptionBudget")]
)
def test_status_and_spec_are_written_apart_and_generations_counted(group: str, name: str) -> None:
    its = kind(group, name)
    old = {"metadata": {"name": "x", "generation": 4}, "spec": {"a": 1}, "status": {"b": 1}}
    new = {"metadata": {"name": "x", "generation": 4}, "spec": {"a": 2}, "status": {"b": 2}}
    main = its.prepare_update(new, old)
    assert (main["spec"], main["status"], main["metadata"]["generation"]) == ({"a": 2}, {"b": 1}, 5)
    status = its.prepare_update(new, old, "status")
    assert (status["spec"], status["status"]["b"], status["metadata"]["generation"]) == ({"a": 1}, 2, 4)
    assert its.prepare_update(old, old)["metadata"]["generation"] == 4


def test_webhooks_behind_services_are_called_at_443() -> None:
    client = {"clientConfig": {"service": {"name": "s", "namespace": "n"}}}
    hooks = made("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", {"webhooks": [client]})["webhooks"]
    spec = {"names": {"kind": "W"}, "conversion": {"strategy": "Webhook", "webhook": client}}
    webhook = made("apiextensions.k8s.io", "CustomResourceDefinition", {"spec": spec})["spec"]["conversion"]["webhook"]
    assert [one["clientConfig"]["service"]["port"] for one in (*hooks, webhook)] == [443, 443]


def test_defaulting_is_idempotent() -> None:
    its = kind("", "Pod")
    once = its.default(its.shape(pod()).object, now=NOW)
    assert its.default(once, now=NOW) == once


def test_warnings() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    assert kind("", "Pod").warnings(pod(containers=[{"name": "a", "env": env}])) == [
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply'
    ]
    assert kind("", "Pod").warnings(pod()) == []


def test_label_keys_become_requirements_with_the_pods_own_values() -> None:
    selector = {"matchLabels": {"app": "x"}}
    constraint = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["version", "none"]}
    term = {"topologyKey": "zone", "labelSelector": selector, "mismatchLabelKeys": ["version"]}
    spread = {
        "topologySpreadConstraints": [constraint],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    }
    spec = made("", "Pod", {**pod(**spread), "metadata": {"name": "p", "labels": {"version": "2"}}})["spec"]
    wanted = {"key": "version", "operator": "In", "values": ["2"]}
    assert spec["topologySpreadConstraints"][0]["labelSelector"] == {**selector, "matchExpressions": [wanted]}
    (changed,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert changed["labelSelector"]["matchExpressions"] == [{**wanted, "operator": "NotIn"}]
