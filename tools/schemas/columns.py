"""Write the column definitions of `kubectl get` tables from Kubernetes' printers (names, types, priorities,
descriptions).

python columns.py DIR ../../src/drakkar/cluster/machinery/data     # DIR of the k8s.io/kubernetes module
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

PRINTERS = "pkg/printers/internalversion/printers.go"
SERVED = {
    "Pod", "PodTemplate", "PodDisruptionBudget", "ReplicationController", "ReplicaSet", "DaemonSet", "Job",
    "CronJob", "Service", "Ingress", "IngressClass", "StatefulSet", "Endpoints", "Node", "Event", "Namespace",
    "Secret", "ServiceAccount", "PersistentVolume", "PersistentVolumeClaim", "Deployment",
    "HorizontalPodAutoscaler", "ConfigMap", "NetworkPolicy", "RoleBinding", "ClusterRoleBinding", "Lease",
    "StorageClass", "ControllerRevision", "ResourceQuota", "PriorityClass", "RuntimeClass", "EndpointSlice",
    "CSINode", "CSIDriver", "MutatingWebhook", "ValidatingWebhook", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice",
    "DeviceTaint", "CertificateSigningRequest", "Scale",
}  # fmt: skip
RENAMED = {
    "DeviceTaint": "DeviceTaintRule",
    "MutatingWebhook": "MutatingWebhookConfiguration",
    "ValidatingWebhook": "ValidatingWebhookConfiguration",
}
COLUMN = re.compile(r"\{Name: \"([^\"]+)\", Type: \"(\w+)\"(.*?)\},?\n")
BLOCK = re.compile(r"(\w+) :?= \[\]metav1\.TableColumnDefinition\{\n(.*?)\n\t\}\n", re.S)
HANDLER = re.compile(r"h\.TableHandler\((\w+), print(\w+)\)")


def documentation(api: Path, apimachinery: Path) -> dict[str, dict[str, str]]:
    """Field descriptions by `alias.Type`, from the generated swagger docs."""
    found: dict[str, dict[str, str]] = {}
    sources = [(path, path.parent.parent.name) for path in api.glob("*/v*/types_swagger_doc_generated.go")]
    sources.append((apimachinery / "pkg/apis/meta/v1/types_swagger_doc_generated.go", "meta"))
    for path, group in sources:
        alias = ("api" if group == "core" else group) + path.parent.name
        text = path.read_text()
        for name, body in re.findall(r"var map_(\w+) = map\[string\]string\{\n(.*?)\n\}", text, re.S):
            pairs = re.findall(r'^\t"(\w*)":\s+("(?:[^"\\]|\\.)*"),$', body, re.M)
            found[f"{alias}.{name}"] = {key: json.loads(value) for key, value in pairs}
    return found


def column(match: tuple[str, str, str], docs: dict[str, dict[str, str]]) -> list[object]:
    name, kind, rest = match
    form = re.findall(r'Format: "(\w+)"', rest)
    priority = re.findall(r"Priority: (\d+)", rest)
    text = re.findall(r'Description: "((?:[^"\\]|\\.)*)"', rest)
    reference = re.findall(r'Description: (\w+\.\w+)\{\}\.SwaggerDoc\(\)\["(\w+)"\]', rest)
    described = text[0] if text else docs.get(reference[0][0], {}).get(reference[0][1], "") if reference else ""
    return [name, kind, form[0] if form else "", described, int(priority[0]) if priority else 0]


def main() -> None:
    module, target = Path(sys.argv[1]), Path(sys.argv[2])
    version = module.name.partition("@v1")[2]
    docs = documentation(module.parent / f"api@v0{version}", module.parent / f"apimachinery@v0{version}")
    text = (module / PRINTERS).read_text()
    blocks = {name: COLUMN.findall(body + "\n") for name, body in BLOCK.findall(text)}
    result = {}
    for block, kind in HANDLER.findall(text):
        if kind in SERVED and block in blocks:
            result[RENAMED.get(kind, kind)] = [column(match, docs) for match in blocks[block]]
    lines = ",\n".join(f"{json.dumps(kind)}: {json.dumps(columns)}" for kind, columns in sorted(result.items()))
    (target / "columns.json").write_text("{\n" + lines + "\n}\n")
    print(len(result), "kinds; missing:", SERVED - {kind for _, kind in HANDLER.findall(text)})


if __name__ == "__main__":
    main()
