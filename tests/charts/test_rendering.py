"""The chart as Helm 3 and 4 render it; the real API server sees it in `tests/e2e/test_chart.py`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from drakkar.drivers.gpu.classes import device_classes
from tests.conftest import missing
from tools import kubectl as programs

CHART = Path(__file__).resolve().parents[2] / "charts" / "drakkar"
EVERYTHING = (
    *("--set", "tenancy.enabled=true", "--set", "networkPolicy.enabled=true", "--set", "driver.claimStatus=true"),
    *("--set", "metrics.serviceMonitor.enabled=true", "--set", "driver.dynamicMig=true"),
    *("--set", "driver.adopt=true", "--set", "driver.deviceMetadata=true", "--set", "driver.passthrough=true"),
    *("--set", "driver.listAttributes=true"),
)


@pytest.fixture(params=[3, 4], ids=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> str:
    """A Helm of each major version."""
    try:
        return str(programs.fetch_helm(request.param))
    except (SystemExit, OSError) as error:
        missing("kubectl", f"needs helm {request.param}: {error}")
        raise


def run(helm: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *words], capture_output=True, text=True, timeout=60, check=False)


def rendered(helm: str, *options: str) -> list[dict[str, Any]]:
    """The objects of the chart, installed as release `gpu` in `drakkar-system`."""
    done = run(helm, "template", "gpu", str(CHART), "--namespace", "drakkar-system", *options)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def test_lint_finds_nothing(helm: str) -> None:
    done = run(helm, "lint", "--strict", str(CHART), *EVERYTHING)
    assert done.returncode == 0, done.stdout


def test_both_versions_of_helm_render_the_same() -> None:
    objects = [rendered(str(programs.fetch_helm(major)), *EVERYTHING) for major in (3, 4)]
    assert objects[0] == objects[1]


def test_the_classes_are_those_of_the_driver(helm: str) -> None:
    classes = of_kind(rendered(helm), "DeviceClass")
    assert {name: one["spec"] for name, one in classes.items()} == {
        one["metadata"]["name"]: one["spec"] for one in device_classes()
    }


@pytest.mark.parametrize(
    ("value", "argument"),
    [
        ("dynamicMig=true", "--dynamic-mig"),
        ("listAttributes=true", "--list-attributes"),
        ("shares=1000", "--shares=1000"),
        ("deviceMetadata=true", "--device-metadata"),
    ],
)
def test_what_is_asked_of_the_driver_is_an_argument_of_it(helm: str, value: str, argument: str) -> None:
    def arguments(*options: str) -> list[str]:
        daemon = of_kind(rendered(helm, *options), "DaemonSet")["gpu-drakkar"]
        found: list[str] = daemon["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    assert argument not in arguments() and argument in arguments("--set", f"driver.{value}")


def test_passing_through_sees_the_nodes_processes_and_nothing_else_does(helm: str) -> None:
    def pod(*words: str) -> dict[str, Any]:
        options = [word for one in words for word in ("--set", one)]
        daemon = of_kind(rendered(helm, *options), "DaemonSet")["gpu-drakkar"]
        found: dict[str, Any] = daemon["spec"]["template"]["spec"]
        return found

    asked, simulated = "driver.passthrough=true", "node.simulatedMachine=dgx-h100"
    assert "hostPID" not in pod() and "--passthrough" not in pod()["containers"][0]["args"]
    assert pod(asked)["hostPID"] is True and "--passthrough" in pod(asked)["containers"][0]["args"]
    assert "hostPID" not in pod(asked, simulated)
    assert "--passthrough" in pod(asked, simulated)["containers"][0]["args"]


def test_the_daemon_set_runs_the_command_that_exists(helm: str) -> None:
    """Every argument is an option of `drakkar driver gpu`, every variable one that it reads."""
    from drakkar.cli.driver import command

    gpu = command.commands["gpu"]
    options = {name for one in gpu.params for name in one.opts}
    variables = {str(one.envvar) for one in gpu.params if one.envvar} | {"POD_UID", "DRAKKAR_HOOK_DIR"}
    for extra in ((), ("--set", "node.simulatedMachine=dgx-h100")):
        daemon = of_kind(rendered(helm, *EVERYTHING, "--set", "driver.shares=memory", *extra), "DaemonSet")[
            "gpu-drakkar"
        ]
        container = daemon["spec"]["template"]["spec"]["containers"][0]
        assert container["args"][:2] == ["driver", "gpu"]
        assert {word.partition("=")[0] for word in container["args"][2:]} <= options
        assert {one["name"] for one in container["env"]} <= variables


def test_mounts_and_volumes_fit_together(helm: str) -> None:
    for extra in ((), ("--set", "node.simulatedMachine=dgx-h100")):
        spec = of_kind(rendered(helm, *extra), "DaemonSet")["gpu-drakkar"]["spec"]["template"]["spec"]
        volumes = {one["name"]: one for one in spec["volumes"]}
        mounts = {one["name"]: one for one in spec["containers"][0]["volumeMounts"]}
        assert set(volumes) == set(mounts)
        # Paths in CDI files and in the kubelet's registration must mean the same inside and outside.
        for name in ("plugins", "registry", "cdi", "machine"):
            if name in volumes:
                assert volumes[name]["hostPath"]["path"] == mounts[name]["mountPath"]


def test_a_digest_wins_over_the_tag(helm: str) -> None:
    digest = "sha256:" + "0" * 64
    objects = rendered(helm, "--set", f"image.repository=example.com/drakkar,image.digest={digest},image.tag=x")
    spec = of_kind(objects, "DaemonSet")["gpu-drakkar"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == f"example.com/drakkar@{digest}"


def test_the_driver_may_do_no_more_than_the_embedded_cluster_lets_it(helm: str) -> None:
    """Both are lists of what the driver does; whoever adds a right adds a reason."""
    roles = of_kind(rendered(helm), "ClusterRole")
    rules = {
        (rule["apiGroups"][0], rule["resources"][0]): set(rule["verbs"])
        for rule in roles["gpu-drakkar-driver"]["rules"]
    }
    assert rules == {
        ("resource.k8s.io", "resourceslices"): {"get", "list", "watch", "create", "update", "patch", "delete"},
        ("resource.k8s.io", "resourceclaims"): {"get"},
        ("", "pods"): {"get"},
        ("", "nodes"): {"get"},
        ("", "events"): {"create", "patch"},
    }
    status = of_kind(rendered(helm, "--set", "driver.claimStatus=true"), "ClusterRole")["gpu-drakkar-driver"]["rules"]
    driver = next(rule for rule in status if rule["resources"] == ["resourceclaims/driver"])
    assert set(driver["verbs"]) == {"associated-node:update", "associated-node:patch"}
    assert driver["resourceNames"] == ["gpu.nvidia.com"]
    adopting = of_kind(rendered(helm, "--set", "driver.adopt=true"), "ClusterRole")["gpu-drakkar-driver"]["rules"]
    claims = next(rule for rule in adopting if rule["resources"] == ["resourceclaims"])
    assert claims["verbs"] == ["get", "list"]


def test_kubelets_may_read_claims_before_the_node_authorizer_knows_the_pod(helm: str) -> None:
    """Else the kubelet is refused now and then, and comes back after 60 to 90 s; reading is all they get."""
    objects = rendered(helm)
    assert of_kind(objects, "ClusterRole")["gpu-drakkar-kubelets"]["rules"] == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]}
    ]
    binding = of_kind(objects, "ClusterRoleBinding")["gpu-drakkar-kubelets"]
    assert binding["roleRef"]["name"] == "gpu-drakkar-kubelets"
    assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("Group", "system:nodes")]
    without = rendered(helm, "--set", "rbac.kubeletsReadClaims=false")
    assert not [one for one in without if one["metadata"]["name"].endswith("-kubelets")]


def test_nothing_is_allowed_to_everybody(helm: str) -> None:
    for role in of_kind(rendered(helm, *EVERYTHING), "ClusterRole").values():
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("dirver.shares=memory", "dirver"),
        ("driver.shares=half", "shares"),
        ("node.cdiDir=relative", "cdiDir"),
        ("metrics.port=0", "port"),
        ("policies.action=Audit", "action"),
        ("image.digest=sha256:12", "digest"),
        ("tenancy.tenancies.unknown.adminAccess=false", "unknown"),
        ("tenancy.tenancies.default=null", "default"),
        ("terminationGracePeriodSeconds=1", "terminationGracePeriodSeconds"),
        ("tenancy.tenancies.a.classes={UPPER}", "classes"),
    ],
)
def test_the_schema_refuses(helm: str, setting: str, complaint: str) -> None:
    done = run(helm, "template", "gpu", str(CHART), "--set", setting)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_the_schema_knows_every_default_and_each_default_is_explained() -> None:
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator(schema).validate(values)
    assert set(schema["properties"]) - {"global"} == set(values)
    for name in values:
        assert re.search(rf"^{name}:", text, re.MULTILINE)


def test_every_namespace_has_exactly_one_tenancy(helm: str) -> None:
    """Labels that no list names, that none has, and the word default itself: no namespace slips through."""
    values = ("--set", "tenancy.enabled=true", "--set", "tenancy.tenancies.research.adminAccess=false")
    lists = ("--set", "tenancy.tenancies.research.classes={mig.nvidia.com}", "--set-json")
    objects = rendered(helm, *values, *lists, "tenancy.tenancies.research.configurations=[]")
    bindings = of_kind(objects, "ValidatingAdmissionPolicyBinding")
    for policy in ("gpu-drakkar-tenancy-resourceclaims", "gpu-drakkar-tenancy-resourceclaimtemplates"):
        selectors = {
            one["spec"]["paramRef"]["name"]: one["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
            for one in bindings.values()
            if one["spec"]["policyName"] == policy
        }
        for label, wanted in (
            (None, "default"),
            ("default", "default"),
            ("research", "research"),
            ("other", "unknown"),
        ):
            found = [
                one["spec"]["paramRef"]["name"].removeprefix("gpu-drakkar-tenancy-")
                for one in bindings.values()
                if one["spec"]["policyName"] == policy
                and _selects(one["spec"]["matchResources"]["namespaceSelector"], label)
            ]
            assert found == [wanted], (label, selectors)


def _selects(selector: dict[str, Any], tenancy: str | None) -> bool:
    from drakkar.kube.selectors import LabelSelector

    return LabelSelector.from_object(selector).matches({} if tenancy is None else {"drakkar.dev/tenancy": tenancy})


def test_long_names_stay_within_the_limit(helm: str) -> None:
    objects = rendered(helm, "--set", "tenancy.enabled=true", "--set", f"fullnameOverride={'a' * 53}")
    assert max(len(one["metadata"]["name"]) for one in objects) <= 253
    daemon = next(one for one in objects if one["kind"] == "DaemonSet")
    assert len(daemon["metadata"]["name"]) <= 63
