"""Pods find nodes and devices; failures say what Kubernetes says; releases are noticed at once."""

from typing import Any

from drakkar.cluster.scheduler import Scheduler
from drakkar.kube.resources import EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from drakkar.kube.transport import ApiResponse
from tests.cluster.scheduler.world import World, run

NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_DEVICES = f"0/1 nodes are available: 1 cannot allocate all claims. {NOT_HELPFUL}"


def test_a_pod_is_bound_and_announced() -> None:
    async def test(world: World) -> None:
        world.node("a")
        world.pod("p")
        await world.settle()
        assert world.where("p") == "a"
        assert world.events("p") == [("Scheduled", "Successfully assigned default/p to a")]
        (event,) = world.api.all(EVENTS)
        assert event["source"] == {}
        assert (event["action"], event["reportingComponent"]) == ("Binding", "default-scheduler")

    run(test)


def test_a_claim_is_allocated_reserved_and_protected_before_binding() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=2)
        world.claim("c")
        pod = world.pod("p", claims=("c",))
        await world.settle()
        claim = world.api.get(RESOURCE_CLAIMS, "c")
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        status = claim["status"]
        assert world.devices("c") == ["a/gpu-0"]
        assert status["allocation"]["allocationTimestamp"] == "2026-01-01T00:00:00Z"
        assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]
        writes = [path.rpartition("default/")[2] for _, path in world.api.log if "/events" not in path]
        assert writes == ["pods/p/status", "resourceclaims/c", "resourceclaims/c/status", "pods/p/binding"]

    run(test)


def test_no_device_goes_out_twice_however_fast_pods_come() -> None:
    async def test(world: World) -> None:
        world.device_class()
        for name in ("a", "b"):
            world.node(name, gpus=4)
        for index in range(9):
            world.claim(f"c{index}")
            world.pod(f"p{index}", claims=(f"c{index}",))
        await world.settle(400)
        given = [device for index in range(9) for device in world.devices(f"c{index}")]
        assert len(given) == len(set(given)) == 8
        (waiting,) = [f"p{index}" for index in range(9) if not world.where(f"p{index}")]
        assert world.condition(waiting)["reason"] == "Unschedulable"

    run(test)


def test_a_pod_waiting_for_a_device_gets_it_without_time_passing() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        held = world.claim("held")
        world.pod("p", claims=("held",))
        await world.settle()
        for name in ("q", "r"):
            world.claim(name)
            world.pod(name, claims=(name,))
        await world.settle()
        assert world.condition("q")["message"] == NO_DEVICES
        assert world.events("q") == [("FailedScheduling", NO_DEVICES)]
        world.api.put(RESOURCE_CLAIMS, {**held, "status": {}})
        await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
        await world.settle()
        assert world.where("q") == "a"
        assert world.where("r") == ""

    run(test)


def test_our_reasons_follow_when_the_pod_still_waits() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.claim("c", count=2)
        world.pod("p", claims=("c",))
        await world.settle()
        assert [reason for reason, _ in world.events("p")] == ["FailedScheduling"]
        await world.advance(10.1)
        reason, message = world.events("p")[1]
        assert reason == "DevicesNotAllocated"
        assert message.startswith("1 node: ")

    run(test)


def test_no_nodes() -> None:
    async def test(world: World) -> None:
        world.pod("p")
        await world.settle()
        condition = world.condition("p")
        assert (condition["status"], condition["reason"], condition["observedGeneration"]) == (
            "False",
            "Unschedulable",
            1,
        )
        assert condition["message"] == "no nodes available to schedule pods"
        world.node("a")
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def test_reasons_are_counted_and_sorted() -> None:
    async def test(world: World) -> None:
        world.node("a", taints=[{"key": "k", "effect": "NoSchedule"}])
        world.node("b", room={"cpu": "1"})
        world.node("c", unschedulable=True)
        world.pod("p", cpu="2")
        await world.settle()
        assert world.condition("p")["message"] == (
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
            "1 node(s) were unschedulable. "
            "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        )

    run(test)


def test_room_taken_by_others_could_be_preempted() -> None:
    async def test(world: World) -> None:
        world.node("a", room={"cpu": "2"})
        world.pod("first", cpu="1500m")
        await world.settle()
        world.pod("second", cpu="1")
        await world.settle()
        assert world.condition("second")["message"].endswith("1 No preemption victims found for incoming pod.")
        await world.client.delete(PODS, "first", "default", grace_period_seconds=0)
        await world.settle()
        assert world.where("second") == "a"

    run(test)


def test_a_pod_whose_claim_is_missing_waits_in_silence() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.pod("p", claims=("c",))
        await world.settle()
        assert world.condition("p") == {}
        assert world.events("p") == []
        world.claim("c")
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def test_a_claim_in_deletion_is_not_taken() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.claim("c", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x"])
        world.pod("p", claims=("c",))
        await world.settle()
        assert (world.where("p"), world.condition("p")) == ("", {})

    run(test)


def test_gates_hold_a_pod_back() -> None:
    async def test(world: World) -> None:
        world.node("a")
        pod = world.pod("p", schedulingGates=[{"name": "g"}])
        await world.settle()
        assert world.where("p") == ""
        world.api.put(PODS, {**pod, "spec": {**pod["spec"], "schedulingGates": []}})
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def test_pods_of_other_schedulers_and_pinned_pods_are_left_alone() -> None:
    async def test(world: World) -> None:
        world.node("a")
        world.pod("other", schedulerName="mine")
        world.pod("pinned", nodeName="elsewhere")
        await world.settle()
        assert [path for _, path in world.api.log] == []

    run(test)


def test_shared_claim_keeps_the_second_pod_on_its_node() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.node("b", gpus=1)
        world.claim("c")
        first = world.pod("p", claims=("c",), nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle()
        second = world.pod("q", claims=("c",))
        await world.settle()
        assert (world.where("p"), world.where("q")) == ("b", "b")
        users = world.api.get(RESOURCE_CLAIMS, "c")["status"]["reservedFor"]
        assert [one["uid"] for one in users] == [first["metadata"]["uid"], second["metadata"]["uid"]]
        world.pod("r", claims=("c",), nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle()
        assert world.condition("r")["message"] == (
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
            "1 resourceclaim not available on the node. "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )

    run(test)


def test_an_idle_allocation_in_the_wrong_place_is_given_up() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.node("b", gpus=1)
        world.claim("c")
        first = world.pod("p", claims=("c",), nodeSelector={"kubernetes.io/hostname": "a"})
        await world.settle()
        claim = world.api.get(RESOURCE_CLAIMS, "c")
        await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
        world.api.put(RESOURCE_CLAIMS, {**claim, "status": {"allocation": claim["status"]["allocation"]}})
        world.pod("q", claims=("c",), nodeSelector={"kubernetes.io/hostname": "b"})
        await world.settle(200)
        assert first["spec"]["nodeSelector"] != {}
        assert world.where("q") == "b"
        assert "deallocation of ResourceClaim completed, preemption: " in world.events("q")[0][1]

    run(test)


def test_a_class_that_does_not_exist() -> None:
    async def test(world: World) -> None:
        world.node("a", gpus=1)
        world.claim("c")
        world.pod("p", claims=("c",))
        await world.settle()
        assert world.condition("p")["message"] == (
            f"0/1 nodes are available: request gpu: device class gpu does not exist. {NOT_HELPFUL}"
        )
        world.device_class()
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def test_a_refused_binding_gives_everything_back() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.claim("c")
        refusal = {"kind": "Status", "reason": "InternalError", "message": "broken", "code": 500}
        world.api.fail[("POST", PODS.path("default", "p", "binding"))] = [ApiResponse(500, {}, refusal)]
        world.pod("p", claims=("c",))
        await world.settle()
        assert world.condition("p")["reason"] == "SchedulerError"
        assert not world.api.get(RESOURCE_CLAIMS, "c")["status"].get("reservedFor")
        await world.advance(1.1)
        assert world.where("p") == "a"

    run(test)


def test_a_conflict_on_a_claim_is_read_again() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.claim("c")
        conflict: dict[str, Any] = {"kind": "Status", "reason": "Conflict", "message": "modified", "code": 409}
        path = RESOURCE_CLAIMS.path("default", "c", "status")
        world.api.fail[("PUT", path)] = [ApiResponse(409, {}, conflict)]
        world.pod("p", claims=("c",))
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def test_extended_resources_become_a_claim() -> None:
    async def test(world: World) -> None:
        world.device_class("gpu", extendedResourceName="example.com/gpu")
        world.node("a", gpus=2)
        asks = {"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "2"}}
        world.pod("p", containers=[{"name": "main", "image": "i", "resources": asks}])
        await world.settle(120)
        assert world.where("p") == "a"
        (claim,) = world.api.all(RESOURCE_CLAIMS)
        assert claim["metadata"]["generateName"] == "p-extended-resources-"
        assert claim["spec"]["devices"]["requests"][0]["name"] == "container-0-request-0"
        assert len(world.devices(claim["metadata"]["name"])) == 2
        status = world.api.get(PODS, "p")["status"]["extendedResourceClaimStatus"]
        assert status["resourceClaimName"] == claim["metadata"]["name"]

    run(test)


def test_a_special_claim_from_before_a_restart_is_used_again() -> None:
    async def test(world: World) -> None:
        world.device_class("gpu", extendedResourceName="example.com/gpu")
        world.node("a", gpus=2)
        asks = {"requests": {"example.com/gpu": "1"}}
        pod = world.pod("p", containers=[{"name": "main", "image": "i", "resources": asks}], schedulerName="later")
        owner = {"kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
        marks = {"resource.kubernetes.io/extended-resource-claim": "true"}
        world.claim("p-extended-resources-left", annotations=marks, ownerReferences=[owner])
        await world.settle()
        world.api.put(PODS, {**pod, "spec": {**pod["spec"], "schedulerName": "default-scheduler"}})
        await world.settle(120)
        assert world.where("p") == "a"
        assert [one["metadata"]["name"] for one in world.api.all(RESOURCE_CLAIMS)] == ["p-extended-resources-left"]
        status = world.api.get(PODS, "p")["status"]["extendedResourceClaimStatus"]
        assert status["resourceClaimName"] == "p-extended-resources-left"

    run(test)


def test_a_restart_finds_what_is_placed_and_what_is_held() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=1)
        world.node("b", gpus=1)
        world.claim("c")
        world.pod("p", claims=("c",))
        await world.settle()
        await world.scheduler.stop()
        world.claim("d")
        world.pod("q", claims=("d",))
        world.scheduler = Scheduler(world.client, clock=world.clock)
        await world.scheduler.start()
        await world.settle()
        assert {world.where("p"), world.where("q")} == {"a", "b"}

    run(test)


def test_extended_resources_that_do_not_fit_leave_nothing_behind() -> None:
    async def test(world: World) -> None:
        world.device_class("gpu", extendedResourceName="example.com/gpu")
        world.node("a", gpus=1)
        asks = {"requests": {"example.com/gpu": "2"}}
        world.pod("p", containers=[{"name": "main", "image": "i", "resources": asks}])
        await world.settle()
        assert world.condition("p")["message"] == NO_DEVICES
        assert world.api.all(RESOURCE_CLAIMS) == []

    run(test)


def test_a_device_that_must_be_attached_first_delays_the_binding() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a")
        device = {"name": "d", "bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        world.slice("a", [device])
        world.claim("c")
        world.pod("p", claims=("c",))
        await world.settle()
        assert world.where("p") == ""
        assert world.api.get(PODS, "p")["status"]["nominatedNodeName"] == "a"
        text = "waiting for binding conditions for device on node a"
        assert world.events("p") == [("BindingConditionsPending", text)]
        claim = world.api.get(RESOURCE_CLAIMS, "c")
        report = {"driver": "gpu.example.com", "pool": "a", "device": "d"}
        report["conditions"] = [{"type": "ready", "status": "True"}]
        world.api.put(RESOURCE_CLAIMS, {**claim, "status": {**claim["status"], "devices": [report]}})
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def attachable(world: World) -> None:
    world.device_class()
    world.node("a")
    device = {"name": "d", "bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    world.slice("a", [device])
    world.claim("c")
    world.pod("p", claims=("c",))


def report(world: World, **condition: str) -> None:
    claim = world.api.get(RESOURCE_CLAIMS, "c")
    assert claim is not None
    status = {"driver": "gpu.example.com", "pool": "a", "device": "d", "conditions": [{**condition, "status": "True"}]}
    world.api.put(RESOURCE_CLAIMS, {**claim, "status": {**claim["status"], "devices": [status]}})


def test_a_device_that_never_attaches_is_given_up() -> None:
    async def test(world: World) -> None:
        attachable(world)
        await world.settle()
        await world.advance(600.5)
        text = 'running PreBind plugin "DynamicResources": device binding timeout'
        assert world.events("p")[1] == ("FailedScheduling", text)
        await world.advance(1.5)
        assert world.events("p")[2][1] == (
            "0/1 nodes are available: 1 resourceclaim not available on the node. "
            f"deallocation of ResourceClaim completed, {NOT_HELPFUL}"
        )
        await world.settle()
        assert world.devices("c") == ["a/d"]
        report(world, type="ready")
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def test_a_pod_that_goes_while_its_device_attaches_gives_it_back() -> None:
    async def test(world: World) -> None:
        attachable(world)
        await world.settle()
        await world.client.delete(PODS, "p", "default")
        await world.settle()
        assert not world.api.get(RESOURCE_CLAIMS, "c")["status"].get("reservedFor")
        assert world.scheduler._binding == {}

    run(test)


def test_a_device_that_fails_to_attach_is_given_up_at_once() -> None:
    async def test(world: World) -> None:
        attachable(world)
        await world.settle()
        report(world, type="broken", reason="NoLink", message="cable")
        await world.settle()
        failed = 'device binding failed: claim=c, reason=NoLink, message="cable"'
        text = f'running PreBind plugin "DynamicResources": {failed}'
        assert world.events("p")[1] == ("FailedScheduling", text)
        await world.advance(1.1)
        assert "deallocation of ResourceClaim completed" in world.events("p")[2][1]
        report(world, type="ready")
        await world.settle()
        assert world.where("p") == "a"

    run(test)


def test_the_node_with_the_better_alternative_is_taken() -> None:
    async def test(world: World) -> None:
        for name in ("big", "small"):
            selector = {"cel": {"expression": f"device.attributes['gpu.example.com'].size == '{name}'"}}
            world.device_class(name, selectors=[selector])
        for node, size in (("a", "small"), ("b", "big")):
            world.node(node)
            world.slice(node, [{"name": "d", "attributes": {"size": {"string": size}}}])
        one_of = {"allocationMode": "ExactCount", "count": 1}
        alternatives = [{"name": one, "deviceClassName": one, **one_of} for one in ("big", "small")]
        requests = [{"name": "gpu", "firstAvailable": alternatives}]
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}, "status": {}}
        world.api.put(RESOURCE_CLAIMS, claim)
        world.pod("p", claims=("c",))
        await world.settle()
        assert (world.where("p"), world.devices("c")) == ("b", ["b/d"])

    run(test)


def test_devices_that_every_node_reaches_are_taken_once() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a")
        world.node("b")
        pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "nic.example.com", "pool": pool, "allNodes": True, "devices": [{"name": "d"}]}
        world.api.put(RESOURCE_SLICES, {"metadata": {"name": "fabric"}, "spec": spec})
        for index in range(2):
            world.claim(f"c{index}")
            world.pod(f"p{index}", claims=(f"c{index}",), nodeSelector={"kubernetes.io/hostname": "ab"[index]})
        await world.settle(120)
        assert sorted([world.where("p0"), world.where("p1")]) in (["", "a"], ["", "b"])
        placed = "p0" if world.where("p0") else "p1"
        claim = world.api.get(RESOURCE_CLAIMS, placed.replace("p", "c"))
        world.api.put(RESOURCE_CLAIMS, {**claim, "status": {}})
        await world.client.delete(PODS, placed, "default", grace_period_seconds=0)
        await world.settle(120)
        assert world.where("p1" if placed == "p0" else "p0")

    run(test)


def test_a_selector_that_fails_is_an_error_of_the_whole_pod() -> None:
    async def test(world: World) -> None:
        world.device_class(selectors=[{"cel": {"expression": "device.attributes['gpu.example.com'].nothing == 'x'"}}])
        world.node("a", gpus=1)
        world.claim("c")
        world.pod("p", claims=("c",))
        await world.settle()
        condition = world.condition("p")
        assert condition["reason"] == "SchedulerError"
        assert condition["message"].startswith(
            'running "DynamicResources" filter plugin: class gpu: selector #0 on device gpu.example.com/a/gpu-0: '
            "CEL runtime error: no such key: nothing"
        )
        world.device_class()
        await world.advance(1.1)
        assert world.where("p") == "a"

    run(test)


def test_nothing_is_remembered_of_pods_that_have_their_place() -> None:
    async def test(world: World) -> None:
        world.device_class()
        world.node("a", gpus=8)
        for index in range(8):
            world.claim(f"c{index}")
            world.pod(f"p{index}", claims=(f"c{index}",))
        await world.settle(300)
        scheduler = world.scheduler
        assert (len(scheduler._pending), scheduler._waiting_for, scheduler._binding) == (0, {}, {})

    run(test)


def test_heartbeats_do_not_disturb() -> None:
    async def test(world: World) -> None:
        world.node("a", room={"cpu": "1"})
        world.pod("p", cpu="2")
        await world.settle()
        node = world.api.get(NODES, "a")
        for beat in range(3):
            status = {**node["status"], "conditions": [{"type": "Ready", "lastHeartbeatTime": f"{beat}"}]}
            world.api.put(NODES, {**node, "status": status})
            await world.settle()
        assert len(world.events("p")) == 1
        event = world.api.all(EVENTS)[0]
        assert "series" not in event

    run(test)
