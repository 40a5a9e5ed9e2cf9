"""What create, update, delete and list do beyond the recorded conversations."""

from __future__ import annotations

import asyncio
from typing import Any

from drakkar.cluster.store.collection import HISTORY
from tests.cluster.apiserver.world import CONFIGS, PODS, World, config, pod


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_generated_name_is_free_and_keeps_its_prefix() -> None:
    async def main() -> None:
        world = World()
        names = set()
        for _ in range(50):
            made = await world.made(CONFIGS, {"metadata": {"generateName": "x" * 70}})
            names.add(made["metadata"]["name"])
        assert len(names) == 50 and all(len(name) == 63 and name.startswith("x" * 58) for name in names)

    run(main())


def test_what_a_client_sends_later_cannot_change_what_was_stored() -> None:
    async def main() -> None:
        world = World()
        body = config("a", key="1")
        await world.made(CONFIGS, body)
        body["data"]["key"] = "2"
        assert (await world.get(f"{CONFIGS}/a")).body["data"] == {"key": "1"}

    run(main())


def test_pages_are_consistent_although_objects_come_and_go() -> None:
    async def main() -> None:
        world = World()
        for name in "abcdef":
            await world.made(CONFIGS, config(name))
        first = (await world.get(f"{CONFIGS}?limit=2")).body
        assert first["metadata"]["remainingItemCount"] == 4
        await world.delete(f"{CONFIGS}/c")
        await world.made(CONFIGS, config("bb"))
        names, token = [], first["metadata"]["continue"]
        while token:
            page = (await world.get(f"{CONFIGS}?limit=3&continue={token}")).body
            names += [item["metadata"]["name"] for item in page["items"]]
            token = page["metadata"].get("continue", "")
            assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert names == ["c", "d", "e", "f"]

    run(main())


def test_a_page_from_too_long_ago_is_gone() -> None:
    async def main() -> None:
        world = World()
        for name in "ab":
            await world.made(CONFIGS, config(name))
        token = (await world.get(f"{CONFIGS}?limit=1")).body["metadata"]["continue"]
        for number in range(HISTORY + 2):
            await world.merge(f"{CONFIGS}/a", {"data": {"n": str(number)}})
        answer = await world.get(f"{CONFIGS}?limit=1&continue={token}")
        assert (answer.status, answer.body["reason"]) == (410, "Expired")
        rest = await world.get(f"{CONFIGS}?continue={answer.body['metadata']['continue']}")
        assert [item["metadata"]["name"] for item in rest.body["items"]] == ["b"], "going on all the same is possible"
        bad = await world.get(f"{CONFIGS}?continue=rub!ish")
        assert bad.status == 400 and bad.body["message"].endswith("illegal base64 data at input byte 3")

    run(main())


def test_a_list_as_of_an_older_version() -> None:
    async def main() -> None:
        world = World()
        version = (await world.made(CONFIGS, config("a")))["metadata"]["resourceVersion"]
        await world.made(CONFIGS, config("b"))
        exact = await world.get(f"{CONFIGS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert [item["metadata"]["name"] for item in exact.body["items"]] == ["a"]
        newer = await world.get(f"{CONFIGS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan")
        assert len(newer.body["items"]) == 2
        future = await world.get(f"{CONFIGS}?resourceVersion=999999")
        assert future.status == 504 and future.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    run(main())


def test_a_pod_that_runs_gets_its_grace_period_and_a_shorter_one_counts_from_the_first() -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        await world.made(PODS, pod("p", nodeName="n", terminationGracePeriodSeconds=60))
        answer = await world.delete(f"{PODS}/p")
        assert answer.body["metadata"]["deletionTimestamp"] == "2026-01-01T00:01:00Z"
        assert answer.body["metadata"]["generation"] == 2
        await world.clock.advance(10)
        again = await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 20})
        assert again.body["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:20Z"
        longer = await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 50})
        assert longer.body["metadata"]["deletionGracePeriodSeconds"] == 20
        gone = await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
        assert gone.status == 200
        assert (await world.get(f"{PODS}/p")).status == 404

    run(main())


def test_a_pod_without_a_node_goes_at_once() -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        await world.made(PODS, pod("p"))
        await world.delete(f"{PODS}/p")
        assert (await world.get(f"{PODS}/p")).status == 404

    run(main())


def test_the_last_finalizer_takes_a_dying_object_along() -> None:
    async def main() -> None:
        world = World()
        body = config("a")
        body["metadata"]["finalizers"] = ["example.com/hold"]
        await world.made(CONFIGS, body)
        marked = await world.delete(f"{CONFIGS}/a")
        assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 0
        alive = await world.merge(f"{CONFIGS}/a", {"data": {"x": "y"}})
        assert alive.status == 200
        await world.merge(f"{CONFIGS}/a", {"metadata": {"finalizers": None}})
        assert (await world.get(f"{CONFIGS}/a")).status == 404

    run(main())


def test_a_terminating_namespace_takes_nothing_new() -> None:
    async def main() -> None:
        world = World()
        await world.made("/api/v1/namespaces", {"metadata": {"name": "old"}})
        await world.delete("/api/v1/namespaces/old")
        answer = await world.post("/api/v1/namespaces/old/configmaps", config("a"))
        assert answer.status == 403
        assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"

    run(main())


def test_the_default_namespaces_cannot_be_deleted() -> None:
    async def main() -> None:
        answer = await World().delete("/api/v1/namespaces/kube-system")
        assert answer.status == 403

    run(main())


def test_an_eviction_asks_the_disruption_budget() -> None:
    async def main() -> None:
        world = World()
        await world.service_account()
        body = pod("p", nodeName="n")
        body["metadata"]["labels"] = {"app": "x"}
        await world.made(PODS, body)
        running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await world.merge(f"{PODS}/p/status", running)
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        await world.made(budgets, {"metadata": {"name": "b"}, "spec": spec})
        counted = {
            "observedGeneration": 1,
            "disruptionsAllowed": 0,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        await world.merge(f"{budgets}/b/status", {"status": counted})
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        refused = await world.post(f"{PODS}/p/eviction", eviction)
        assert refused.status == 429
        assert refused.body["details"]["causes"][0]["message"] == (
            "The disruption budget b needs 1 healthy pods and has 1 currently"
        )
        await world.merge(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
        allowed = await world.post(f"{PODS}/p/eviction", eviction)
        assert allowed.status == 201
        left = (await world.get(f"{budgets}/b")).body["status"]
        assert left["disruptionsAllowed"] == 0 and "p" in left["disruptedPods"]
        assert "deletionTimestamp" in (await world.get(f"{PODS}/p")).body["metadata"]

    run(main())


def test_scale_reads_and_writes_the_replicas() -> None:
    async def main() -> None:
        world = World()
        labels = {"app": "x"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        path = "/apis/apps/v1/namespaces/default/deployments"
        await world.made(path, {"metadata": {"name": "d"}, "spec": spec})
        scale = (await world.get(f"{path}/d/scale")).body
        assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "app=x")
        answer = await world.put(f"{path}/d/scale", {**scale, "spec": {"replicas": 5}})
        assert answer.body["spec"] == {"replicas": 5}
        stored = (await world.get(f"{path}/d")).body
        assert stored["spec"]["replicas"] == 5 and stored["metadata"]["generation"] == 2
        negative = await world.merge(f"{path}/d/scale", {"spec": {"replicas": -1}})
        assert negative.status == 422

    run(main())


def test_events_have_two_forms_of_one_object() -> None:
    async def main() -> None:
        world = World()
        event = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            "reason": "Scheduled",
            "message": "hello",
            "type": "Normal",
        }
        await world.made("/api/v1/namespaces/default/events", event)
        other = (await world.get("/apis/events.k8s.io/v1/namespaces/default/events/e")).body
        assert other["apiVersion"] == "events.k8s.io/v1"
        assert (other["note"], other["regarding"]["name"]) == ("hello", "p")

    run(main())


def test_the_betas_of_the_resource_api_convert_when_they_are_switched_on() -> None:
    async def main() -> None:
        world = World(resource_betas=True)
        claim = {
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}]}},
        }
        beta = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"
        made = await world.made(beta, claim)
        assert made["apiVersion"] == "resource.k8s.io/v1beta1"
        stored = (await world.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c")).body
        assert stored["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.nvidia.com"
        assert (await world.get(f"{beta}/c")).body["spec"]["devices"]["requests"][0]["deviceClassName"]

    run(main())


def test_services_get_addresses_and_ports_of_their_own_and_keep_them() -> None:
    async def main() -> None:
        world = World()
        path = "/api/v1/namespaces/default/services"
        seen = set()
        for name in "abc":
            made = await world.made(
                path, {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
            )
            seen.add((made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]))
        assert len(seen) == 3
        kept = await world.merge(f"{path}/a", {"spec": {"selector": {"a": "b"}}})
        assert (kept.body["spec"]["clusterIP"], kept.body["spec"]["ports"][0]["nodePort"]) in seen
        taken = next(iter(seen))[0]
        clash = await world.post(
            path, {"metadata": {"name": "d"}, "spec": {"clusterIP": taken, "ports": [{"port": 80}]}}
        )
        assert clash.status == 422 and "already allocated" in clash.body["message"]

    run(main())


def test_a_change_that_the_server_takes_back_is_none_however_late_it_comes() -> None:
    """An owner that is named twice is named once: the same version, the same times."""

    async def main() -> None:
        world = World()
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-1"}
        await world.post(CONFIGS, {**config("a"), "metadata": {"name": "a", "ownerReferences": [owner]}})
        before = (await world.merge(f"{CONFIGS}/a", {"metadata": {"ownerReferences": [{**owner, "uid": "u-2"}]}})).body
        await world.clock.advance(5)
        adding = [{"op": "add", "path": "/metadata/ownerReferences/-", "value": {**owner, "uid": "u-2"}}]
        after = await world.ask(
            "PATCH", f"{CONFIGS}/a", adding, headers={"content-type": "application/json-patch+json"}
        )
        assert after.body == before
        assert len(after.headers["Warning"].split("duplicate UID(s) observed: u-2")) == 2
        changed = (await world.merge(f"{CONFIGS}/a", {"data": {"a": "b"}})).body
        assert changed["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        assert changed["metadata"]["managedFields"] != before["metadata"]["managedFields"]

    run(main())
