"""Volumes as a container sees them, and what cannot be mounted."""

from __future__ import annotations

from drakkar.kube.resources import CONFIG_MAPS, SECRETS
from tests.cluster.kubelet.world import World, run, until


def test_files_of_every_supported_kind() -> None:
    async def test(world: World) -> None:
        world.api.put(CONFIG_MAPS, {"metadata": {"name": "map"}, "data": {"a": "1", "b": "2"}})
        world.api.put(SECRETS, {"metadata": {"name": "hidden"}, "data": {"key": "c2VjcmV0"}})
        host = world.folder / "host"
        host.mkdir()
        (host / "file").write_text("from the host")
        volumes = [
            {"name": "map", "configMap": {"name": "map", "items": [{"key": "b", "path": "sub/b"}]}},
            {"name": "hidden", "secret": {"secretName": "hidden", "defaultMode": 0o400}},
            {"name": "down", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "host", "hostPath": {"path": str(host)}},
            {
                "name": "all",
                "projected": {
                    "sources": [
                        {"configMap": {"name": "map"}},
                        {"secret": {"name": "hidden"}},
                        {"secret": {"name": "none", "optional": True}},
                    ]
                },
            },
        ]
        mounts = [{"name": volume["name"], "mountPath": f"/v/{volume['name']}"} for volume in volumes]
        files = "map/sub/b hidden/key down/name host/file all/a all/key"
        script = f'cd "$DRAKKAR_ROOT/v"; for f in {files}; do cat $f; echo; done'
        container = {"name": "c0", "image": "x", "command": ["sh", "-c", script], "volumeMounts": mounts}
        world.pod("one", containers=[container], volumes=volumes)
        await world.phase_is("one", "Succeeded")
        assert (await world.log("one")).split("\n") == ["2", "secret", "one", "from the host", "1", "secret", ""]

    run(test, driver=False)


def test_what_is_missing_is_an_event_and_the_pod_waits() -> None:
    async def test(world: World) -> None:
        world.pod("one", "true", volumes=[{"name": "map", "configMap": {"name": "map"}}])
        await until(lambda: world.status("one").get("containerStatuses") is not None)
        text = 'MountVolume.SetUp failed for volume "map" : configmap "map" not found'
        assert ("Warning", "FailedMount", text) in await world.events()
        assert world.phase("one") == "Pending"

    run(test, driver=False)


def test_a_kind_that_is_not_supported_is_named() -> None:
    async def test(world: World) -> None:
        world.pod("one", "true", volumes=[{"name": "disk", "iscsi": {}}])
        await until(lambda: world.status("one").get("containerStatuses") is not None)
        text = 'MountVolume.SetUp failed for volume "disk" : no volume plugin matched: iscsi'
        assert ("Warning", "FailedMount", text) in await world.events()

    run(test, driver=False)


def test_a_missing_variable_is_a_configuration_error() -> None:
    async def test(world: World) -> None:
        env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "k"}}}]
        world.pod("one", containers=[{"name": "c0", "image": "x", "command": ["true"], "env": env}])
        await until(lambda: "waiting" in world.container("one").get("state", {}))
        assert world.container("one")["state"]["waiting"] == {
            "reason": "CreateContainerConfigError",
            "message": 'configmap "map" not found',
        }

    run(test, driver=False)
