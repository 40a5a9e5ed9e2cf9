"""Serialise per device, not per node: claims on different devices are prepared side by side.

Locks are taken in one global order, so that claims whose devices overlap cannot wait for each other in a circle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from drakkar.api.identities import DeviceKey


class DeviceLocks:
    """One lock per device, made when first needed and dropped when nobody wants it.

    `waited` hears the seconds that each `holding` had to wait.
    """

    def __init__(self, waited: Callable[[float], None] = lambda _: None) -> None:
        self._waited = waited
        self._locks: dict[DeviceKey, _Lock] = {}

    def holding(self, devices: Iterable[DeviceKey]) -> _Holding:
        """A context (`async with`) that holds every device of `devices`."""
        return _Holding(self._locks, sorted(set(devices)), self._waited)


class _Lock(asyncio.Lock):
    """The lock of a device; `users` hold it or wait for it."""

    users = 0


class _Holding:
    """Takes the locks of `devices` in their order. A class, not a generator: every prepare goes through it twice."""

    __slots__ = ("_devices", "_held", "_locks", "_waited")

    def __init__(
        self, locks: dict[DeviceKey, _Lock], devices: list[DeviceKey], waited: Callable[[float], None]
    ) -> None:
        self._locks, self._devices, self._waited = locks, devices, waited
        self._held: list[DeviceKey] = []

    async def __aenter__(self) -> None:
        begun = time.monotonic()
        try:
            for device in self._devices:
                await self._take(device)
            self._waited(time.monotonic() - begun)
        except BaseException:
            self._give_back()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    async def _take(self, device: DeviceKey) -> None:
        lock = self._locks.get(device)
        if lock is None:
            lock = self._locks[device] = _Lock()
        lock.users += 1
        try:
            await lock.acquire()
        except BaseException:
            self._drop(device, lock)
            raise
        self._held.append(device)

    def _give_back(self) -> None:
        while self._held:
            device = self._held.pop()
            lock = self._locks[device]
            lock.release()
            self._drop(device, lock)

    def _drop(self, device: DeviceKey, lock: _Lock) -> None:
        lock.users -= 1
        if not lock.users:
            del self._locks[device]
