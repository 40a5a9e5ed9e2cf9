"""What users commonly get wrong, and the words for it. Recorded answers are replayed in `tests/conformance`."""

from typing import Any

import pytest

from drakkar.cluster.machinery.kinds import Kind, kind_of
from drakkar.cluster.machinery.validation.schedules import schedule_complaint

NOW = "2026-01-01T00:00:00Z"


def kind(group: str, name: str) -> Kind:
    found = kind_of(group, "v1", name)
    assert found is not None
    return found


def made(its: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    given = {
        **obj,
        "metadata": {"name": "x", **({"namespace": "n"} if its.rules.namespaced else {}), **obj.get("metadata", {})},
    }
    return its.prepare_create(its.default(its.shape(given).object, now=NOW))


def complaints(group: str, name: str, obj: dict[str, Any]) -> list[str]:
    its = kind(group, name)
    return [str(error) for error in its.validate_create(made(its, obj))]


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a", "image": "i"}], **spec}}


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "a", "image": "i", **fields}])


def test_good_objects_have_no_complaints() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    selected = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    batch = {"spec": {**template["spec"], "restartPolicy": "Never"}}
    assert complaints("", "Pod", pod()) == []
    assert complaints("apps", "Deployment", {"spec": selected}) == []
    assert complaints("apps", "ReplicaSet", {"spec": selected}) == []
    assert complaints("apps", "DaemonSet", {"spec": selected}) == []
    assert complaints("apps", "StatefulSet", {"spec": {**selected, "serviceName": "s"}}) == []
    assert complaints("batch", "Job", {"metadata": {"uid": "u"}, "spec": {"template": batch}}) == []
    cron = {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": batch}}}
    assert complaints("batch", "CronJob", {"spec": cron}) == []
    assert complaints("", "ConfigMap", {"data": {"a": "b"}}) == []
    assert complaints("", "Node", {}) == []


LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (pod(containers=[]), ["spec.containers: Required value"]),
        (container(image=""), ["spec.containers[0].image: Required value"]),
        (container(name="A"), [f'spec.containers[0].name: Invalid value: "A": {LABEL}']),
        (
            pod(containers=[{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]),
            ['spec.containers[1].name: Duplicate value: "a"'],
        ),
        (
            pod(restartPolicy="Sometimes"),
            [
                'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
            ],
        ),
        (
            container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            ['spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        ),
        (
            container(resources={"claims": [{"name": "gpu"}]}),
            [
                'spec.containers[0].resources.claims[0]: Not found: "gpu": must be one of the names in '
                "pod.spec.resourceClaims which is empty"
            ],
        ),
        (
            pod(resourceClaims=[{"name": "gpu"}]),
            [
                'spec.resourceClaims[0]: Invalid value: {"Name":"gpu","ResourceClaimName":null,'
                '"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, '
                "`resourceClaimTemplateName`"
            ],
        ),
        (
            container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
        ),
        (
            container(ports=[{"containerPort": 0}]),
            ["spec.containers[0].ports[0].containerPort: Required value"],
        ),
        (
            container(ports=[{"containerPort": 70000}]),
            ["spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
        ),
        (
            container(env=[{"name": ""}]),
            ["spec.containers[0].env[0].name: Required value"],
        ),
        (pod(activeDeadlineSeconds=0), None),
        (pod(tolerations=[{"operator": "Exists", "key": "k", "value": "v"}]), None),
        (pod(nodeSelector={"a/b/c": "x"}), None),
        (pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]), None),
        (pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]), None),
        ({"metadata": {"name": "X"}, **pod()}, None),
        ({"metadata": {"labels": {"a": "b c"}}, **pod()}, None),
    ],
)
def test_pods(obj: dict[str, Any], wanted: list[str] | None) -> None:
    found = complaints("", "Pod", obj)
    if wanted is None:
        assert len(found) == 1
    else:
        assert found == wanted


@pytest.mark.parametrize(
    ("group", "name", "obj", "words"),
    [
        ("apps", "Deployment", {"spec": {"template": {"spec": {"containers": []}}}}, "spec.selector: Required value"),
        (
            "apps", "Deployment",
            {
                "spec": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c"}]}},
                }
            },
            "`selector` does not match template `labels`",
        ),
        ("apps", "Deployment", {"spec": {"replicas": -1}}, "must be greater than or equal to 0"),
        (
            "batch", "Job", {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}},
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        ("batch", "CronJob", {"spec": {"schedule": "x"}}, "expected exactly 5 fields, found 1: [x]"),
        ("", "ConfigMap", {"data": {"a/b": ""}}, "a valid config key must consist of"),
        ("", "ConfigMap", {"data": {"a": ""}, "binaryData": {"a": "aGk="}}, "data[a]"),
        ("", "Service", {"spec": {}}, "spec.ports: Required value"),
        ("", "Namespace", {"metadata": {"name": "A.b"}}, "metadata.name: Invalid value"),
        ("", "Node", {"metadata": {"name": "n", "namespace": "x"}}, "metadata.namespace: Forbidden: not allowed on"),
        ("coordination.k8s.io", "Lease", {"spec": {"leaseDurationSeconds": 0}}, "must be greater than 0"),
        (
            "policy", "PodDisruptionBudget", {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
            "minAvailable and maxUnavailable cannot be both set",
        ),
    ],
)  # fmt: skip
def test_other_kinds(group: str, name: str, obj: dict[str, Any], words: str) -> None:
    assert words in "\n".join(complaints(group, name, obj))


def changed(group: str, name: str, old: dict[str, Any], new: dict[str, Any], subresource: str = "") -> list[str]:
    its = kind(group, name)
    before = made(its, old)
    after = its.default(its.shape({**before, **new}).object, now=NOW)
    after["metadata"] = {**before["metadata"], "resourceVersion": "1"}
    return [
        str(error) for error in its.validate_update(its.prepare_update(after, before, subresource), before, subresource)
    ]


def test_immutable_parts() -> None:
    template = {"metadata": {"labels": {"a": "b", "c": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    one = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    two = {"spec": {"selector": {"matchLabels": {"c": "d"}}, "template": template}}
    assert changed("apps", "Deployment", one, two) == [
        'spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable'
    ]
    assert changed("", "ConfigMap", {"immutable": True, "data": {"a": "1"}}, {"data": {"a": "2"}}) == [
        "data: Forbidden: field is immutable when `immutable` is set"
    ]
    assert changed("", "Secret", {"type": "a"}, {"type": "b"}) == ['type: Invalid value: "b": field is immutable']


def test_pods_may_change_their_image_but_not_their_node() -> None:
    assert changed("", "Pod", pod(), container(image="j")) == []
    (complaint,) = changed("", "Pod", pod(), pod(hostname="h"))
    assert complaint.startswith(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
    )


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("*/5 1-3,7 * jan-mar SUN", ""),
        ("@daily", ""),
        ("@every 1h30m", ""),
        ("TZ=UTC 0 0 * * *", ""),
        ("@often", "unrecognized descriptor: @often"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
    ],
)
def test_schedules(schedule: str, complaint: str) -> None:
    assert schedule_complaint(schedule) == complaint


def test_every_kind_takes_an_empty_object_without_breaking() -> None:
    from drakkar.cluster.machinery import kinds

    for group, name in kinds._RULES:
        its = kind_of(group, "v1", name)
        if its is None:
            continue
        obj = made(its, {})
        errors = its.validate_create(obj)
        assert its.invalid_status(obj, errors)["code"] == 422
        its.validate_update({**obj, "metadata": {**obj["metadata"], "resourceVersion": "1"}}, obj)
        its.warnings(obj)


def test_refused_changes_are_shown_as_a_diff_of_the_internal_type() -> None:
    (complaint,) = changed("", "Pod", pod(), pod(nodeName="n"))
    header, _, shown = complaint.partition("\n")
    assert header.startswith("spec: Forbidden: pod updates may not change")
    lines = shown.splitlines()
    assert lines[0].startswith("@@ -")
    assert lines[4:6] == ['- "NodeName": "",', '+ "NodeName": "n",']
    assert lines[6:] == ['  "HostNetwork": false,', '  "HostPID": false,', '  "HostIPC": false,']


def test_diffs_escape_what_go_escapes_and_show_quantities() -> None:
    old = container(args=["a"], resources={"limits": {"cpu": "1"}})
    (complaint,) = changed("", "Pod", old, container(args=["<&>"], resources={"limits": {"cpu": "1"}}))
    assert '+    "\\u003c\\u0026\\u003e"' in complaint.splitlines()


def test_finalizers_of_some_groups_need_no_domain() -> None:
    named = {"metadata": {"finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}}
    assert complaints("node.k8s.io", "RuntimeClass", {"handler": "h", **named}) == []
    (complaint,) = complaints("", "ConfigMap", named)
    assert complaint.endswith("name is neither a standard finalizer name nor is it fully qualified")


@pytest.mark.parametrize(
    ("schema", "defaults"),
    [
        ({"properties": {"default": {"type": "string"}}}, False),
        ({"properties": {"p": {"type": "string", "default": "x"}}}, True),
        ({"properties": {"p": {"type": "object", "additionalProperties": {"type": "integer", "default": 1}}}}, True),
    ],
)
def test_a_field_named_default_is_no_default(schema: dict[str, Any], defaults: bool) -> None:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"} | schema},
    }
    spec = {
        "group": "x.io", "scope": "Cluster", "names": {"plural": "ws", "kind": "W"}, "versions": [version],
        "preserveUnknownFields": True,
    }  # fmt: skip
    obj = {"metadata": {"name": "ws.x.io"}, "spec": spec}
    found = complaints("apiextensions.k8s.io", "CustomResourceDefinition", obj)
    assert any("must be false in order to use defaults" in one for one in found) is defaults
    assert any("cannot set to true" in one for one in found)


def test_limit_ranges_in_disorder() -> None:
    limit = {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}
    assert complaints("", "LimitRange", {"spec": {"limits": [limit]}}) == [
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        'spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1',
        'spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1',
    ]
    gpu = {"type": "Container", "default": {"nvidia.com/gpu": "2"}, "defaultRequest": {"nvidia.com/gpu": "1"}}
    (complaint,) = complaints("", "LimitRange", {"spec": {"limits": [gpu]}})
    assert complaint.endswith("default value 2 must equal to defaultRequest value 1 in nvidia.com/gpu")
    storage = {"type": "PersistentVolumeClaim"}
    assert complaints("", "LimitRange", {"spec": {"limits": [storage]}}) == [
        "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was "
        "provided"
    ]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hard": {"gpus": "1"}}, "must be a standard resource for quota"),
        ({"hard": {"pods": "-1"}}, "must be greater than or equal to 0"),
        ({"hard": {"pods": "500m"}}, "must be an integer"),
        ({"scopes": ["Sometimes"]}, "unsupported scope"),
        ({"scopes": ["BestEffort", "NotBestEffort"]}, "conflicting scopes"),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}, "at least one"),
    ],
)
def test_quotas(spec: dict[str, Any], words: str) -> None:
    assert words in "\n".join(complaints("", "ResourceQuota", {"spec": spec}))


def test_the_health_of_devices_in_a_status() -> None:
    old = container(resources={"claims": [{"name": "gpu"}]})
    old["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    device = {"resourceID": "d/p/gpu-0", "health": "Healthy"}

    def reported(name: str, *devices: dict[str, str]) -> list[str]:
        status = {"name": "a", "image": "i", "allocatedResourcesStatus": [{"name": name, "resources": list(devices)}]}
        return changed("", "Pod", old, {"status": {"containerStatuses": [status]}}, "status")

    assert reported("claim:gpu", device) == []
    place = "status.containerStatuses[0].allocatedResourcesStatus[0]"
    assert reported("claim:gpu", device, device) == [f'{place}.resources[1].resourceID: Duplicate value: "d/p/gpu-0"']
    (complaint,) = reported("claim:nic", device)
    assert complaint.startswith(f"{place}.name: Invalid value")
    assert reported("claim:gpu", {**device, "health": "Sick"}) == [
        f'{place}.resources[0].health: Unsupported value: "Sick": supported values: "Healthy", "Unhealthy", "Unknown"'
    ]


def test_ephemeral_containers_are_only_added() -> None:
    one, two = {"name": "e", "image": "i"}, {"name": "f", "image": "i"}
    old = pod(ephemeralContainers=[one])
    path = "spec.ephemeralContainers: Forbidden: existing ephemeral containers"
    assert changed("", "Pod", old, pod(ephemeralContainers=[one, two]), "ephemeralcontainers") == []
    assert changed("", "Pod", old, pod(ephemeralContainers=[]), "ephemeralcontainers") == [
        f'{path} "e" may not be removed\n'
    ]
    (complaint,) = changed("", "Pod", old, pod(ephemeralContainers=[{**one, "image": "j"}]), "ephemeralcontainers")
    assert complaint.startswith(f'{path} "e" may not be changed\n@@ -1,6 +1,6 @@\n {{\n  "Name": "e",\n- "Image": "i",')


def test_resizing_keeps_the_quality_of_service_and_other_resources() -> None:
    def sized(**amounts: str) -> dict[str, Any]:
        return container(resources={"requests": amounts})

    assert changed("", "Pod", sized(cpu="1"), sized(cpu="2"), "resize") == []
    assert changed("", "Pod", sized(cpu="1", memory="1"), sized(cpu="1"), "resize") == [
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"
    ]
    (complaint, *_) = changed("", "Pod", container(), sized(cpu="2"), "resize")
    assert complaint.endswith("Pod QOS Class may not change as a result of resizing")
    disk = "ephemeral-storage"
    assert changed("", "Pod", sized(cpu="1", **{disk: "1"}), sized(cpu="1", **{disk: "2"}), "resize") == [
        "spec: Forbidden: only cpu and memory resources are mutable"
    ]
