"""Claims over the real socket: checks, batches, sharing, refusals, unpreparing, the checkpoint."""

from __future__ import annotations

import asyncio
import json

import pytest

from drakkar.cluster.kubelet.checkpoint import Checkpoint, ClaimInfo, PreparedDevice, decode, encode
from drakkar.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from drakkar.preparation.values import DeviceHealth
from tests.cluster.kubelet.world import DRIVER, NODE, World, run, until

SHOW = "env | grep ^CDI_ | sort"


def test_a_pod_sees_what_its_claim_gave_and_the_claim_is_given_back() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", SHOW)
        await world.phase_is("one", "Succeeded")
        assert await world.log("one") == "CDI_GPU=yes\nCDI_OTHER=yes\n"
        assert world.driver.calls == [("prepare", "claim"), ("unprepare", "claim")]

    run(test)


def test_a_container_gets_only_the_request_it_names() -> None:
    async def test(world: World) -> None:
        def container(name: str, request: str) -> dict[str, object]:
            claims = [{"name": "gpu", "request": request}] if request else []
            return {"name": name, "image": "x", "command": ["sh", "-c", SHOW], "resources": {"claims": claims}}

        containers = [container("a", "gpu"), container("b", "other"), container("c", "")]
        world.pod_with_claim("one", "claim", "", containers=containers)
        await world.phase_is("one", "Succeeded")
        assert await world.log("one", "a") == "CDI_GPU=yes\n"
        assert await world.log("one", "b") == "CDI_OTHER=yes\n"
        assert await world.log("one", "c") == ""

    run(test)


def test_a_shared_claim_is_prepared_once_and_unprepared_after_its_last_pod() -> None:
    async def test(world: World) -> None:
        first = {"metadata": {"name": "one", "uid": "uid-1"}}
        second = {"metadata": {"name": "two", "uid": "uid-2"}}
        world.claim("claim", first, second)
        for pod in (first, second):
            spec = {
                "nodeName": NODE,
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "c0",
                        "image": "x",
                        "command": ["sleep", "60"],
                        "resources": {"claims": [{"name": "gpu"}]},
                    }
                ],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}],
            }
            world.api.put(PODS, {**pod, "spec": spec, "status": {"phase": "Pending"}})
        await world.phase_is("one", "Running")
        await world.phase_is("two", "Running")
        await world.client.delete(PODS, "one", "default")
        await world.gone("one")
        assert world.driver.calls == [("prepare", "claim")]
        await world.client.delete(PODS, "two", "default")
        await world.gone("two")
        assert world.driver.calls == [("prepare", "claim"), ("unprepare", "claim")]
        assert Checkpoint(world.folder / "k").load() == []

    run(test)


def test_a_claim_that_is_not_reserved_for_the_pod_is_refused_before_anything_happens() -> None:
    async def test(world: World) -> None:
        claim = world.claim("claim")
        pod = world.pod_with_claim("one", "claim", "true")
        message = (
            "Failed to prepare dynamic resources: prepare dynamic resources: "
            f"pod one ({pod['metadata']['uid']}) is not allowed to use ResourceClaim claim ({claim['metadata']['uid']})"
        )
        await until(lambda: world.status("one").get("containerStatuses") is not None)
        assert ("Warning", "FailedPrepareDynamicResources", message) in await world.events()
        assert world.container("one")["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert world.phase("one") == "Pending"
        assert world.driver.calls == []
        await world.client.delete(PODS, "one", "default")
        await world.gone("one")
        assert world.driver.calls == []

    run(test)


def test_a_claim_of_another_pod_is_refused() -> None:
    async def test(world: World) -> None:
        other = {"metadata": {"name": "other", "uid": "uid-other"}}
        pod = world.api.put(
            PODS,
            {
                "metadata": {"name": "one", "uid": "uid-one"},
                "spec": {
                    "nodeName": NODE,
                    "containers": [{"name": "c0", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "template"}],
                },
                "status": {"phase": "Pending"},
            },
        )
        await until(lambda: world.status("one").get("containerStatuses") is not None)
        world.claim("made", pod, owner=other)
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}
        await world.client.patch(
            PODS, "one", {"status": status}, kind="merge", namespace="default", subresource="status"
        )
        await until(lambda: len(world.messages("FailedPrepareDynamicResources")) > 1)
        texts = world.messages("FailedPrepareDynamicResources")
        prefix = "Failed to prepare dynamic resources: prepare dynamic resources: "
        assert texts[0] == prefix + 'pod "default/one": ResourceClaim not created yet'
        assert texts[1] == prefix + "ResourceClaim default/made was not created for Pod default/one (Pod is not owner)"

    run(test)


def test_what_a_driver_refuses_is_shown_and_tried_again_when_a_driver_comes() -> None:
    async def test(world: World) -> None:
        world.driver.prepare_errors["claim"] = "device is in use"
        world.pod_with_claim("one", "claim", "true")
        await until(lambda: ("prepare", "claim") in world.driver.calls)
        text = (
            "Failed to prepare dynamic resources: prepare dynamic resources: "
            "NodePrepareResources failed for ResourceClaim claim: device is in use"
        )
        await until(lambda: text in world.messages("FailedPrepareDynamicResources"))
        await until(lambda: world.status("one").get("containerStatuses") is not None)
        world.driver.prepare_errors.clear()
        await world.driver.server.stop()
        await until(lambda: world.kubelet.plugins.drivers() == [])
        world.driver = type(world.driver)(world.folder / "k", world.cdi)
        await world.driver.server.start()
        await world.phase_is("one", "Succeeded")

    run(test)


def test_without_its_driver_a_pod_waits_and_can_be_deleted() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "true")
        text = f"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver {DRIVER} is not registered"
        await until(lambda: text in world.messages("FailedPrepareDynamicResources"))
        await until(lambda: world.status("one").get("containerStatuses") is not None)
        assert not (world.folder / "k" / "dra_manager_state").exists()
        await world.client.delete(PODS, "one", "default")
        await world.gone("one")

    run(test, driver=False)


def test_a_driver_that_cannot_unprepare_keeps_the_pod() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "sleep 60")
        await world.phase_is("one", "Running")
        world.driver.unprepare_error = "cannot"
        await world.client.delete(PODS, "one", "default")
        await until(lambda: ("unprepare", "claim") in world.driver.calls)
        await until(lambda: "terminated" in world.container("one")["state"])
        assert world.exists("one")
        assert [claim.name for claim in Checkpoint(world.folder / "k").load()] == ["claim"]
        world.driver.unprepare_error = ""
        world.kubelet._workers[next(iter(world.kubelet._workers))].wake()
        await world.gone("one")

    run(test)


def test_the_checkpoint_has_the_format_of_kubernetes() -> None:
    claim = ClaimInfo(
        "067798be-454e-4be4-9047-1aa06aea63f7",
        "example",
        "default",
        {"139cdb46-f989-4f17-9561-ca10cfb509a6"},
        {
            "test-driver.cdi.k8s.io": [
                PreparedDevice("worker-1", "dev-1", ("test request",), ("example.com/example=cdi-example",))
            ]
        },
    )
    text = encode([claim])
    assert json.loads(text)["Checksum"] == 1656016162
    assert decode(text) == [claim]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"Data":"{}","Checksum":1}', '{"Data":"[]","Checksum":223132457}', '{"Data":3,"Checksum":1}'],
)
def test_a_damaged_checkpoint_is_set_aside(text: str, tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    (folder / "dra_manager_state").write_text(text)
    assert Checkpoint(folder).load() == []
    assert (folder / "dra_manager_state.damaged").read_text() == text


def test_a_new_kubelet_goes_on_where_the_old_one_stopped() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "sleep 60")
        await world.phase_is("one", "Running")
        before = world.container("one")
        await world.kubelet.stop()
        world.kubelet = world.new_kubelet()
        await world.kubelet.start()
        await until(lambda: world.driver.calls.count(("prepare", "claim")) == 2)
        assert world.container("one")["containerID"] == before["containerID"]
        assert world.container("one")["restartCount"] == 0
        await world.client.delete(PODS, "one", "default")
        await world.gone("one")
        assert world.driver.calls[-1] == ("unprepare", "claim")

    run(test)


def test_a_driver_that_comes_back_after_the_kubelet_causes_no_alarm() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "sleep 60")
        await world.phase_is("one", "Running")
        await world.kubelet.stop()
        await world.driver.server.stop()
        world.kubelet = world.new_kubelet()
        await world.kubelet.start()
        world.driver = type(world.driver)(world.folder / "k", world.cdi)
        await world.driver.server.start()
        await until(lambda: ("prepare", "claim") in world.driver.calls)
        assert world.messages("FailedPrepareDynamicResources") == []
        conditions = {entry["type"]: entry["status"] for entry in world.status("one")["conditions"]}
        assert conditions["Ready"] == conditions["PodReadyToStartContainers"] == "True"

    run(test)


def test_the_kubelets_folder_may_be_a_link_that_does_not_outlive_it() -> None:
    async def test(world: World) -> None:
        await world.kubelet.stop()
        real, link = world.folder / "real", world.folder / "l"
        real.mkdir()
        link.symlink_to(real)
        world.kubelet = world.new_kubelet(root=link)
        await world.kubelet.start()
        world.pod("one", "echo hello; sleep 60")
        await world.phase_is("one", "Running")
        record = world.runtime.containers()[0].bundle / "record.json"
        assert json.loads(record.read_text())["log"].startswith(str(real.resolve()))

    run(test, driver=False)


def test_what_was_deleted_while_no_kubelet_ran_is_cleaned_up() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "sleep 60")
        await world.phase_is("one", "Running")
        await world.kubelet.stop()
        await world.driver.server.stop()
        await world.client.delete(PODS, "one", "default", grace_period_seconds=0)
        world.kubelet = world.new_kubelet()
        await world.kubelet.start()
        await until(lambda: not world.runtime.containers())
        assert not list((world.folder / "k" / "pods").iterdir())
        # Its devices are given back as soon as the driver can take them, not at the next round of the reconciler.
        world.driver = type(world.driver)(world.folder / "k", world.cdi)
        await world.driver.server.start()
        await until(lambda: ("unprepare", "claim") in world.driver.calls)
        await until(lambda: not Checkpoint(world.folder / "k").load())

    run(test)


@pytest.mark.parametrize("grace", [None, 0])
def test_a_pod_that_has_to_go_does_not_wait_for_its_devices(grace: int | None) -> None:
    async def test(world: World) -> None:
        asked = asyncio.Event()

        async def prepare(_claims: object) -> dict[str, object]:
            asked.set()
            await asyncio.sleep(3600)
            return {}

        world.driver.prepare = prepare  # type: ignore[method-assign,assignment]
        world.pod_with_claim("one", "claim", "true")
        await asked.wait()
        await world.client.delete(PODS, "one", "default", grace_period_seconds=grace)
        await world.gone("one")
        await until(lambda: ("unprepare", "claim") in world.driver.calls)
        await until(lambda: not world.kubelet._workers)

    run(test)


def test_slices_of_the_node_are_deleted_at_start_and_those_of_others_kept() -> None:
    async def test(world: World) -> None:
        for name, node in (("mine", NODE), ("theirs", "node-2")):
            spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node}}
            world.api.put(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})
        await world.kubelet.stop()
        world.kubelet = world.new_kubelet()
        await world.kubelet.start()
        assert world.slices() == ["theirs"]

    run(test, driver=False)


def test_health_of_devices_appears_in_the_pods_status() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "sleep 60")
        await world.phase_is("one", "Running")

        def health() -> dict[str, tuple[str, str]]:
            found = world.container("one").get("allocatedResourcesStatus") or [{"resources": []}]
            return {
                entry["resourceID"].rpartition("-")[2]: (entry["health"], entry.get("message", ""))
                for entry in found[0]["resources"]
            }

        assert {status for status, _ in health().values()} == {"Unknown"}
        assert world.container("one")["allocatedResourcesStatus"][0]["name"] == "claim:gpu"
        states = [
            DeviceHealth(NODE, "dev-gpu", "UNHEALTHY", message="fell off the bus"),
            DeviceHealth(NODE, "dev-other", "HEALTHY"),
        ]
        world.driver.health_states.put_nowait(states)
        await until(lambda: health().get("other") == ("Healthy", ""), lambda: str(health()))
        assert health()["gpu"] == ("Unhealthy", "fell off the bus")

    run(test)


def test_the_pod_resources_socket_names_pod_claim_and_device() -> None:
    async def test(world: World) -> None:
        import grpc.aio

        from drakkar.cluster.kubelet.generated import podresources_v1_pb2 as messages

        world.pod_with_claim("one", "claim", "sleep 60")
        world.pod("two", "sleep 60")
        await world.phase_is("one", "Running")
        await world.phase_is("two", "Running")
        async with grpc.aio.insecure_channel(f"unix:{world.kubelet.pod_resources.socket}") as channel:
            list_all = channel.unary_unary(
                "/v1.PodResourcesLister/List",
                request_serializer=messages.ListPodResourcesRequest.SerializeToString,
                response_deserializer=messages.ListPodResourcesResponse.FromString,
            )
            pods = {pod.name: pod for pod in (await list_all(messages.ListPodResourcesRequest())).pod_resources}
            get = channel.unary_unary(
                "/v1.PodResourcesLister/Get",
                request_serializer=messages.GetPodResourcesRequest.SerializeToString,
                response_deserializer=messages.GetPodResourcesResponse.FromString,
            )
            one = await get(messages.GetPodResourcesRequest(pod_name="one", pod_namespace="default"))
            with pytest.raises(grpc.aio.AioRpcError, match="pod none in namespace default not found"):
                await get(messages.GetPodResourcesRequest(pod_name="none", pod_namespace="default"))
        assert one.pod_resources == pods["one"]
        assert not pods["two"].containers[0].dynamic_resources
        held = pods["one"].containers[0].dynamic_resources[0]
        assert (held.claim_name, held.claim_namespace) == ("claim", "default")
        found = [(item.driver_name, item.pool_name, item.device_name) for item in held.claim_resources]
        assert found == [(DRIVER, NODE, "dev-gpu"), (DRIVER, NODE, "dev-other")]
        assert held.claim_resources[0].cdi_devices[0].name.startswith("example.com/claim=")

    run(test)


def test_a_claim_with_the_name_of_an_older_one_is_refused() -> None:
    async def test(world: World) -> None:
        world.pod_with_claim("one", "claim", "sleep 60")
        await world.phase_is("one", "Running")
        await world.client.delete(RESOURCE_CLAIMS, "claim", "default")
        world.pod_with_claim("two", "claim", "sleep 60")
        await until(lambda: world.status("two").get("containerStatuses") is not None)
        texts = [message for _, _, message in await world.events()]
        assert any("old ResourceClaim with same name claim and different UID" in text for text in texts)

    run(test)
