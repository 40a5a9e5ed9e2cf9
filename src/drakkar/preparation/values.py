"""The values that cross the border of a driver: what kubelet names, what a driver answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, Protocol

ClaimUID = NewType("ClaimUID", str)


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """What kubelet sends of a claim; the driver fetches the claim itself and checks the UID."""

    uid: ClaimUID
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device made ready; `request_names` are base names, `cdi_device_ids` qualified CDI names."""

    request_names: tuple[str, ...]
    pool_name: str
    device_name: str
    cdi_device_ids: tuple[str, ...]
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class PrepareResult:
    """Either devices or an error; an error is retried by kubelet."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """`health` is HEALTHY, UNHEALTHY or UNKNOWN; `updated` in seconds since the epoch, `timeout` in seconds."""

    pool_name: str
    device_name: str
    health: str = "HEALTHY"
    updated: int = 0
    timeout: int = 0
    message: str = ""


class PluginHandler(Protocol):
    """What a driver implements. Both calls must be idempotent; unprepare knows only uid, name and namespace."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareResult]:
        """Make the claims' devices ready."""
        ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, str]:
        """Undo it; the value is an error, empty for success."""
        ...

    def health(self) -> AsyncIterator[list[DeviceHealth]]:
        """The health of all devices, whole, whenever it changes; must begin with the present state."""
        ...


@dataclass(slots=True)
class HealthBoard:
    """Present health for any number of streams: `publish` replaces it, `watch` yields it now and at every change."""

    devices: list[DeviceHealth] = field(default_factory=list)
    _waiting: list[object] = field(default_factory=list)

    def publish(self, devices: Sequence[DeviceHealth]) -> None:
        import asyncio

        self.devices = list(devices)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if isinstance(future, asyncio.Future) and not future.done():
                future.set_result(None)

    async def watch(self) -> AsyncIterator[list[DeviceHealth]]:
        import asyncio

        while True:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            yield list(self.devices)
            await future
