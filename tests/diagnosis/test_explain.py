"""Why a workload does not get its device: one test per answer, each in a world of a few objects."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from drakkar.diagnosis import render
from drakkar.diagnosis.explain import TargetError, examine, explain
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.snapshot import LogKey
from tests.diagnosis.world import BIG, claim, device_class, devices, event, gpu, node, piece, pod, template, uid, world


def test_a_selector_that_nothing_satisfies_is_named_with_wanted_and_actual_value() -> None:
    verdict = explain(world(claim("c", devices(BIG)), pod("p", claim_name="c")), "pod/ml/p")
    assert (verdict.boundary, verdict.cause, verdict.subject) == ("allocation", "selector-matches-nothing", "Pod/ml/p")
    shown = render.text(verdict, width=10_000)
    assert BIG in shown
    assert "memory is 40Gi on 2 devices, e.g. gpu.nvidia.com/n1/gpu-0" in shown
    assert "(memory is 40Gi)" in verdict.sentence
    assert "wanted: > 40Gi" in shown


def test_only_the_false_clause_of_a_selector_is_named() -> None:
    clause = "device.attributes['gpu.nvidia.com'].productName.startsWith('NVIDIA H100')"
    text = f"device.driver == 'gpu.nvidia.com' && {clause}"
    verdict = explain(world(claim("c", devices(text)), pod("p", claim_name="c")), "pod/ml/p")
    assert f"`{clause}`" in verdict.sentence
    assert "productName is NVIDIA A100" in verdict.sentence


def test_devices_in_use_name_their_holders() -> None:
    snapshot = world(
        claim("a", held="n1/gpu-0", users=("pa",)),
        claim("b", held="n2/gpu-0", users=("pb",)),
        pod("pa", claim_name="a", on="n1", phase="Running"),
        pod("pb", claim_name="b", on="n2", phase="Running"),
        claim("c"),
        pod("p", claim_name="c"),
    )
    verdict = explain(snapshot, "pod/ml/p")
    assert verdict.cause == "devices-in-use"
    assert "claim ml/a (pod pa), claim ml/b (pod pb)" in verdict.sentence


def test_a_claim_that_nobody_uses_but_that_holds_a_device_is_the_subject() -> None:
    snapshot = world(
        claim("a", held="n1/gpu-0"), claim("b", held="n2/gpu-0", users=("pb",)), claim("c"), pod("p", claim_name="c"),
        pod("pb", claim_name="b", on="n2", phase="Running"),
    )  # fmt: skip
    assert explain(snapshot, "pod/ml/p").subject == "ResourceClaim/ml/a"
    assert explain(snapshot, "claim/ml/a").cause == "claim-retained"
    assert examine(snapshot).cause == "claim-retained"


def test_a_pod_with_node_name_was_never_scheduled() -> None:
    verdict = explain(world(claim("c"), pod("p", claim_name="c", on="n1")), "pod/ml/p")
    assert verdict.cause == "scheduler-bypassed"
    assert "status.allocation is absent" in render.text(verdict, width=10_000)
    assert "kubernetes.io/hostname=n1" in verdict.next_step


@pytest.mark.parametrize(
    ("objects", "cause", "says"),
    [
        ((pod("p", claim_name="gone"),), "claim-missing", "ResourceClaim gone"),
        ((pod("p", template_name="gone"),), "template-missing", "ResourceClaimTemplate gone"),
        ((pod("p", template_name="t"), template("t", namespace="other")), "template-missing", "is in other"),
        ((claim("c", devices(class_name="tpu")), pod("p", claim_name="c")), "class-missing", "DeviceClass tpu"),
        ((claim("c", devices(count=33)), pod("p", claim_name="c")), "size-limit", "asks for 33 devices"),
        ((claim("c", devices("device.nope")), pod("p", claim_name="c")), "selector-invalid", "`device.nope`"),
        (
            (claim("c", devices("device.attributes['gpu.nvidia.com'].color == 'red'")), pod("p", claim_name="c")),
            "selector-error",
            "no such key: color",
        ),
        (
            (claim("c", devices("device.attributes['gpu.nvidia.com'].memory > 1")), pod("p", claim_name="c")),
            "selector-attribute-is-capacity",
            "publish it as capacity",
        ),
        (
            (claim("c"), pod("p", claim_name="c", spec={"nodeSelector": {"zone": "b"}})),
            "node-mismatch",
            "the pod may not run there",
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_said(objects: tuple, cause: str, says: str) -> None:  # type: ignore[type-arg]
    verdict = explain(world(*objects), "pod/ml/p")
    assert verdict.cause == cause
    assert says in verdict.sentence


def test_tainted_devices_name_the_taint_and_the_nodes() -> None:
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    slices = [piece(name, gpu("gpu-0", taints=[taint])) for name in ("n1", "n2")]
    verdict = explain(world(*slices, claim("c"), pod("p", claim_name="c")), "pod/ml/p")
    assert verdict.cause == "devices-tainted"
    assert "gpu.nvidia.com/xid:NoSchedule on n1, n2" in verdict.sentence


def test_a_constraint_that_no_set_satisfies() -> None:
    constraint = [{"matchAttribute": "gpu.nvidia.com/uuid"}]
    both = piece("n1", gpu("gpu-0"), gpu("gpu-1"))
    verdict = explain(
        world(both, claim("c", devices(count=2, constraints=constraint)), pod("p", claim_name="c")), "pod/ml/p"
    )
    assert verdict.cause == "constraint-unsatisfiable"
    assert "gpu.nvidia.com/uuid" in verdict.sentence


def test_a_quota_that_refuses_the_claim() -> None:
    waiting = pod("p", template_name="t")
    text = (
        'PodResourceClaim gpu: create ResourceClaim : resourceclaims.resource.k8s.io "p-gpu-x" is forbidden: exceeded'
        " quota: few, requested: count/resourceclaims.resource.k8s.io=1, used: count/resourceclaims.resource.k8s.io=2,"
        " limited: count/resourceclaims.resource.k8s.io=2"
    )
    snapshot = world(waiting, template("t"), events=(event(waiting, "FailedResourceClaimCreation", text),))
    verdict = explain(snapshot, "pod/ml/p")
    assert verdict.cause == "quota-exceeded"
    assert "ResourceQuota few" in verdict.sentence


def bound(name: str = "p") -> tuple[dict, dict]:  # type: ignore[type-arg]
    return claim("c", held="n1/gpu-0", users=(name,)), pod(name, claim_name="c", on="n1")


@pytest.mark.parametrize(
    ("message", "cause", "boundary"),
    [
        ("DRA driver gpu.nvidia.com is not registered", "plugin-not-registered", "preparation"),
        ("old ResourceClaim with same name c and different UID 1-2 still exists", "claim-replaced", "preparation"),
        ('strict decoding error: unknown field "sharing.x"', "config-rejected", "preparation"),
        ("GPU is lost", "device-missing", "inventory"),
        ("rpc error: code = Unimplemented desc = unknown service v1.DRAPlugin", "api-version-skew", "preparation"),
        (
            'fetch ResourceClaim c: resourceclaims.resource.k8s.io "c" is forbidden: User "system:node:n1" cannot get'
            " resource: node: no relationship found between node 'n1' and this object",
            "not-enough-evidence",
            "preparation",
        ),
        ("something nobody has seen before", "not-enough-evidence", "preparation"),
    ],
)
def test_a_failed_preparation_is_explained_by_the_drivers_words(message: str, cause: str, boundary: str) -> None:
    made, waiting = bound()
    text = f"Failed to prepare dynamic resources: prepare dynamic resources: {message}"
    snapshot = world(
        made, waiting, events=(event(waiting, "Scheduled", "ok"), event(waiting, "FailedPrepareDynamicResources", text))
    )
    verdict = explain(snapshot, "pod/ml/p")
    assert (verdict.cause, verdict.boundary) == (cause, boundary)
    assert message in render.text(verdict, width=10_000)


def test_a_kubelet_that_was_quicker_than_the_authorizer_is_told_from_a_failing_driver() -> None:
    made, waiting = bound()
    refused = "prepare dynamic resources: fetch ResourceClaim c: forbidden: node: no relationship found between node"
    failed = event(waiting, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {refused}")
    verdict = explain(world(made, waiting, events=(event(waiting, "Scheduled", "ok"), failed)), "pod/ml/p")
    assert "the driver was not asked, and the kubelet comes back within 90 s" in verdict.sentence
    assert "rbac.kubeletsReadClaims" in render.text(verdict, width=10_000)


def test_a_lost_node_is_said() -> None:
    made, waiting = bound()
    snapshot = world(node("n1", ready=False), made, waiting, events=(event(waiting, "Scheduled", "ok"),))
    verdict = explain(snapshot, "pod/ml/p")
    assert "node n1 of pod p is not ready: Kubelet stopped posting node status." in verdict.sentence
    assert verdict.boundary == "preparation"


def test_cdi_directories_that_the_runtime_does_not_read() -> None:
    made, waiting = bound()
    name = f"k8s.gpu.nvidia.com/claim={uid('ResourceClaim', 'c')}-gpu-0"
    text = f"Error: CDI device injection failed: unresolvable CDI devices {name}"
    toml = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\ncdi_spec_dirs = ['/etc/cdi']\n"
    snapshot = world(
        made, waiting, nodes={"n1": NodeCapture("n1", {"containerd.toml": toml})},
        events=(event(waiting, "Scheduled", "ok"), event(waiting, "Failed", text)),
    )  # fmt: skip
    assert explain(snapshot, "pod/ml/p").cause == "cdi-directory-mismatch"
    without = world(made, waiting, events=snapshot.events)
    verdict = explain(without, "pod/ml/p")
    assert verdict.cause == "not-enough-evidence"
    assert "nodes/n1/containerd.toml" in render.text(verdict, width=10_000)


def test_a_deleted_claim_waits_for_its_pod() -> None:
    deleted = claim(
        "c", held="n1/gpu-0", users=("p",), deletionTimestamp="2026-01-01T01:00:00Z",
        finalizers=["resource.kubernetes.io/delete-protection"],
    )  # fmt: skip
    verdict = explain(world(deleted, pod("p", claim_name="c", on="n1", phase="Running")), "claim/ml/c")
    assert verdict.healthy
    assert "waits for its finalizer: it is still in use by pod p" in verdict.sentence


def test_a_running_pod_has_all_four_boundaries_proved() -> None:
    made = claim("c", held="n1/gpu-0", users=("p",))
    log = {LogKey("ml", "p", "main"): "GPU 0: NVIDIA A100 (UUID: GPU-gpu-0)\n"}
    verdict = explain(world(made, pod("p", claim_name="c", on="n1", phase="Running"), logs=log), "pod/ml/p")
    assert verdict.healthy
    (record,) = verdict.records
    assert record.claim_uid == uid("ResourceClaim", "c")
    assert str(record.device) == "gpu.nvidia.com/n1/gpu-0"
    assert record.first_gap == ""
    assert "the container saw GPU 0" in record.boundaries["injection"].text


def test_a_deployment_speaks_for_its_pods() -> None:
    deployment = {"kind": "Deployment", "metadata": {"name": "d", "namespace": "ml", "uid": "d"}}
    owned = [{"kind": "Deployment", "name": "d", "uid": "d", "controller": True}]
    replicas = {
        "kind": "ReplicaSet",
        "metadata": {"name": "r", "namespace": "ml", "uid": "r", "ownerReferences": owned},
    }
    mine = [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]
    snapshot = world(deployment, replicas, pod("p", claim_name="gone", ownerReferences=mine))
    verdict = explain(snapshot, "deployment/ml/d")
    assert verdict.cause == "claim-missing"
    assert verdict.sentence.startswith("Deployment d: ResourceClaim gone")
    assert verdict.subject == "Pod/ml/p"


def test_a_pod_that_asks_for_nothing_is_not_our_matter() -> None:
    waiting = pod("p")
    snapshot = world(waiting, events=(event(waiting, "FailedScheduling", "0/2 nodes: Insufficient cpu"),))
    assert explain(snapshot, "pod/ml/p").cause == "unschedulable-other"


def test_incomplete_and_missing_inventory_come_first() -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    nothing = [piece(name) for name in ("n1", "n2")]
    verdict = explain(world(*nothing, node("n1", labels=labels), claim("c"), pod("p", claim_name="c")), "pod/ml/p")
    assert (verdict.boundary, verdict.cause, verdict.subject) == ("inventory", "slice-empty", "Node/n1")
    half = explain(world(piece("n1", gpu("gpu-0"), count=2)), "node/n1")
    assert half.cause == "slice-incomplete"


def test_inventory_elsewhere_does_not_excuse_a_wrong_selector() -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    bad = claim("c", devices("device.attributes['gpu.nvidia.com'].memory > 1"))
    snapshot = world(piece("n1"), node("n1", labels=labels), bad, pod("p", claim_name="c"))
    assert explain(snapshot, "pod/ml/p").cause == "selector-attribute-is-capacity"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("p", "is no target"),
        ("thing/p", "is no target"),
        ("pod/", "is no target"),
        ("pod/nope", "there is no Pod nope in namespace default"),
        ("pod/ml/nope", "there is no Pod nope in namespace ml"),
        ("node/nope", "there is no Node nope"),
    ],
)
def test_a_wrong_target_is_one_sentence(target: str, says: str) -> None:
    with pytest.raises(TargetError, match=says) as raised:
        explain(world(pod("p")), target)
    assert raised.value.to_dict()["reason"] in ("InvalidTarget", "NotFound")


def test_a_target_in_another_namespace_is_suggested() -> None:
    with pytest.raises(TargetError) as raised:
        explain(world(pod("p")), "pod/p")
    assert raised.value.next_step == "try pod/ml/p"
    assert explain(world(pod("p")), "pod/p", namespace="ml").healthy


def test_the_text_fits_80_columns_and_the_json_is_plain() -> None:
    verdict = explain(world(claim("c", devices(BIG)), pod("p", claim_name="c")), "pod/ml/p")
    for line in render.text(verdict).splitlines():
        assert len(line) <= 80 or max(map(len, line.split())) > 60, "only a word as long as the line may stand out"
    parsed = json.loads(render.as_json(verdict))
    assert parsed["cause"] == "selector-matches-nothing"
    assert parsed["records"][0]["boundaries"]["allocation"]["state"] == "refuted"


def test_another_class_of_devices_is_not_counted() -> None:
    other = device_class("nic", "device.driver == 'nic.example.com'")
    verdict = explain(world(other, claim("c", devices(class_name="nic")), pod("p", claim_name="c")), "pod/ml/p")
    assert verdict.cause == "selector-matches-nothing"
    assert "no published device is of class nic" in verdict.sentence
    assert "gpu.nvidia.com on 2" in render.text(verdict, width=10_000)


def test_an_extended_resource_is_followed_to_its_class() -> None:
    stands_behind = device_class()
    stands_behind["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    waiting = pod("p", spec={"containers": [{"name": "main", **limits}]})
    snapshot = world(
        stands_behind, claim("a", held="n1/gpu-0", users=("pa",)), claim("b", held="n2/gpu-0", users=("pb",)),
        pod("pa", claim_name="a", on="n1", phase="Running"), pod("pb", claim_name="b", on="n2", phase="Running"),
        waiting,
    )  # fmt: skip
    verdict = explain(snapshot, "pod/ml/p")
    assert verdict.cause == "devices-in-use"
    assert "claim for nvidia.com/gpu" in verdict.sentence


def test_a_rollout_that_only_its_own_old_pods_could_unblock() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ml", "uid": "d"},
        "spec": {"replicas": 2, "strategy": strategy},
    }
    sets, pods, claims = [], [], []
    for number, revision in enumerate(("old", "old", "new")):
        owner = [{"kind": "Deployment", "name": "d", "uid": "d", "controller": True}]
        sets.append({"kind": "ReplicaSet", "metadata": {"name": revision, "uid": revision, "ownerReferences": owner}})
        mine = [{"kind": "ReplicaSet", "name": revision, "uid": revision, "controller": True}]
        more = {"ownerReferences": mine, "labels": {"pod-template-hash": revision}}
        held = {"held": f"n{number + 1}/gpu-0", "users": (f"p{number}",)} if revision == "old" else {}
        claims.append(claim(f"c{number}", **held))  # type: ignore[arg-type]
        where = {"on": f"n{number + 1}", "phase": "Running"} if revision == "old" else {}
        pods.append(pod(f"p{number}", claim_name=f"c{number}", **where, **more))  # type: ignore[arg-type]
    verdict = explain(world(deployment, *sets, *pods, *claims), "pod/ml/p2")
    assert (verdict.cause, verdict.subject) == ("rollout-deadlock", "Deployment/ml/d")
    assert "maxUnavailable 0" in verdict.sentence


def test_admin_access_needs_a_label_on_the_namespace() -> None:
    spec = devices()
    spec["requests"][0]["exactly"]["adminAccess"] = True
    namespace = {"kind": "Namespace", "metadata": {"name": "ml", "uid": "ns"}}
    snapshot = world(namespace, template("t", spec), pod("p", template_name="t"))
    assert explain(snapshot, "pod/ml/p").cause == "admin-access-denied"
    namespace["metadata"]["labels"] = {"resource.kubernetes.io/admin-access": "true"}  # type: ignore[index]
    assert explain(world(namespace, template("t", spec), pod("p", template_name="t")), "pod/ml/p").cause != (
        "admin-access-denied"
    )


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("RuntimeError: no kernel image is available for execution on the device", "application-cuda-mismatch"),
        ("CUDA driver version is insufficient for CUDA runtime version", "application-cuda-mismatch"),
        ("ValueError: bad input", "not-enough-evidence"),
    ],
)
def test_a_program_that_does_not_fit_its_gpu_is_told_apart_from_one_that_fails(line: str, cause: str) -> None:
    made, failing = bound()
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    failing["status"]["containerStatuses"] = [{"name": "main", "ready": False, "state": waiting}]
    snapshot = world(made, failing, events=(event(failing, "Scheduled", "ok"),), logs={LogKey("ml", "p", "main"): line})
    assert explain(snapshot, "pod/ml/p").cause == cause


def test_a_checkpoint_from_before_the_reboot() -> None:
    made, waiting = bound()
    checkpoint = {"v2": {"nodeBootID": "old", "preparedClaims": {uid("ResourceClaim", "c"): {}}}}
    rebooted = node("n1")
    rebooted["status"]["nodeInfo"] = {"bootID": "new"}
    failed = event(waiting, "FailedPrepareDynamicResources", "prepare dynamic resources: device busy")
    snapshot = world(
        rebooted, made, waiting, events=(event(waiting, "Scheduled", "ok"), failed),
        nodes={"n1": NodeCapture("n1", {"checkpoint.json": json.dumps(checkpoint)})},
    )  # fmt: skip
    assert explain(snapshot, "pod/ml/p").cause == "prepared-state-stale"


def test_an_upgrade_that_waits_for_pods() -> None:
    labels = {"nvidia.com/gpu-driver-upgrade-state": "pod-deletion-required"}
    made = claim("c", held="n1/gpu-0", users=("p",))
    running = pod("p", claim_name="c", on="n1", phase="Running")
    verdict = explain(world(node("n1", labels=labels), made, running), "node/n1")
    assert verdict.cause == "driver-upgrade-blocked"
    assert "ml/p" in verdict.sentence


def test_the_hosts_own_imex_service_blocks_a_domain() -> None:
    domain = {
        "kind": "ComputeDomain",
        "metadata": {"name": "cd", "namespace": "ml", "uid": "cd"},
        "spec": {"numNodes": 1},
        "status": {"status": "NotReady", "nodes": [{"name": "n1", "status": "NotReady", "cliqueID": "q"}]},
    }
    units = {"n1": NodeCapture("n1", {"units.txt": "nvidia-imex.service loaded active running IMEX\n"})}
    assert explain(world(domain, nodes=units), "computedomain/ml/cd").cause == "compute-domain-imex-conflict"


def test_numbers_that_are_wrong_about_a_path_that_works() -> None:
    series = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1",Hostname="n1",exported_pod="p"} 50\n'
    assert examine(world(metrics={"a.prom": series})).cause == "label-rewrite"
    log = {LogKey("mon", "dcgm-exporter-x", "exporter"): "rpc error: received message larger than max (5 vs. 4)"}
    assert examine(world(logs=log)).cause == "exporter-message-limit"


def test_without_the_slices_no_cause_is_claimed() -> None:
    refused = "resourceslices.resource.k8s.io: user cannot list it"
    snapshot = replace(world(claim("c", devices(BIG)), pod("p", claim_name="c")), unread=(refused,))
    verdict = explain(snapshot, "pod/ml/p")
    assert (verdict.cause, verdict.boundary, verdict.confidence) == ("not-enough-evidence", "allocation", "possible")
    assert verdict.sentence.startswith("resourceslices.resource.k8s.io could not be read")
    assert "user cannot list it" in render.text(verdict)
    assert examine(snapshot).cause == "not-enough-evidence"


def test_a_target_that_could_not_be_read_is_not_said_to_be_absent() -> None:
    snapshot = replace(world(), unread=("pods: user cannot list it",))
    with pytest.raises(TargetError, match="cannot read Pod x: user cannot list it"):
        explain(snapshot, "pod/ml/x")


def test_a_free_device_that_the_scheduler_refuses_beside_a_shared_claim_is_its_defect() -> None:
    entries = [{"name": "shared", "resourceClaimName": "a"}, {"name": "own", "resourceClaimName": "c"}]
    waiting = pod("p", spec={"resourceClaims": entries})
    snapshot = world(
        claim("a", held="n1/gpu-0", users=("pa",)), pod("pa", claim_name="a", on="n1", phase="Running"),
        claim("c"), waiting, piece("n1", gpu("gpu-0"), gpu("gpu-1")),
        events=(event(waiting, "FailedScheduling", "0/2 nodes are available: 2 cannot allocate all claims."),),
    )  # fmt: skip
    verdict = explain(snapshot, "pod/ml/p")
    assert (verdict.cause, verdict.boundary) == ("scheduler-defect-mixed-claims", "allocation")
    other = (event(waiting, "FailedScheduling", "0/2 nodes are available: 2 node(s) had volume conflict."),)
    assert explain(replace(snapshot, events=other), "pod/ml/p").cause == "unschedulable-other"


def test_a_specification_that_is_too_new_for_the_runtime() -> None:
    made, waiting = bound()
    claim_uid = uid("ResourceClaim", "c")
    edits = {"env": ["A=b"]}
    spec = {
        "cdiVersion": "1.1.0",
        "kind": "k8s.gpu.nvidia.com/claim",
        "devices": [{"name": f"{claim_uid}-gpu-0", "containerEdits": edits}],
    }
    line = 'containerd: level=error msg="failed to load CDI spec /var/run/cdi/c.json: invalid version \\"1.1.0\\""'
    files = {"cdi/c.json": json.dumps(spec), "journal.txt": line}
    text = f"CDI device injection failed: unresolvable CDI devices k8s.gpu.nvidia.com/claim={claim_uid}-gpu-0"
    events = (event(waiting, "Scheduled", "ok"), event(waiting, "Failed", text))
    verdict = explain(world(made, waiting, nodes={"n1": NodeCapture("n1", files)}, events=events), "pod/ml/p")
    assert verdict.cause == "cdi-unsupported-version"
    assert "is of CDI version 1.1.0" in verdict.sentence
    assert verdict.next_step.endswith("let the driver write version 0.3.0")


def test_a_rule_that_reads_what_nothing_exports() -> None:
    expr = "DCGM_FI_PROF_GR_ENGINE_ACTIVE > 0 and DCGM_FI_DEV_GPU_UTIL > 0"
    metadata = {"name": "gpu", "namespace": "ml", "uid": "r"}
    rule = {"kind": "PrometheusRule", "metadata": metadata, "spec": {"groups": [{"rules": [{"expr": expr}]}]}}
    series = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="n1"} 3\n'
    verdict = examine(world(rule, metrics={"a.prom": series}))
    assert (verdict.cause, verdict.subject) == ("metric-absent", "PrometheusRule/ml/gpu")
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE, which nothing exports" in verdict.sentence
    assert examine(world(rule)).cause == "healthy"
