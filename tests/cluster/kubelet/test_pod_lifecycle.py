"""Pods from their binding to their end, with real processes."""

from __future__ import annotations

from typing import Any

from drakkar.kube.resources import NODES, PODS
from tests.cluster.kubelet.world import World, run, until


def test_the_node_is_registered_ready_with_lease() -> None:
    async def test(world: World) -> None:
        node = world.node()
        ready = next(entry for entry in node["status"]["conditions"] if entry["type"] == "Ready")
        assert ready["status"] == "True" and ready["reason"] == "KubeletReady"
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "node-1"
        assert node["metadata"]["labels"]["accelerator"] == "h100"
        assert node["status"]["capacity"]["cpu"] == "8"
        assert node["status"]["allocatable"]["memory"] == f"{(16 * 1024 - 100) * 1024}Ki"
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("process://")

    run(test, driver=False)


def test_a_pod_runs_and_completes_with_the_statuses_of_kubernetes() -> None:
    async def test(world: World) -> None:
        world.pod("one", "echo out; echo err >&2; exit 0")
        await world.phase_is("one", "Succeeded")
        status = world.container("one")
        end = status["state"]["terminated"]
        assert (end["exitCode"], end["reason"]) == (0, "Completed")
        assert status["containerID"].startswith("process://") and end["containerID"] == status["containerID"]
        assert status["ready"] is False and status["started"] is False and status["restartCount"] == 0
        conditions = {entry["type"]: entry for entry in world.status("one")["conditions"]}
        assert {kind: entry["status"] for kind, entry in conditions.items()} == {
            "PodReadyToStartContainers": "False",
            "Initialized": "True",
            "Ready": "False",
            "ContainersReady": "False",
            "PodScheduled": "True",
        }
        assert conditions["Ready"]["reason"] == "PodCompleted"
        assert sorted((await world.log("one")).split()) == ["err", "out"]
        assert [entry[1:] for entry in await world.events()] == [
            ("Pulled", 'Container image "busybox" already present on machine and can be accessed by the pod'),
            ("Created", "Container created"),
            ("Started", "Container started"),
        ]

    run(test, driver=False)


def test_a_running_pod_is_ready_and_has_addresses() -> None:
    async def test(world: World) -> None:
        world.pod("one", "sleep 60")
        await world.phase_is("one", "Running")
        status = world.status("one")
        conditions = {entry["type"]: entry["status"] for entry in status["conditions"]}
        assert set(conditions.values()) == {"True"}
        assert status["hostIP"] == world.kubelet.address
        assert status["podIP"].startswith(world.kubelet.address.rpartition(".")[0])
        container = world.container("one")
        assert container["ready"] and container["started"] and "running" in container["state"]

    run(test, driver=False)


def test_a_failing_command_fails_the_pod_and_its_message_is_kept() -> None:
    async def test(world: World) -> None:
        container = {
            "name": "c0",
            "image": "busybox",
            "command": ["sh", "-c", 'echo broken >"$DRAKKAR_ROOT/dev/termination-log"; exit 7'],
        }
        world.pod("one", containers=[container])
        await world.phase_is("one", "Failed")
        end = world.container("one")["state"]["terminated"]
        assert (end["exitCode"], end["reason"], end["message"]) == (7, "Error", "broken\n")

    run(test, driver=False)


def test_the_log_stands_in_for_a_message() -> None:
    async def test(world: World) -> None:
        container = {
            "name": "c0",
            "image": "busybox",
            "command": ["sh", "-c", "echo the reason; exit 1"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        world.pod("one", containers=[container])
        await world.phase_is("one", "Failed")
        assert world.container("one")["state"]["terminated"]["message"] == "the reason\n"

    run(test, driver=False)


def test_a_program_that_is_not_there_is_a_start_error() -> None:
    async def test(world: World) -> None:
        world.pod("one", containers=[{"name": "c0", "image": "x", "command": ["no-such-program"]}])
        await world.phase_is("one", "Failed")
        end = world.container("one")["state"]["terminated"]
        assert (end["exitCode"], end["reason"], end["startedAt"]) == (128, "StartError", "1970-01-01T00:00:00Z")
        assert "executable file not found" in end["message"]

    run(test, driver=False)


def test_a_container_that_ends_is_restarted_at_once_and_then_backed_off() -> None:
    async def test(world: World) -> None:
        world.pod("one", "echo run; exit 3", restartPolicy="Always")
        await until(
            lambda: world.container("one").get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff"
        )
        status = world.container("one")
        uid = world.api.get(PODS, "one")["metadata"]["uid"]
        assert status["state"]["waiting"]["message"] == (
            f"back-off 10s restarting failed container=c0 pod=one_default({uid})"
        )
        assert status["restartCount"] == 1
        assert status["lastState"]["terminated"]["exitCode"] == 3
        assert world.phase("one") == "Running"
        assert await world.log("one", previous=True) == "run\n"
        assert ("Warning", "BackOff", f"Back-off restarting failed container c0 in pod one_default({uid})") in (
            await world.events()
        )

    run(test, driver=False)


def test_init_containers_run_in_order_before_the_main_ones() -> None:
    async def test(world: World) -> None:
        share = {"name": "share", "emptyDir": {}}
        mount = [{"name": "share", "mountPath": "/share"}]

        def container(name: str, command: str) -> dict[str, object]:
            return {"name": name, "image": "x", "command": ["sh", "-c", command], "volumeMounts": mount}

        world.pod(
            "one",
            containers=[container("main", 'cat "$DRAKKAR_ROOT/share/order"')],
            initContainers=[
                container("first", 'echo first >>"$DRAKKAR_ROOT/share/order"'),
                container("second", 'echo second >>"$DRAKKAR_ROOT/share/order"'),
            ],
            volumes=[share],
        )
        await world.phase_is("one", "Succeeded")
        assert await world.log("one", "main") == "first\nsecond\n"
        assert [entry["ready"] for entry in world.status("one")["initContainerStatuses"]] == [True, True]

    run(test, driver=False)


def test_a_failing_init_container_fails_the_pod() -> None:
    async def test(world: World) -> None:
        world.pod(
            "one",
            "echo never",
            initContainers=[{"name": "first", "image": "x", "command": ["sh", "-c", "exit 4"]}],
        )
        await world.phase_is("one", "Failed")
        status = world.status("one")
        assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
        assert world.container("one")["state"] == {"waiting": {"reason": "PodInitializing"}}
        initialized = next(entry for entry in status["conditions"] if entry["type"] == "Initialized")
        assert initialized["message"] == "containers with incomplete status: [first]"

    run(test, driver=False)


def test_a_sidecar_starts_first_and_ends_last() -> None:
    async def test(world: World) -> None:
        world.pod(
            "one",
            "sleep 0.2",
            initContainers=[
                {"name": "side", "image": "x", "restartPolicy": "Always", "command": ["sh", "-c", "sleep 60"]}
            ],
        )
        await world.phase_is("one", "Running")
        assert world.status("one")["initContainerStatuses"][0]["ready"] is True
        await world.phase_is("one", "Succeeded")
        assert world.status("one")["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 143

    run(test, driver=False)


def test_deleting_a_pod_ends_its_containers_and_then_the_object() -> None:
    async def test(world: World) -> None:
        world.pod("one", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done")
        await world.phase_is("one", "Running")
        log = world.folder / "k" / "logs"
        await until(lambda: any("up" in path.read_text() for path in log.rglob("*.log")))
        await world.client.delete(PODS, "one", "default")
        await world.gone("one")
        assert ("Normal", "Killing", "Stopping container c0") in await world.events()
        assert not world.runtime.containers()
        assert not list((world.folder / "k" / "pods").iterdir())

    run(test, driver=False)


def test_who_ignores_sigterm_is_killed_when_the_grace_period_ends() -> None:
    async def test(world: World) -> None:
        world.pod("one", "trap '' TERM; while :; do sleep 0.02; done")
        await world.phase_is("one", "Running")
        await world.client.delete(PODS, "one", "default", grace_period_seconds=1)
        await world.gone("one")

    run(test, driver=False)


def test_a_force_deleted_pod_is_ended_too() -> None:
    async def test(world: World) -> None:
        world.pod("one", "sleep 60")
        await world.phase_is("one", "Running")
        await world.client.delete(PODS, "one", "default", grace_period_seconds=0)
        await until(lambda: not world.runtime.containers())

    run(test, driver=False)


def test_the_active_deadline_ends_a_pod() -> None:
    async def test(world: World) -> None:
        world.pod("one", "sleep 60", activeDeadlineSeconds=1)
        await world.phase_is("one", "Failed")
        assert world.status("one")["reason"] == "DeadlineExceeded"

    run(test, driver=False)


def test_a_node_that_somebody_deleted_comes_back() -> None:
    async def test(world: World) -> None:
        await world.client.delete(NODES, "node-1")
        world.kubelet._registration._lease = None
        await world.kubelet._registration._register_again()
        assert world.node()["status"]["capacity"]

    run(test, driver=False)


def test_a_container_for_debugging_joins_a_running_pod_and_does_not_count() -> None:
    async def test(world: World) -> None:
        world.pod("one", "sleep 0.6")
        await world.phase_is("one", "Running")
        debug = {"name": "debug", "image": "busybox", "command": ["sh", "-c", "echo look; exit 5"]}
        await world.client.patch(PODS, "one", {"spec": {"ephemeralContainers": [debug]}}, namespace="default")

        def debugger() -> dict[str, Any]:
            return (world.status("one").get("ephemeralContainerStatuses") or [{}])[0]

        await until(lambda: "terminated" in debugger().get("state", {}))
        assert debugger()["state"]["terminated"]["exitCode"] == 5
        assert await world.log("one", "debug") == "look\n"
        await world.phase_is("one", "Succeeded")

    run(test, driver=False)


def test_many_pods_run_side_by_side() -> None:
    async def test(world: World) -> None:
        for number in range(20):
            world.pod(f"p{number}", "sleep 60")
        await until(lambda: all(world.phase(f"p{number}") == "Running" for number in range(20)))
        addresses = {world.status(f"p{number}")["podIP"] for number in range(20)}
        assert len(addresses) == 20

    run(test, driver=False)
