"""Rules in small worlds: what each finds, and what is so near to it that it must not be found."""

from __future__ import annotations

import pytest

from tests.migration.worlds import DRA, alert, cel, found, pod, review, template

EXPRESSION = "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression"
EXPR = "spec.groups[0].rules[0].expr"
JOIN = "\n---\n"
A = "device.attributes['gpu.nvidia.com']"


def test_mode_all_takes_no_count() -> None:
    text = template("deviceClassName: gpu.nvidia.com\nallocationMode: All\ncount: 2")
    assert found(text) == [("count-with-all", "spec.spec.devices.requests[0].exactly.count")]


@pytest.mark.parametrize(
    ("gate", "value", "minor", "code"),
    [
        ("DynamicResourceAllocation", False, 36, "gate-cannot-be-off"),
        ("DynamicResourceAllocation", False, 34, None),
        ("DRAExtendedResource", True, 36, None),
        ("DRAExtendedResource", True, 37, "gate-locked"),
        ("DRAControlPlaneController", True, 34, "gate-locked"),
        ("KubeletPodResourcesDynamicResources", False, 36, "podresources-dra-off"),
    ],
)
def test_gates_of_components(gate: str, value: bool, minor: int, code: str | None) -> None:
    text = f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: {{{gate}: {value}}}\n"
    assert [each for each, _ in found(text, minor=minor)] == ([code] if code else [])


def test_gates_in_old_kubeadm_files_and_on_command_lines() -> None:
    kubeadm = """
        apiVersion: kubeadm.k8s.io/v1beta3
        kind: ClusterConfiguration
        scheduler: {extraArgs: {feature-gates: "X=true,DynamicResourceAllocation=false"}}
        ---
        apiVersion: v1
        kind: Pod
        metadata: {name: kube-apiserver, namespace: kube-system}
        spec: {containers: [{name: s, image: s, command: [kube-apiserver, "--feature-gates=DRAAdminAccess=true"]}]}
    """
    assert found(kubeadm) == [
        ("gate-cannot-be-off", "scheduler.extraArgs.feature-gates"),
        ("gate-locked", "spec.containers[0].command[1]"),
    ]


@pytest.mark.parametrize(("minor", "expected"), [(35, ["featureGates.DynamicMIG"]), (36, [])])
def test_dynamic_mig_needs_partitionable_devices(minor: int, expected: list[str]) -> None:
    values = DRA + "featureGates: {DynamicMIG: true}\n"
    places = [path for code, path in found({"dra.values.yaml": values}, minor=minor) if code.startswith("gate-needs")]
    assert places == expected


@pytest.mark.parametrize(
    ("expression", "class_name", "code"),
    [
        (f"{A}.memory >= 16000", "gpu.nvidia.com", "selector-attribute-is-capacity"),
        (
            "device.capacity['gpu.nvidia.com'].architecture == quantity('1')",
            "gpu.nvidia.com",
            "selector-attribute-is-capacity",
        ),
        ("device.attributes['nvidia.com'].memory > 1", "gpu.nvidia.com", "selector-attribute-is-capacity"),
        (f"{A}.model == 'H100'", "gpu.nvidia.com", "selector-unknown-attribute"),
        (f"{A}.pcieRoot == 'x'", "gpu.nvidia.com", "selector-unknown-attribute"),
        (f"{A}.addressingMode == 'ATS'", "gpu.nvidia.com", "selector-unguarded-attribute"),
        (f"has({A}.addressingMode) || {A}.addressingMode == 'ATS'", "gpu.nvidia.com", "selector-unguarded-attribute"),
        (f"!has({A}.addressingMode) || {A}.addressingMode == 'ATS'", "gpu.nvidia.com", None),
        (f"{A}.addressingMode == 'ATS' && 'addressingMode' in {A}", "gpu.nvidia.com", None),
        (f"has({A}.addressingMode) ? {A}.addressingMode == 'ATS' : true", "gpu.nvidia.com", None),
        (f"cel.bind(a, {A}, a.driverVersion == '580.0.0')", "gpu.nvidia.com", "selector-type-mismatch"),
        (f"{A}.driverVersion.compareTo(semver('580.0.0')) >= 0", "gpu.nvidia.com", None),
        (f"{A}.driverVersion.major() >= 580", "gpu.nvidia.com", None),
        (f"{A}.productName.isGreaterThan(semver('1.0.0'))", "gpu.nvidia.com", "selector-type-mismatch"),
        (f"{A}.productName == 100", "gpu.nvidia.com", "selector-type-mismatch"),
        (f"{A}.productName in ['NVIDIA L4', 'NVIDIA L40S']", "gpu.nvidia.com", None),
        (f"{A}.profile in ['1g.10gb', '2g.20gb']", "mig.nvidia.com", None),
        ("device.attributes['nic.example.com'].speed > 100", "nic.example.com", None),
        ("device.capacity['gpu.nvidia.com'].memory >= quantity('40Gi')", "gpu.nvidia.com", "selector-does-not-compile"),
    ],
)
def test_selectors(expression: str, class_name: str, code: str | None) -> None:
    assert found(cel(expression, class_name)) == ([(code, EXPRESSION)] if code else [])


def test_a_guard_in_an_earlier_selector_counts() -> None:
    guarded = f"""
        deviceClassName: gpu.nvidia.com
        selectors:
        - cel: {{expression: "has({A}.addressingMode)"}}
        - cel: {{expression: "{A}.addressingMode == 'ATS'"}}
    """
    assert found(template(guarded)) == []


def test_a_class_of_ones_own_is_judged_by_what_it_selects() -> None:
    own = (
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: slices}\nspec:\n  selectors:\n"
        f"  - cel: {{expression: \"device.driver == 'gpu.nvidia.com' && {A}.type == 'mig'\"}}\n"
    )
    assert found(own + JOIN + cel(f"{A}.profile == '1g.10gb'", "slices")) == []
    assert found(own + JOIN + cel(f"{A}.gpuModuleID == 1", "slices")) == [("selector-unknown-attribute", EXPRESSION)]


@pytest.mark.parametrize(
    ("count", "code"), [("count: 33", "claim-too-large"), ("count: 32", None), ("allocationMode: All", None)]
)
def test_a_claim_holds_32_devices(count: str, code: str | None) -> None:
    place = "spec.spec.devices.requests[0].exactly.count"
    assert found(template(f"deviceClassName: gpu.nvidia.com\n{count}")) == ([(code, place)] if code else [])


def test_cdi_devices_by_hand() -> None:
    by_annotation = pod(labels="{}, annotations: {cdi.k8s.io/gpu: nvidia.com/gpu=2}")
    assert found(template() + JOIN + by_annotation) == [
        ("cdi-device-by-hand", "metadata.annotations['cdi.k8s.io/gpu']")
    ]
    by_variable = pod(container="env: [{name: NVIDIA_VISIBLE_DEVICES, value: nvidia.com/gpu=2}]")
    assert found(template() + JOIN + by_variable) == [("cdi-device-by-hand", "spec.containers[0].env[0]")]
    assert found(template() + JOIN + pod(container="env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]")) == []


def test_one_container_asks_twice() -> None:
    twice = pod(container="resources: {claims: [{name: gpu}], limits: {nvidia.com/gpu: 1}}")
    place = "spec.containers[0].resources.limits['nvidia.com/gpu']"
    assert found(template() + JOIN + twice) == [("limits-and-claim", place)]
    nic = template("deviceClassName: nic.example.com")
    assert found(nic + JOIN + twice) == []


def test_configuration_needs_its_gate() -> None:
    more = """
        config:
        - opaque:
            driver: gpu.nvidia.com
            parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig, sharing: {strategy: MPS}}
    """
    claim = template(more=more)
    place = "spec.spec.devices.config[0].opaque.parameters.sharing.strategy"
    assert found({"t.yaml": claim}) == []
    assert found({"t.yaml": claim, "dra.values.yaml": DRA}) == [("config-gate-missing", place)]
    with_gate = DRA + "featureGates: {MPSSupport: true}\n"
    assert found({"t.yaml": claim, "dra.values.yaml": with_gate}) == []


def test_priority_frees_no_devices() -> None:
    urgent = template() + JOIN + pod("priorityClassName: urgent")
    assert found(urgent) == [("priority-does-not-free-devices", "spec.priorityClassName")]
    never = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\nvalue: 9\n"
    never += "preemptionPolicy: Never\n"
    assert found(never + JOIN + urgent) == []


def test_quotas_on_objects() -> None:
    quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: a}\nspec: {hard: {%s: '8'}}\n"
    objects = "count/resourceclaims.resource.k8s.io"
    assert found(quota % objects) == [("quota-counts-objects", f"spec.hard['{objects}']")]
    assert found(quota % "gpu.nvidia.com.deviceclass.resource.k8s.io/devices") == []


def test_a_limit_range_adds_a_gpu() -> None:
    limits = (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l, namespace: %s}\n"
        "spec: {limits: [{type: Container, default: {nvidia.com/gpu: 1}}]}\n"
    )
    place = "spec.limits[0].default['nvidia.com/gpu']"
    assert found(limits % "a" + JOIN + template() + JOIN + pod()) == [("limitrange-adds-gpu", place)]
    assert found(limits % "b" + JOIN + template() + JOIN + pod()) == []


QUEUED = "{kueue.x-k8s.io/queue-name: q}"
KUEUE = (
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    "resources: {deviceClassMappings: [{name: gpus, deviceClassNames: [gpu.nvidia.com]}]}\n"
)


def test_kueue() -> None:
    direct = pod(claim="resourceClaimName: c", labels=QUEUED)
    assert found(direct) == [("kueue-direct-claim", "spec.resourceClaims[0].resourceClaimName")]
    mig = template("deviceClassName: mig.nvidia.com")
    place = "spec.spec.devices.requests[0].exactly.deviceClassName"
    assert found(KUEUE + JOIN + mig + JOIN + pod(labels=QUEUED)) == [("kueue-class-unmapped", place)]
    assert found(KUEUE + JOIN + template() + JOIN + pod(labels=QUEUED)) == []
    assert found(mig + JOIN + pod(labels=QUEUED)) == []
    every = template("deviceClassName: gpu.nvidia.com\nallocationMode: All")
    place = "spec.spec.devices.requests[0].exactly.allocationMode"
    assert found(every + JOIN + pod(labels=QUEUED)) == [("kueue-unsupported-claim", place)]
    assert found(every + JOIN + pod()) == []


def slice_of(memory: str) -> dict[str, object]:
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": memory}}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": [device]}
    return {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


@pytest.mark.parametrize(("memory", "expected"), [("40Gi", [("selector-matches-nothing", EXPRESSION)]), ("41Gi", [])])
def test_selectors_against_recorded_devices(memory: str, expected: list[tuple[str, str]]) -> None:
    text = cel("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) > 0")
    assert found(text, inventory=[slice_of(memory)]) == expected
    assert found(text) == []


def test_values_that_the_chart_does_not_have() -> None:
    values = DRA + "kubeletPlugin: {runtimeClassName: nvidia}\nfeatureGates: {DynamicMig: true}\n"
    assert found({"dra.values.yaml": values}) == [
        ("chart-value-unknown", "kubeletPlugin.runtimeClassName"),
        ("chart-value-unknown", "featureGates.DynamicMig"),
    ]


def test_eviction_by_the_plugins_label() -> None:
    values = (
        "devicePlugin: {enabled: false}\ndriver:\n  manager:\n    env:\n"
        "    - {name: NODE_LABEL_FOR_GPU_POD_EVICTION, value: nvidia.com/dra-kubelet-plugin}\n%s"
    )
    expected = [("eviction-label-selects-plugin", "driver.manager.env[0]")]
    assert found({"operator.values.yaml": values % ""}) == expected
    assert found({"operator.values.yaml": values % "    version: v0.12.1\n"}) == []


def test_exporters_without_dra() -> None:
    off = "kubernetesDRA: {enabled: false}\n"
    assert found({"dcgm-exporter.values.yaml": off}) == []
    both = {"dcgm-exporter.values.yaml": off, "dra.values.yaml": DRA}
    assert found(both) == [("exporter-dra-off", "kubernetesDRA.enabled")]


def test_karpenter() -> None:
    named = {"t.yaml": template(), "karpenter.values.yaml": "settings: {clusterName: c}\n"}
    assert found(named) == [("autoscaler-ignores-claims", "settings")]
    assert found(named | {"karpenter.values.yaml": "settings: {enableDRA: true}\n"}) == []


HEAD = "DCGM_FI_DEV_FB_USED, gauge, Frame buffer in use (in MiB).\n"


@pytest.mark.parametrize(
    ("line", "exporter", "code"),
    [
        ("DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs.", "4.5.2-4.8.1", "csv-field-unknown"),
        ("DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs.", "4.6.0-4.8.3", None),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, Heat (in C).", "4.5.2-4.8.1", "csv-field-unknown"),
        ("DCGM_FI_DEV_GPU_UTILIZATION, gauge, Busy.", "", "csv-field-unknown"),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN, gauge, Not in our table and real.", "", None),
        ("DCGM_FI_DEV_POWER_USAGE, gauge, Power (in mW).", "", "csv-unit"),
        ("DCGM_FI_DRIVER_VERSION, label, Driver.", "", None),
    ],
)
def test_lines_of_counter_files(line: str, exporter: str, code: str | None) -> None:
    assert found({"c.csv": HEAD + line}, exporter=exporter) == ([(code, "line[2]")] if code else [])


XIDS = "DCGM_EXP_XID_ERRORS_TOTAL"
RECIPE = f"({XIDS} > 0 unless {XIDS} offset 5m) or increase({XIDS}[5m]) > 0"


@pytest.mark.parametrize(
    ("expression", "name", "kind", "code"),
    [
        ("absent(DCGM_FI_DEV_XID_ERRORS)", "node:gpu_healthy:bool", "record", "rule-absence-as-health"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL or vector(1)", "gpu_ok", "record", "rule-absence-as-health"),
        ("absent(DCGM_FI_DEV_XID_ERRORS)", "XIDMetricMissing", "alert", None),
        ("increase(DCGM_EXP_XID_ERRORS_TOTAL[5m]) > 0", "Xid", "alert", "rule-misses-first-sample"),
        (RECIPE, "Xid", "alert", None),
        ("avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE)", "gpu:sm_occupancy:avg", "record", "rule-metric-meaning"),
        ("avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE)", "gpu:engine_active:avg", "record", None),
        ("DCGM_FI_DEV_MEM_COPY_UTIL > 90", "GPUMemoryFull", "alert", "rule-metric-meaning"),
        (
            "kube_node_labels{label_nvidia_com_mig_config_state='failed'} == 1",
            "Mig",
            "alert",
            "rule-mig-state-only-failed",
        ),
        ("kube_node_labels{label_nvidia_com_mig_config_state!='success'} == 1", "Mig", "alert", None),
        ("rate(DCGM_FI_DEV_POWER_VIOLATION[5m]) / 1e6 > 0.01", "Throttled", "alert", "rule-unit"),
        ("rate(DCGM_FI_DEV_POWER_VIOLATION[5m]) / 1e9 > 0.01", "Throttled", "alert", None),
        ("rate(DCGM_FI_DEV_POWER_VIOLATION[5m]) > 0", "Throttled", "alert", None),
        ("sum(DCGM_FI_DEV_MEM_COPY_UTIL)", "cluster:gpu_memory_used_bytes:sum", "record", "rule-unit"),
        ("sum(DCGM_FI_DEV_FB_USED) * 1024 * 1024", "cluster:gpu_memory_used_bytes:sum", "record", None),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE > 80", "Busy", "alert", "rule-unit"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE * 100 > 80", "Busy", "alert", None),
        ("DCGM_FI_DEV_GPU_UTIL < 0.05", "Idle", "alert", "rule-unit"),
        ("80 < DCGM_FI_DEV_GPU_TEMP", "Hot", "alert", None),
        ("gpu_operator_node_device_plugin_devices_total == 0", "NoDevices", "alert", "rule-always-fires"),
        ("kube_node_status_allocatable{resource='cpu'} == 0", "NoCpu", "alert", None),
        ("changes(DCGM_FI_DEV_XID_ERRORS[5m]) > 0", "Xid", "alert", None),
        ("max_over_time(DCGM_FI_DEV_XID_ERRORS[5m]) == 79", "Xid", "alert", "rule-sticky-gauge"),
        ("avg by (GPU_I_ID) (DCGM_FI_DEV_GPU_UTIL)", "usage", "record", "rule-no-mig-data"),
        ("avg(DCGM_FI_DEV_GPU_UTIL{GPU_I_ID=''})", "usage", "record", None),
        ("(count(x < 1) or vector(0)) / count(x)", "ratio", "record", None),
        ("count(x < bool 1) / count(x)", "ratio", "record", None),
        ("{{ template }}", "Broken", "alert", None),
    ],
)
def test_alerts_and_records(expression: str, name: str, kind: str, code: str | None) -> None:
    assert found(alert(expression, name, kind=kind)) == ([(code, EXPR)] if code else [])


def test_event_texts() -> None:
    route = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e}\ndata:\n  c.yaml: |\n    match:\n"
        "    - reason: FailedScheduling\n      message: '%s'\n"
    )
    assert found(route % ".*claim could not be satisfied.*") == [("event-text-unknown", "data['c.yaml']")]
    for text in ("cannot allocate all claims", "Insufficient nvidia.com/gpu", ".*untolerated taint.*"):
        assert found(route % text) == []


def test_messages_teach_the_right_form() -> None:
    [finding] = review(cel(f"{A}.memory >= 16000"))
    assert "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('16Gi')) >= 0" in finding.message
    assert (finding.line, finding.column) == (13, 15)


def test_a_pod_from_a_cluster_has_its_node_from_the_scheduler() -> None:
    assert found(template() + JOIN + pod("nodeName: n1").replace("name: p,", "name: p, uid: u,")) == []
    assert found(template() + JOIN + pod("nodeName: n1")) == [("node-name-with-claim", "spec.nodeName")]


HOME = "registry.k8s.io/dra-driver-nvidia"
CHART = "dra-driver-nvidia-gpu"


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (f"kind: OCIRepository\nspec: {{url: 'oci://{HOME}/{CHART}'}}", "spec.url"),
        (f"kind: Application\nspec: {{source: {{repoURL: {HOME}, chart: {CHART}}}}}", "spec.source.repoURL"),
        (f"kind: HelmChart\nspec: {{chart: 'oci://{HOME}/{CHART}'}}", "spec.chart"),
        ("dependencies: [{name: k8s-dra-driver, repository: 'https://x.example'}]", "dependencies[0].repository"),
        (f"kind: Application\nspec: {{source: {{repoURL: {HOME}/charts, chart: {CHART}}}}}", ""),
        (f"kind: OCIRepository\nspec: {{url: 'oci://mirror.example/dra-driver-nvidia/charts/{CHART}'}}", ""),
    ],
)
def test_where_the_chart_is(document: str, path: str) -> None:
    assert found(document) == ([("chart-path-wrong", path)] if path else [])


@pytest.mark.parametrize(
    ("strategy", "replicas", "path"),
    [
        ("", 2, "spec"),
        ("strategy: {type: RollingUpdate}", 2, "spec.strategy"),
        ("strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", 2, "spec.strategy.rollingUpdate.maxSurge"),
        ("strategy: {rollingUpdate: {maxUnavailable: 1}}", 2, ""),
        ("strategy: {type: Recreate}", 2, ""),
        ("", 1, ""),
    ],
)
def test_rollouts_against_recorded_devices(strategy: str, replicas: int, path: str) -> None:
    deployment = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: a}\nspec:\n"
        f"  replicas: {replicas}\n  template:\n    spec:\n"
        "      resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]\n"
        "      containers: [{name: m, image: x, resources: {claims: [{name: gpu}]}}]\n"
        + (f"  {strategy}\n" if strategy else "")
    )
    other = slice_of("80Gi")
    other["spec"] = {**other["spec"], "nodeName": "o", "pool": {"name": "o", "resourceSliceCount": 1}}  # type: ignore[dict-item]
    assert found(template() + JOIN + deployment, inventory=[slice_of("80Gi"), other]) == (
        [("surge-cannot-fit", path)] if path else []
    )
