"""No planted secret leaves a cluster, wherever it stands, and what a diagnosis reads stays."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from drakkar.diagnosis.explain import examine
from drakkar.evidence.bundle import load, load_files
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.packing import packed
from drakkar.evidence.redaction import MARK, Redactor
from drakkar.evidence.snapshot import LogKey, Snapshot

CASES = Path(__file__).parents[2] / "cases" / "diagnosis"

# Each value is planted where its name says, and must be nowhere in the bundle.
PLANTED = {
    "env": "s3cr3t-env-value-91",
    "env-init": "init-Pa55phrase-17",
    "env-random": "Zm9vYmFyMTIzNDU2Nzg5",
    "argument": "arg-t0ken-4711",
    "argument-pair": "pair-w0rd-4712",
    "last-applied": "only-in-last-applied-8",
    "annotation": "annotated-s3cret-5",
    "configmap": "configmap-s3cret-6",
    "configmap-line": "tls-line-of-a-file-99",
    "secret": base64.b64encode(b"the secret object itself").decode(),
    "opaque": "opaque-parameter-pw-3",
    "bearer": "abcdefghijklmnop0123456789",
    "jwt": "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
    "key": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
    "kubeconfig-key": "TFMwdExTMUNSVWRKVGlCU1UwRWdVRkpKVmtGVVJTQkxSVms9",
    "kubeconfig-token": "kubeconfig-token-77aa",
    "url": "url-passw0rd",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "huggingface": "hf_abcdefghijklmnopqrstuvwxyz012345",
    "registry": "registry-passw0rd-2",
    "registry-auth": base64.b64encode(b"user:registry").decode(),
    "json-log": "json-log-s3cret",
    "shell-log": "shell-log-s3cret",
    "event": "event-t0ken-12",
}


def plant() -> Snapshot:
    container = {
        "name": "main",
        "image": "x",
        "command": ["run", "--token", PLANTED["argument"], "--batch", "8"],
        "args": [f"--db-password={PLANTED['argument-pair']}", "--node=n1", f"https://u:{PLANTED['url']}@example.com/x"],
        "env": [
            {"name": "DB_PASSWORD", "value": PLANTED["env"]},
            {"name": "SOMETHING", "value": PLANTED["env-random"]},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "LEVEL", "value": "debug"},
            {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}},
        ],
    }
    init = {"name": "init", "env": [{"name": "WANDB_API_KEY", "value": PLANTED["env-init"]}]}
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"x": PLANTED["last-applied"]}),
        "example.com/api-token": PLANTED["annotation"],
        "resource.kubernetes.io/pod-claim-name": "gpu",
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml", "uid": "u", "annotations": annotations, "managedFields": [{}]},
        "spec": {"containers": [container], "initContainers": [init], "nodeName": "n1"},
        "status": {"phase": "Running"},
    }
    kubeconfig = (
        f"users:\n- user:\n    client-key-data: {PLANTED['kubeconfig-key']}\n    token: {PLANTED['kubeconfig-token']}\n"
    )
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "ml"},
        "data": {
            "settings": PLANTED["configmap"],
            "file": f"first line here\n{PLANTED['configmap-line']}\n",
            "kc": kubeconfig,
        },
    }
    secret = {"kind": "Secret", "metadata": {"name": "s", "namespace": "ml"}, "data": {"a": PLANTED["secret"]}}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "password": PLANTED["opaque"]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml"},
        "spec": {
            "devices": {"requests": [], "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]}
        },
    }
    event = {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "ml"},
        "involvedObject": {"kind": "Pod", "name": "p", "uid": "u"},
        "message": f"pull failed: token={PLANTED['event']} and {PLANTED['argument']}",
    }
    log = "\n".join(
        [
            f"starting with {PLANTED['env']} and {PLANTED['env-random']}",
            f"Authorization: Bearer {PLANTED['bearer']}",
            f"jwt {PLANTED['jwt']}",
            f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED['key']}\n-----END RSA PRIVATE KEY-----",
            f"aws {PLANTED['aws']} git {PLANTED['github']} hub {PLANTED['huggingface']}",
            json.dumps({"level": "info", "client_secret": PLANTED["json-log"]}),
            f"export MY_API_KEY={PLANTED['shell-log']}",
            f"config line {PLANTED['configmap-line']}",
            "GPU 0: NVIDIA A100 (UUID: GPU-12345678-aaaa-bbbb-cccc-1234567890ab)",
        ]
    )
    toml = (
        'version = 3\n[plugins."io.containerd.cri.v1.images".registry.configs."r".auth]\n'
        f'  username = "u"\n  password = "{PLANTED["registry"]}"\n  auth = "{PLANTED["registry-auth"]}"\n'
        "[plugins.'io.containerd.cri.v1.runtime']\n  enable_cdi = true\n  cdi_spec_dirs = ['/etc/cdi']\n"
    )
    crictl = json.dumps({"config": {"enableCDI": True, "registry": {"auth": PLANTED["registry-auth"]}}})
    return Snapshot(
        objects=(pod, settings, secret, claim),
        events=(event,),
        nodes={"n1": NodeCapture("n1", {"containerd.toml": toml, "crictl-info.json": crictl, "journal.txt": log})},
        logs={LogKey("ml", "p", "main"): log, LogKey("ml", "p", "main", True): log},
        notes=(f"ssh printed password: {PLANTED['env']}",),
        unread=(f"secrets: {PLANTED['argument']}",),
    )


@pytest.mark.parametrize("place", PLANTED)
def test_a_planted_secret_is_nowhere_in_the_bundle(place: str) -> None:
    redactor = Redactor()
    files = packed(plant(), redactor)
    assert redactor.count >= len(PLANTED) - 5
    for name, data in files.items():
        assert PLANTED[place] not in data.decode(), f"{place} is in {name}"


def test_what_a_diagnosis_reads_stays() -> None:
    files = packed(plant(), Redactor())
    loaded = load_files(files)
    (pod,) = loaded.all("Pod")
    variables = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
    assert variables == {
        "DB_PASSWORD": MARK,
        "SOMETHING": MARK,
        "NVIDIA_VISIBLE_DEVICES": "all",
        "LEVEL": MARK,
        "FROM": None,
    }
    assert pod["spec"]["containers"][0]["env"][4]["valueFrom"]["secretKeyRef"] == {"name": "keys", "key": "password"}
    assert pod["spec"]["containers"][0]["args"][1] == "--node=n1"
    assert pod["spec"]["containers"][0]["command"] == ["run", "--token", MARK, "--batch", "8"]
    assert pod["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
    assert "managedFields" not in pod["metadata"]
    assert loaded.all("Secret") == []
    log = loaded.logs[LogKey("ml", "p", "main")]
    assert "UUID: GPU-12345678-aaaa-bbbb-cccc-1234567890ab" in log
    assert loaded.nodes["n1"].containerd is not None
    assert loaded.nodes["n1"].crictl_info is not None
    section = loaded.nodes["n1"].containerd["plugins"]["io.containerd.cri.v1.runtime"]
    assert section == {"enable_cdi": True, "cdi_spec_dirs": ["/etc/cdi"]}


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_a_packed_incident_keeps_its_verdict(name: str) -> None:
    snapshot = load(CASES / name)
    again = load_files(packed(snapshot, Redactor()))
    before, after = examine(snapshot), examine(again)
    if snapshot.manifests and after.cause != before.cause:
        assert before.subject.partition("/")[0] not in ("Node",), "only what is not applied yet is left out"
        return
    assert (after.cause, after.subject, after.sentence) == (before.cause, before.subject, before.sentence)
    assert [item.text for item in after.evidence] == [item.text for item in before.evidence]


def test_an_object_is_not_changed_by_its_redaction() -> None:
    snapshot = plant()
    before = json.dumps(snapshot.objects)
    packed(snapshot, Redactor())
    assert json.dumps(snapshot.objects) == before
