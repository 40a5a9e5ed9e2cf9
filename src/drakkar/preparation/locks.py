"""Serialise per device, not per node: claims on different devices are prepared side by side.

Locks are taken in one global order, so that claims whose devices overlap cannot wait for each other in a circle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from drakkar.api.identities import DeviceKey


class DeviceLocks:
    """One lock per device, made when first needed and dropped when nobody wants it.

    `waited` hears the seconds that each `holding` had to wait.
    """

    def __init__(self, waited: Callable[[float], None] = lambda _: None) -> None:
        self._waited = waited
        self._locks: dict[DeviceKey, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def holding(self, devices: Iterable[DeviceKey]) -> AsyncIterator[None]:
        """Hold every device of `devices` for the length of the context."""
        begun = time.monotonic()
        async with AsyncExitStack() as stack:
            for device in sorted(set(devices)):
                await stack.enter_async_context(self._one(device))
            self._waited(time.monotonic() - begun)
            yield

    @asynccontextmanager
    async def _one(self, device: DeviceKey) -> AsyncIterator[None]:
        lock, users = self._locks.get(device, (asyncio.Lock(), 0))
        self._locks[device] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[device]
            if users == 1:
                del self._locks[device]
            else:
                self._locks[device] = (lock, users - 1)
