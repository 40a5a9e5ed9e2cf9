"""Writes that the informers do not show yet.

A controller that counts its pods in a cache would create them twice if it looked again before the cache has caught up.
It therefore notes what it wrote and waits until every one of these writes has come back as an event
(`ControllerExpectations` in Kubernetes).
"""

from __future__ import annotations

from collections.abc import Hashable

from drakkar.cluster.controllers import pods
from drakkar.cluster.controllers.controller import Key
from drakkar.cluster.controllers.owners import Object, controller_of
from drakkar.kube.clock import Clock

_GIVE_UP = 300.0


class Expectations:
    """Created and deleted UIDs still to be seen, per owner key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Hashable, dict[str, float]] = {}
        self._seen_first: dict[str, float] = {}

    def created(self, key: Hashable, uid: str) -> None:
        """An object was created for `key`."""
        if self._seen_first.pop("+" + uid, None) is None:
            self._open.setdefault(key, {})["+" + uid] = self._clock.monotonic()

    def deleted(self, key: Hashable, uid: str) -> None:
        """An object of `key` was deleted, or marked for it."""
        if self._seen_first.pop("-" + uid, None) is None:
            self._open.setdefault(key, {})["-" + uid] = self._clock.monotonic()

    def observe(self, owner_kind: str, event: str, old: Object | None, new: Object | None) -> Key | None:
        """Note what the informer shows of a pod; the key of its owner, or None unless an `owner_kind` controls it."""
        pod = new or old
        owner = controller_of(pod) if pod else None
        if pod is None or owner is None or owner["kind"] != owner_kind:
            return None
        key, uid = (pod["metadata"]["namespace"], owner["name"]), pod["metadata"]["uid"]
        if new is None or pods.is_deleting(new):
            self._see(key, "-" + uid)
            self._see(key, "+" + uid, remember=False)
        elif event == "ADDED":
            self._see(key, "+" + uid)
        return key

    def met(self, key: Hashable) -> bool:
        """Whether the cache shows everything that was written for `key`."""
        waiting = self._open.get(key)
        if waiting:
            limit = self._clock.monotonic() - _GIVE_UP
            for mark in [mark for mark, since in waiting.items() if since < limit]:
                del waiting[mark]
        return not waiting

    def forget(self, key: Hashable) -> None:
        """The owner is gone."""
        self._open.pop(key, None)

    def _see(self, key: Hashable, mark: str, *, remember: bool = True) -> None:
        waiting = self._open.get(key)
        if waiting is not None and waiting.pop(mark, None) is not None:
            if not waiting:
                del self._open[key]
        elif remember:
            # The event may overtake the answer to the request; note it so that `created` does not wait for ever.
            self._seen_first[mark] = self._clock.monotonic()
            if len(self._seen_first) > 4096:
                self._seen_first.pop(next(iter(self._seen_first)))
