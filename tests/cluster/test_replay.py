"""Recorded clusters shown again: what was recorded stays, what is new is scheduled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drakkar.cluster.apiserver.server import ApiServer
from drakkar.cluster.cluster import Cluster
from drakkar.cluster.places import Places
from drakkar.cluster.replay import Restored, restore
from drakkar.cluster.store import Store
from drakkar.evidence.recorded import load
from drakkar.evidence.snapshot import Snapshot, name_of, namespace_of, reference
from drakkar.kube.apierrors import ApiError
from drakkar.kube.resources import NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS

CASES = sorted(path for path in (Path(__file__).resolve().parents[2] / "cases/diagnosis").iterdir() if path.is_dir())
RETAINED = next(path for path in CASES if path.name == "x-claim-retained")
MISSING = next(path for path in CASES if path.name == "x-claim-missing")
DEAD_DRIVER = next(path for path in CASES if path.name == "37-bound-to-dead-driver")
HEALTHY = next(path for path in CASES if path.name == "x-healthy")
DOMAINS = next(path for path in CASES if path.name.startswith("14-"))


def put(snapshot: Snapshot) -> tuple[ApiServer, Restored]:
    async def run() -> tuple[ApiServer, Restored]:
        server = ApiServer(Store())
        return server, await restore(server, snapshot)

    return asyncio.run(run())


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_every_object_is_there_with_uid_status_and_time(case: Path) -> None:
    snapshot = load(case)
    server, restored = put(snapshot)
    assert not restored.problems
    stored = {
        (one.value["kind"], namespace_of(one.value), name_of(one.value)): one.value
        for collection in server.store.collections.values()
        for one in collection.objects()
    }
    for obj in (*snapshot.objects, *snapshot.events):
        found = stored[obj["kind"], namespace_of(obj), name_of(obj)]
        for field in ("uid", "creationTimestamp", "ownerReferences", "deletionTimestamp", "labels"):
            assert found["metadata"].get(field) == obj["metadata"].get(field)
        for field in ("spec", "status", "data"):
            assert not list(_lost(obj.get(field), found.get(field), f"{obj['kind']}.{field}"))
    wanted = Counter(obj["kind"] for obj in (*snapshot.objects, *snapshot.events))
    assert all(restored.counts[kind] == count for kind, count in wanted.items() if kind != "Namespace")


def test_custom_resources_without_their_definition() -> None:
    server, _ = put(load(DOMAINS))
    row = server.registry.get("resource.nvidia.com", "v1beta1", "computedomains")
    assert row is not None and row.namespaced and len(server.store.collection(row.collection)) == 2


def test_a_handful_of_objects_written_by_hand() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"},
           "spec": {"containers": [{"name": "c", "image": "x"}]}}  # fmt: skip
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": {"containers": 3}}
    odd = {"apiVersion": "v9", "kind": "Thing", "metadata": {"name": "t"}}
    server, restored = put(Snapshot(objects=(pod, bad, odd)))
    found = server.store.collection("pods").get("team/p")
    assert found is not None and found.value["metadata"]["uid"] and found.value["metadata"]["creationTimestamp"]
    assert found.value["spec"]["restartPolicy"] == "Always"
    assert server.store.collection("namespaces").get("team") is not None
    assert len(restored.problems) == 2
    assert restored.problems[0].startswith("Pod/q: ")
    assert restored.problems[1] == "Thing/t: no kind Thing in version v9"


def replayed(folder: Path, case: Path, work: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        where = Places("r", folder, folder / "data", False, folder)
        (folder / "data").mkdir(mode=0o700, parents=True)
        cluster = Cluster(where, runtime="process", recorded=load(case))
        await cluster.start()
        try:
            await work(cluster)
        finally:
            await cluster.stop()

    asyncio.run(run())


async def until(holds: Callable[[], Awaitable[Any]]) -> Any:
    for _ in range(500):
        found = await holds()
        if found:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("it never came")


def _template(name: str) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": [request]}}}}  # fmt: skip


def _pod(name: str, template: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
            "tolerations": [{"operator": "Exists"}],
        },
    }


@pytest.mark.parametrize(("case", "placed"), [(RETAINED, 1), (HEALTHY, 2), (MISSING, 1), (DEAD_DRIVER, 0)])
def test_new_pods_are_placed_and_nothing_recorded_changes(tmp_path: Path, case: Path, placed: int) -> None:
    async def work(cluster: Cluster) -> None:
        client = cluster.client

        await client.create(RESOURCE_CLAIM_TEMPLATES, _template("one"), "default")
        for name in ("new", "second"):
            await until(lambda name=name: _made(cluster, _pod(name, "one")))  # type: ignore[misc]

        async def judged() -> bool:
            pods = (await client.list(PODS, "default")).items
            said = [pod["status"]["conditions"][0]["status"] for pod in pods if pod["status"].get("conditions")]
            return sorted(said) == ["False"] * (2 - placed) + ["True"] * placed

        await until(judged)
        claims = {obj["metadata"]["name"]: obj for obj in (await client.list(RESOURCE_CLAIMS)).items}
        held = [
            (result["driver"], result["pool"], result["device"])
            for claim in claims.values()
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        ]
        assert len(held) == len(set(held))  # devices of recorded claims are not given out again
        nodes = [pod["spec"].get("nodeName") for pod in (await client.list(PODS, "default")).items]
        assert len([node for node in nodes if node]) == placed
        assert _touched(cluster, load(case)) == []
        for name in ("new", "second"):  # nobody runs them, so nobody needs to be waited for; their devices are free
            await client.delete(PODS, name, "default")

        async def gone() -> bool:
            left = [*(await client.list(PODS, "default")).items, *(await client.list(RESOURCE_CLAIMS, "default")).items]
            return not left

        await until(gone)
        assert _touched(cluster, load(case)) == []

    replayed(tmp_path, case, work)


def test_what_would_look_like_garbage_stays(tmp_path: Path) -> None:
    """A record is never complete: owners, users and claims that are missing in it are not missing in the cluster."""
    pod = _pod("waiting", "one")
    pod["metadata"] |= {"namespace": "default", "uid": "p-1"}
    template = _template("one")
    template["metadata"] |= {"namespace": "default", "uid": "t-1"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "elsewhere", "uid": "p-9", "controller": True}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "held", "namespace": "default", "uid": "c-1", "ownerReferences": [owner],
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        },
        "spec": template["spec"]["spec"],
        "status": {
            "allocation": {
                "devices": {"results": [{"request": "gpu", "driver": "d.example", "pool": "n", "device": "g"}]}
            },
            "reservedFor": [{"resource": "pods", "name": "elsewhere", "uid": "p-9"}],
        },
    }  # fmt: skip
    file = tmp_path / "snapshot.json"
    file.write_bytes(msgspec.json.encode({"kind": "List", "items": [pod, template, claim]}))

    async def work(cluster: Cluster) -> None:
        assert cluster.restored is not None and not cluster.restored.problems
        probe = _pod("probe", "one")
        await until(lambda: _made(cluster, probe))  # by then the controllers have seen everything

        async def has_claim() -> bool:
            return len((await cluster.client.list(RESOURCE_CLAIMS)).items) == 2

        await until(has_claim)
        assert _touched(cluster, load(file)) == []

    replayed(tmp_path / "c", file, work)


async def _made(cluster: Cluster, pod: dict[str, Any]) -> bool:
    try:
        await cluster.client.create(PODS, pod, "default")
    except ApiError as error:
        assert error.reason == "Forbidden"  # no service account yet
        return False
    return True


def test_removing_a_recorded_pod_gives_its_device_to_a_new_one(tmp_path: Path) -> None:
    async def work(cluster: Cluster) -> None:
        client = cluster.client
        recorded = load(HEALTHY)
        pod = next(
            obj
            for obj in recorded.all("Pod")
            if any(c["metadata"]["namespace"] == namespace_of(obj) and
                   any(u["uid"] == obj["metadata"]["uid"] for u in (c.get("status") or {}).get("reservedFor") or ())
                   for c in recorded.all("ResourceClaim"))
        )  # fmt: skip
        mine = [
            claim
            for claim in recorded.all("ResourceClaim")
            if [u["uid"] for u in (claim.get("status") or {}).get("reservedFor") or ()] == [pod["metadata"]["uid"]]
        ]
        await client.delete(PODS, name_of(pod), namespace_of(pod), grace_period_seconds=0)

        async def released() -> bool:
            for claim in mine:
                try:
                    now = await client.get(RESOURCE_CLAIMS, name_of(claim), namespace_of(claim))
                except ApiError:
                    continue
                if (now.get("status") or {}).get("allocation"):
                    return False
            return True

        assert mine
        await until(released)

    replayed(tmp_path, HEALTHY, work)


def test_nodes_stay_as_they_were_recorded(tmp_path: Path) -> None:
    async def work(cluster: Cluster) -> None:
        shown = {name_of(node): node for node in (await cluster.client.list(NODES)).items}
        for node in load(RETAINED).all("Node"):
            found = shown[name_of(node)]
            assert found["spec"].get("taints") == (node.get("spec") or {}).get("taints")
            assert found["status"]["conditions"] == node["status"]["conditions"]
        assert cluster.nodes == {}

    replayed(tmp_path, RETAINED, work)


def _lost(recorded: Any, shown: Any, path: str) -> Iterator[str]:
    """Where `shown` has not what was recorded; defaults may be added, fields that say nothing may be left out."""
    if isinstance(recorded, dict) and isinstance(shown, dict):
        for key, value in recorded.items():
            yield from _lost(value, shown.get(key), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(shown, list) and len(recorded) == len(shown):
        for index, (one, other) in enumerate(zip(recorded, shown, strict=True)):
            yield from _lost(one, other, f"{path}[{index}]")
    elif recorded != shown and (recorded or shown):
        yield f"{path}: {recorded!r} became {shown!r}"


def _touched(cluster: Cluster, recorded: Snapshot) -> list[str]:
    """Recorded objects that somebody wrote to since, or that are gone."""
    assert cluster.restored is not None
    version = cluster.restored.version
    untouched = {
        stored.value["metadata"]["uid"]
        for collection in cluster.server.store.collections.values()
        for stored in collection.objects()
        if stored.version <= version
    }
    return [reference(obj) for obj in recorded.objects if obj["metadata"]["uid"] not in untouched]
