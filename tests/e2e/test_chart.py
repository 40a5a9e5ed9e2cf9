"""The chart in a real API server: it installs, its rights are enough and no more, its policies refuse what is wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.https import HttpsTransport
from drakkar.kube.kubeconfig import load
from drakkar.kube.resources import RESOURCE_CLAIMS
from drakkar.testing.kubectl import Kubectl, KubectlFailed
from tests.conftest import kubectl as fetched_kubectl
from tests.e2e.conftest import NAMESPACE, World, helm
from tests.e2e.scenarios import DriverSetup
from tests.e2e.test_lifecycle import SMALL_MIG, pod
from tools.realkube.cluster import RealCluster


def slice_of(name: str, node: str, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    """A ResourceSlice without devices."""
    pool = {"name": f"test-{name}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": []}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def configured(kind: str, parameters: Any, name: str = "c") -> dict[str, Any]:
    """A claim, template or class with one opaque configuration for gpu.nvidia.com."""
    config = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    devices: dict[str, Any] = {"devices": {"requests": requests, "config": config}}
    spec = {"ResourceClaim": devices, "ResourceClaimTemplate": {"spec": devices}, "DeviceClass": {"config": config}}[
        kind
    ]
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def gpu_config(**fields: Any) -> dict[str, Any]:
    """A GpuConfig with these fields."""
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **fields}


def mps(**fields: Any) -> dict[str, Any]:
    """A GpuConfig for MPS."""
    return gpu_config(sharing={"strategy": "MPS", "mpsConfig": fields})


ACCEPTED: dict[str, Any] = {
    "no sharing": gpu_config(),
    "time-slicing": gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
    "time-slicing by default": gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
    "mps": mps(defaultActiveThreadPercentage=50, defaultPinnedDeviceMemoryLimit="10Gi", multiUser=True),
    "mps per device": mps(defaultPerDevicePinnedMemoryLimit={"0": "1Gi", "GPU-1": 2097152}),
    "mig": gpu_config(kind="MigDeviceConfig", sharing={"strategy": "MPS"}),
    "vfio": gpu_config(kind="VfioDeviceConfig", iommu={"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}),
}

#: Configurations that must be refused, and a word of the reason.
REFUSED: dict[str, tuple[Any, str]] = {
    "other version": (gpu_config(apiVersion="resource.nvidia.com/v1"), "v1beta1"),
    "no kind": ({"apiVersion": "resource.nvidia.com/v1beta1"}, "GpuConfig"),
    "other kind": (gpu_config(kind="GPUConfig"), "GpuConfig"),
    "misspelt field": (gpu_config(shraing={"strategy": "MPS"}), "unknown field in the configuration: shraing"),
    "field of another kind": (gpu_config(iommu={}), "unknown field in the configuration: iommu"),
    "sharing is a word": (gpu_config(sharing="MPS"), "sharing is an object"),
    "misspelt in sharing": (gpu_config(sharing={"strategy": "MPS", "mpsConf": {}}), "sharing is an object"),
    "no strategy": (gpu_config(sharing={}), "sharing.strategy"),
    "other strategy": (gpu_config(sharing={"strategy": "Exclusive"}), "sharing.strategy"),
    "interval": (
        gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Tiny"}}),
        "interval",
    ),
    "both strategies": (gpu_config(sharing={"strategy": "TimeSlicing", "mpsConfig": {}}), "other strategy"),
    "slices under mps": (gpu_config(sharing={"strategy": "MPS", "timeSlicingConfig": {}}), "other strategy"),
    "percentage": (mps(defaultActiveThreadPercentage=101), "0 to 100"),
    "percentage as text": (mps(defaultActiveThreadPercentage="50"), "0 to 100"),
    "half a percentage": (mps(defaultActiveThreadPercentage=0.5), "0 to 100"),
    "limit": (mps(defaultPinnedDeviceMemoryLimit="10GiB"), "quantity"),
    "small limit": (mps(defaultPinnedDeviceMemoryLimit="1Ki"), "quantity"),
    "limit of a device": (mps(defaultPerDevicePinnedMemoryLimit={"gpu-0": "1Gi"}), "index or a UUID"),
    "misspelt limit": (mps(defaultPinnedMemoryLimit="1Gi"), "mpsConfig has the fields"),
    "users": (mps(multiUser="yes"), "multiUser"),
    "iommu": (gpu_config(kind="VfioDeviceConfig", iommu={"backendPolicy": "Any"}), "backendPolicy"),
}


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"])
def test_good_configurations_are_accepted(world: World, kind: str) -> None:
    said = _attempts(world, kind, ACCEPTED)
    assert said == dict.fromkeys(ACCEPTED, "")


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "DeviceClass"])
def test_bad_configurations_are_refused_with_the_reason(world: World, kind: str) -> None:
    said = _attempts(world, kind, {what: parameters for what, (parameters, _) in REFUSED.items()})
    wrong = {what: said[what] for what, (_, reason) in REFUSED.items() if reason not in said[what]}
    assert wrong == {}


def _attempts(world: World, kind: str, cases: dict[str, Any]) -> dict[str, str]:
    """What the API server says to each case, in one call of kubectl; empty if it takes it."""
    items = [configured(kind, parameters, f"case-{number}") for number, parameters in enumerate(cases.values())]
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    done = world.kubectl("create", "--dry-run=server", "-n", world.namespace, "-f", "-", stdin=document, check=False)
    lines = done.stderr.splitlines()
    return {what: next((line for line in lines if f'"case-{number}"' in line), "") for number, what in enumerate(cases)}


def test_other_drivers_configurations_are_not_looked_at(world: World) -> None:
    manifest = configured("ResourceClaim", {"anything": True})
    manifest["spec"]["devices"]["config"][0]["opaque"]["driver"] = "lamps.example.com"
    world.apply(manifest)


def test_an_older_api_version_is_no_way_around(world: World) -> None:
    """v1beta2 is off by default; where it is on, the policy's match is by equivalence."""
    policy = world.get("validatingadmissionpolicy", "drakkar-resourceclaims")
    assert policy["spec"]["matchConstraints"].get("matchPolicy", "Equivalent") == "Equivalent"
    assert not policy["status"].get("typeChecking", {}).get("expressionWarnings")


def test_labels_of_what_was_accepted_earlier_stay_writable(world: World) -> None:
    """A template from before the policy: its labels and its removal must not be held up."""
    world.kubectl("delete", "validatingadmissionpolicybinding", "drakkar-resourceclaimtemplates")
    try:
        manifest = configured("ResourceClaimTemplate", gpu_config(kind="Old"))
        stdin = json.dumps(manifest)
        _until_accepted(world, stdin)
    finally:
        helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true", "--force-conflicts")
    world.kubectl("label", "-n", world.namespace, "resourceclaimtemplate/c", "a=b")
    world.kubectl("delete", "-n", world.namespace, "resourceclaimtemplate/c")


def _until_accepted(world: World, stdin: str) -> None:
    for _ in range(100):
        if world.kubectl("create", "-n", world.namespace, "-f", "-", stdin=stdin, check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError("the policy still refuses")


def test_a_driver_writes_slices_of_its_own_node_and_name_only(world: World, driver_kubeconfig: Path) -> None:
    world.drivers.end()  # it removes slices of its name that it does not know
    own = Kubectl(fetched_kubectl(37), world.cluster.environment | {"KUBECONFIG": str(driver_kubeconfig)})
    for manifest, reason in (
        (slice_of("theirs", "other-node"), "may not write a slice of node other-node"),
        (slice_of("lamps", world.cluster.node, "lamps.example.com"), "publishes gpu.nvidia.com only"),
    ):
        with pytest.raises(KubectlFailed, match=reason):
            own("create", "-f", "-", stdin=json.dumps(manifest))
    everywhere = slice_of("everywhere", world.cluster.node)
    everywhere["spec"] = {**everywhere["spec"], "allNodes": True}
    del everywhere["spec"]["nodeName"]
    with pytest.raises(KubectlFailed, match=r"may not write a slice of node \(none\)"):
        own("create", "-f", "-", stdin=json.dumps(everywhere))
    world.kubectl("create", "-f", "-", stdin=json.dumps(slice_of("theirs", "other-node")))  # the administrator may
    with pytest.raises(KubectlFailed, match="may not write a slice of node other-node"):
        own("delete", "resourceslice", "theirs")
    for _ in range(2):  # once, the kubelet may be quicker: it removes a driver's slices 30 s after its end
        own("create", "-f", "-", stdin=json.dumps(slice_of("mine", world.cluster.node)))
        if not own("delete", "resourceslice", "mine", check=False).returncode:
            break
    else:
        raise AssertionError("the driver cannot remove a slice of its node")
    world.kubectl("delete", "resourceslice", "theirs", "--ignore-not-found")


def test_a_token_without_a_node_writes_nothing(world: World) -> None:
    token = world.kubectl("create", "token", "drakkar", "-n", NAMESPACE).stdout.strip()
    words = ["--kubeconfig=/dev/null", f"--server={world.cluster.layout.server}", f"--token={token}"]
    authority = f"--certificate-authority={world.cluster.layout.certificates}/ca.crt"
    done = world.kubectl(*words, authority, "create", "-f", "-", stdin=json.dumps(slice_of("x", "n")), check=False)
    assert "the token names no node" in done.stderr


@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("create", "resourceslices.resource.k8s.io", True),
        ("get", "resourceclaims.resource.k8s.io", True),
        ("list", "resourceclaims.resource.k8s.io", False),
        ("update", "resourceclaims.resource.k8s.io/status", False),
        ("create", "resourceclaims.resource.k8s.io", False),
        ("get", "pods", True),
        ("list", "pods", False),
        ("create", "pods", False),
        ("get", "secrets", False),
        ("patch", "nodes", False),
        ("update", "deviceclasses.resource.k8s.io", False),
    ],
)
def test_the_driver_may_do_what_it_does_and_no_more(world: World, verb: str, resource: str, allowed: bool) -> None:
    user = f"--as=system:serviceaccount:{NAMESPACE}:drakkar"
    done = world.kubectl("auth", "can-i", verb, resource, "-A", user, check=False)
    assert done.stdout.strip() == ("yes" if allowed else "no")


def test_a_kubelet_reads_a_claim_before_the_node_authorizer_knows_its_pod(world: World) -> None:
    """Refused, it would leave the pod for 60 to 90 s and never ask the driver; reading claims is all it gets."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "of-no-pod"}}
    world.apply(claim | {"spec": {"devices": {"requests": [request]}}})
    environment = world.cluster.environment | {"KUBECONFIG": str(world.cluster.layout.kubeconfig("kubelet"))}
    kubelet = Kubectl(fetched_kubectl(37), environment)
    wanted = ("resourceclaims", "-n", world.namespace)
    assert kubelet("get", *wanted, "of-no-pod", "-o", "name").stdout.strip().endswith("/of-no-pod")
    for words in (("get", *wanted), ("delete", *wanted, "of-no-pod"), ("label", *wanted, "of-no-pod", "a=b")):
        with pytest.raises(KubectlFailed, match="orbidden"):
            kubelet(*words)


def test_people_have_roles(world: World) -> None:
    world.kubectl("create", "clusterrolebinding", "p", "--clusterrole=drakkar-platform", "--user=platform")
    world.kubectl("create", "rolebinding", "t", "-n", world.namespace, "--clusterrole=drakkar-team", "--user=team")
    world.kubectl("create", "rolebinding", "e", "-n", world.namespace, "--clusterrole=edit", "--user=editor")
    try:
        for user, verb, resource, wanted in (
            ("platform", "create", "deviceclasses", "yes"),
            ("platform", "create", "pods", "no"),
            ("team", "create", "resourceclaims", "yes"),
            ("team", "create", "deviceclasses", "no"),
            ("editor", "create", "resourceclaimtemplates", "yes"),
        ):
            done = world.kubectl("auth", "can-i", verb, resource, "-n", world.namespace, f"--as={user}", check=False)
            assert done.stdout.strip() == wanted, (user, verb, resource)
    finally:
        world.kubectl("delete", "clusterrolebinding", "p")


def test_a_driver_with_claim_status_writes_it_for_its_own_node_only(world: World, driver_kubeconfig: Path) -> None:
    """The subresource that 1.36 asks for beside `resourceclaims/status` (KEP-4817)."""
    world.drivers("plain")
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    world.apply(claim | {"spec": {"devices": {"requests": [request]}}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    world.apply(pod | {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}})
    world.ready("p")
    result = world.get("resourceclaim", "c")["status"]["allocation"]["devices"]["results"][0]
    device = {key: result[key] for key in ("driver", "pool", "device")} | {"data": {"uuid": "GPU-0"}}

    def write(status: dict[str, Any]) -> None:
        async def patch() -> None:
            client = Client(HttpsTransport(load(driver_kubeconfig)))
            try:
                await client.patch(
                    RESOURCE_CLAIMS, "c", {"status": status}, namespace=world.namespace, subresource="status"
                )
            finally:
                await client.close()

        asyncio.run(patch())

    with pytest.raises(ApiError, match="forbidden"):
        write({"devices": [device]})
    helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true", "--set", "driver.claimStatus=true")
    try:
        _until_allowed(lambda: write({"devices": [device]}))
        assert world.get("resourceclaim", "c")["status"]["devices"][0]["data"] == {"uuid": "GPU-0"}
        with pytest.raises(ApiError, match="binding"):
            write({"reservedFor": None})
    finally:
        helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true")


def test_the_driver_writes_into_claims_which_hardware_they_have(world: World) -> None:
    """`driver.claimStatus`: by the real API server's rules, with the rights of the chart and no others."""
    helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true", "--set", "driver.claimStatus=true")
    try:
        driver = world.drivers(DriverSetup(options=("--claim-status", "--dynamic-mig")))
        world.apply(SMALL_MIG, pod("pod", "one-mig"))
        world.ready("pod")
        columns = "jsonpath={.items[*].status.devices[*].data.uuid}"
        told = world.until("resourceclaims", "-o", columns, matches="^MIG-", seconds=40)
        assert {told.strip()} == world.seen("pod").migs
        (claim,) = world.get("resourceclaims")["items"]
        (entry,) = claim["status"]["devices"]
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert [entry[key] for key in ("driver", "pool", "device")] == [
            result[key] for key in ("driver", "pool", "device")
        ]
        assert entry["conditions"][0]["type"] == "Ready"
        assert entry["data"]["parentUUID"] in {gpu.uuid for gpu in driver.machine.devices()}
    finally:
        helm(world.cluster, "upgrade", "--set", "tenancy.enabled=true")


def _until_allowed(attempt: Callable[[], None]) -> None:
    """Rights reach the authorizer a moment after they are given."""
    for _ in range(50):
        try:
            return attempt()
        except ApiError:
            time.sleep(0.1)
    return attempt()


@pytest.mark.parametrize("major", [3, 4])
def test_each_helm_installs_upgrades_and_uninstalls(cluster: RealCluster, kubectl: Kubectl, major: int) -> None:
    """A second release beside the first, with other names for what is cluster-wide."""
    release = f"second{major}"
    classes = [f"--set=deviceClasses.{kind}=false" for kind in ("gpu", "mig", "vfio")]
    options = [*classes, "--set=tenancy.enabled=true", "--set=networkPolicy.enabled=true"]
    helm(cluster, "install", *options, major=major, release=release)
    try:
        helm(cluster, "upgrade", *options, "--set=driver.shares=memory", major=major, release=release)
        listed = kubectl("get", "daemonset,networkpolicy,service", "-n", NAMESPACE, "-o", "name").stdout
        assert f"daemonset.apps/{release}-drakkar" in listed
        assert f"networkpolicy.networking.k8s.io/{release}-drakkar" in listed
    finally:
        helm(cluster, "uninstall", major=major, release=release)
    left = kubectl("get", "clusterrole,validatingadmissionpolicy", "-o", "name").stdout
    assert release not in left


class TestTenancy:
    """What a namespace may use, by its label."""

    VALUES = (
        "--set-json",
        'tenancy={"enabled":true,"tenancies":{'
        '"default":{"classes":["*"],"configurations":["*"],"adminAccess":false},'
        '"mig-only":{"classes":["mig.nvidia.com"],"configurations":["GpuConfig/TimeSlicing","MigDeviceConfig"],'
        '"adminAccess":false},"ops":{"classes":["*"],"configurations":[],"adminAccess":true}}}',
    )

    @pytest.fixture(autouse=True, scope="class")
    def tenancies(self, cluster: RealCluster) -> Any:
        helm(cluster, "upgrade", *self.VALUES)
        yield
        helm(cluster, "upgrade", "--set", "tenancy.enabled=true")

    def attempt(self, world: World, tenancy: str, manifest: dict[str, Any]) -> str:
        """What the API server says to a manifest in a namespace with that tenancy; empty if it takes it."""
        label = f"drakkar.dev/tenancy={tenancy}" if tenancy else "drakkar.dev/tenancy-"
        world.kubectl("label", "namespace", world.namespace, label, "--overwrite")
        words = ("create", "--dry-run=server", "-n", world.namespace, "-f", "-")
        said = ""
        listed = {"": "default", "mig-only": "mig-only", "ops": "ops"}.get(tenancy, "unknown")
        for _ in range(30):  # labels and bindings reach the admission's caches a moment later
            done: subprocess.CompletedProcess[str] = world.kubectl(*words, stdin=json.dumps(manifest), check=False)
            if f"(tenancy {listed})" in done.stderr:
                return done.stderr
            said = done.stderr
            time.sleep(0.05)
        return said

    @staticmethod
    def claim(
        class_name: str, *, admin: bool = False, parameters: Any = None, template: bool = False
    ) -> dict[str, Any]:
        """A claim or template for one device of a class."""
        exactly: dict[str, Any] = {"deviceClassName": class_name}
        if admin:
            exactly["adminAccess"] = True
        devices: dict[str, Any] = {"requests": [{"name": "r", "exactly": exactly}]}
        if parameters is not None:
            devices["config"] = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}]
        spec: dict[str, Any] = {"devices": devices}
        kind = "ResourceClaimTemplate" if template else "ResourceClaim"
        body = {"spec": spec} if template else spec
        return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "c"}, "spec": body}

    @pytest.mark.parametrize("template", [False, True])
    def test_classes(self, world: World, template: bool) -> None:
        assert "device class gpu.nvidia.com" in self.attempt(
            world, "mig-only", self.claim("gpu.nvidia.com", template=template)
        )
        assert self.attempt(world, "mig-only", self.claim("mig.nvidia.com", template=template)) == ""
        assert self.attempt(world, "", self.claim("gpu.nvidia.com", template=template)) == ""
        assert "device class mig.nvidia.com" in self.attempt(
            world, "nobody-listed-this", self.claim("mig.nvidia.com", template=template)
        )

    def test_alternatives_count(self, world: World) -> None:
        manifest = self.claim("mig.nvidia.com")
        manifest["spec"]["devices"]["requests"] = [
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "a", "deviceClassName": "mig.nvidia.com"},
                    {"name": "b", "deviceClassName": "gpu.nvidia.com"},
                ],
            }
        ]
        assert "device class gpu.nvidia.com" in self.attempt(world, "mig-only", manifest)

    def test_configurations(self, world: World) -> None:
        sliced = gpu_config(sharing={"strategy": "TimeSlicing"})
        assert self.attempt(world, "mig-only", self.claim("mig.nvidia.com", parameters=sliced)) == ""
        assert "configuration GpuConfig/MPS" in self.attempt(
            world, "mig-only", self.claim("mig.nvidia.com", parameters=mps())
        )
        of_mig = gpu_config(kind="MigDeviceConfig", sharing={"strategy": "MPS"})
        assert self.attempt(world, "mig-only", self.claim("mig.nvidia.com", parameters=of_mig)) == ""
        assert "may not use the configuration" in self.attempt(
            world, "ops", self.claim("gpu.nvidia.com", parameters=sliced)
        )

    def test_admin_access(self, world: World) -> None:
        world.kubectl("label", "namespace", world.namespace, "resource.kubernetes.io/admin-access=true")
        assert "may not ask for admin access" in self.attempt(world, "", self.claim("gpu.nvidia.com", admin=True))
        assert self.attempt(world, "ops", self.claim("gpu.nvidia.com", admin=True)) == ""

    def test_a_tenant_cannot_write_its_own_list(self, world: World) -> None:
        """The lists are in the release's namespace; what a tenant calls the same in its own changes nothing."""
        own = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "drakkar-tenancy-mig-only"},
            "data": {"name": "x", "classes": "*", "configurations": "*", "adminAccess": "true"},
        }
        world.apply(own)
        assert "device class gpu.nvidia.com" in self.attempt(world, "mig-only", self.claim("gpu.nvidia.com"))

    def test_a_pod_of_the_old_kind_is_held_to_it_too(self, world: World) -> None:
        """The claim that the scheduler makes for an extended resource is a claim of the namespace."""
        world.drivers("plain")
        world.kubectl("label", "namespace", world.namespace, "drakkar.dev/tenancy=mig-only")
        self.attempt(world, "mig-only", self.claim("gpu.nvidia.com"))  # until the label counts
        container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        world.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old"}, "spec": {"containers": [container]}}
        )
        world.until("events", "-o", "jsonpath={.items[*].message}", matches="may not use the device class", seconds=20)
