"""The store: versions, order, history, watchers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drakkar.cluster.store import ExpiredVersionError, Store
from drakkar.cluster.store.collection import HISTORY


def pod(name: str, namespace: str = "default", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": ""},
    }


def keys(store: Store, prefix: str = "") -> list[str]:
    return [stored.key for stored in store.collection("pods").objects(prefix)]


def test_every_write_takes_the_next_version_of_one_counter() -> None:
    store = Store()
    first = store.create("pods", "default/a", pod("a"))
    second = store.create("nodes", "n", pod("n"))
    third = store.update("pods", "default/a", pod("a", app="x"))
    assert [first.version, second.version, third.version] == [2, 3, 4]
    assert third.value["metadata"]["resourceVersion"] == "4"
    assert store.delete("pods", "default/a").version == 5
    assert store.version == 5


def test_the_text_of_an_object_begins_with_kind_and_api_version() -> None:
    stored = Store().create("pods", "default/a", pod("a"))
    assert stored.raw.startswith(b'{"kind":"Pod","apiVersion":"v1","metadata":{')


def test_storing_does_not_change_the_value_that_was_handed_over() -> None:
    value = pod("a")
    Store().create("pods", "default/a", value)
    assert "resourceVersion" not in value["metadata"]


def test_objects_are_listed_in_the_order_of_etcd_keys() -> None:
    store = Store()
    for key in ("b/x", "a-b/x", "a/z", "a/y"):
        store.create("pods", key, pod(key))
    assert keys(store) == ["a-b/x", "a/y", "a/z", "b/x"]
    assert keys(store, "a/") == ["a/y", "a/z"]


def test_a_collection_can_be_seen_as_it_was_at_an_older_version() -> None:
    store = Store()
    store.create("pods", "d/a", pod("a"))
    then = store.version
    store.create("pods", "d/b", pod("b"))
    store.update("pods", "d/a", pod("a", app="x"))
    store.delete("pods", "d/a")
    collection = store.collection("pods")
    seen = collection.objects_at(then)
    assert [(stored.key, stored.version) for stored in seen] == [("d/a", then)]
    assert [stored.key for stored in collection.objects_at(store.version)] == ["d/b"]


def test_a_version_from_before_the_history_is_expired() -> None:
    store = Store()
    store.create("pods", "d/a", pod("a"))
    for number in range(HISTORY + 1):
        store.update("pods", "d/a", pod("a", n=str(number)))
    collection = store.collection("pods")
    with pytest.raises(ExpiredVersionError):
        collection.changes_since(2)
    with pytest.raises(ExpiredVersionError):
        collection.objects_at(2)
    assert len(collection.changes_since(collection.floor)) == HISTORY


def test_nothing_before_the_opening_can_be_watched() -> None:
    store = Store()
    store.create("namespaces", "default", pod("default"))
    store.open()
    assert store.collection("pods").changes_since(store.version) == []
    with pytest.raises(ExpiredVersionError, match=r"too old resource version: 1 \(2\)"):
        store.collection("pods").changes_since(1)


def test_a_watcher_gets_the_changes_below_its_prefix_in_order() -> None:
    async def main() -> list[tuple[str, str]]:
        store = Store()
        watcher = store.collection("pods").subscribe("a/")
        store.create("pods", "a/x", pod("x"))
        store.create("pods", "b/x", pod("x"))
        store.delete("pods", "a/x")
        await watcher.wait()
        return [(change.type, change.object.key) for change in watcher.take()]

    assert asyncio.run(main()) == [("ADDED", "a/x"), ("DELETED", "a/x")]


def test_a_watcher_that_falls_behind_is_dropped_and_others_are_not() -> None:
    async def main() -> None:
        store = Store()
        collection = store.collection("pods")
        slow, fast = collection.subscribe(limit=2), collection.subscribe()
        for name in "abc":
            store.create("pods", f"d/{name}", pod(name))
        await slow.wait()
        assert slow.dropped and slow.take() == []
        assert not fast.dropped and len(fast.take()) == 3

    asyncio.run(main())


def test_waiting_ends_with_a_change_or_with_the_time() -> None:
    async def main() -> None:
        store = Store()
        watcher = store.collection("pods").subscribe()
        await watcher.wait(0)
        assert watcher.take() == []
        waiting = asyncio.ensure_future(watcher.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        store.create("pods", "d/a", pod("a"))
        await waiting

    asyncio.run(main())


def test_the_line_of_a_change_is_made_once() -> None:
    store = Store()
    store.create("pods", "d/a", pod("a"))
    change = store.collection("pods").changes_since(1)[0]
    assert change.line is change.line
    assert change.line == b'{"type":"ADDED","object":' + change.object.raw + b"}\n"
