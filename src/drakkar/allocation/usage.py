"""Who holds which device: the allocated state of all claims, kept up to date one claim at a time.

Rules of the 1.37 scheduler: results with admin access do not count, a result with a share ID takes only its consumed
capacity, any other result takes the whole device. Claims whose allocation is decided but not yet seen through the API
(in flight) are *assumed* and count in the same way. Sources: KEP-4381, KEP-5075, KEP-5018.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from drakkar.allocation.shapes import AllocatedClaim, check
from drakkar.allocation.units import billionths
from drakkar.api.identities import DeviceKey

ClaimKey = tuple[str, str]


class Holder(NamedTuple):
    """A claim that holds a device, and the pods it is reserved for."""

    namespace: str
    name: str
    uid: str
    reserved_for: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def people(self) -> str:
        """The pods that use the claim, or the claim itself if nobody does: `team-a/pod0`."""
        if not self.reserved_for:
            return f"claim {self}"
        return ", ".join(f"{self.namespace}/{name}" for name in self.reserved_for)


class ClaimUse:
    """What one allocated claim takes."""

    __slots__ = ("assumed", "holder", "results")

    def __init__(self, claim: Mapping[str, Any], *, assumed: bool = False) -> None:
        check(claim, AllocatedClaim, "ResourceClaim")
        metadata, status = claim.get("metadata") or {}, claim.get("status") or {}
        reserved = tuple(entry.get("name") or "" for entry in status.get("reservedFor") or ())
        self.holder = Holder(
            metadata.get("namespace") or "", metadata.get("name") or "", metadata.get("uid") or "", reserved
        )
        self.assumed = assumed
        devices = (status.get("allocation") or {}).get("devices") or {}
        self.results: list[Mapping[str, Any]] = [
            result for result in devices.get("results") or () if result.get("adminAccess") is not True
        ]
        for result in self.results:
            for amount in (result.get("consumedCapacity") or {}).values():
                billionths(amount)


class DeviceUse:
    """How one device is in use: as a whole by some claims, in shares by others."""

    __slots__ = ("consumed", "shares", "wholes")

    def __init__(self) -> None:
        self.wholes: dict[ClaimKey, int] = {}
        self.shares: dict[tuple[ClaimKey, int], Mapping[str, int]] = {}
        self.consumed: dict[str, int] = {}  # by capacity, in billionths

    @property
    def empty(self) -> bool:
        return not self.wholes and not self.shares

    def holders(self) -> Iterator[ClaimKey]:
        seen = dict.fromkeys(self.wholes)
        seen.update((key, None) for key, _ in self.shares)
        return iter(seen)

    def add(self, claim: ClaimKey, number: int, result: Mapping[str, Any]) -> None:
        if result.get("shareID") is None:
            self.wholes[claim] = self.wholes.get(claim, 0) + 1
            return
        amounts = {name: billionths(value) for name, value in (result.get("consumedCapacity") or {}).items()}
        self.shares[(claim, number)] = amounts
        for name, amount in amounts.items():
            self.consumed[name] = self.consumed.get(name, 0) + amount

    def remove(self, claim: ClaimKey, number: int, result: Mapping[str, Any]) -> None:
        if result.get("shareID") is None:
            left = self.wholes.get(claim, 0) - 1
            if left > 0:
                self.wholes[claim] = left
            else:
                self.wholes.pop(claim, None)
            return
        for name, amount in self.shares.pop((claim, number), {}).items():
            self.consumed[name] -= amount


class Usage:
    """The devices in use in the whole cluster."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, ClaimUse] = {}
        self.devices: dict[DeviceKey, DeviceUse] = {}
        self.pools: dict[tuple[str, str], dict[str, DeviceUse]] = {}
        self.wholes: dict[tuple[str, str], int] = {}  # by pool: devices that some claim holds as a whole

    def replace(self, key: ClaimKey, use: ClaimUse | None) -> list[DeviceKey]:
        """Put a claim's use in force (None: it holds nothing); returns the devices whose use changed."""
        before = self.claims.pop(key, None)
        if use is not None and use.results:
            self.claims[key] = use
        if before is not None and use is not None and before.results == use.results:
            return []
        changed: dict[DeviceKey, None] = {}
        for number, device, result in _results(before):
            found = self.devices.get(device)
            if found is not None:
                whole = bool(found.wholes)
                found.remove(key, number, result)
                self._count(device, whole, bool(found.wholes))
                changed[device] = None
        for number, device, result in _results(use):
            found = self.devices.get(device)
            if found is None:
                found = self.devices[device] = DeviceUse()
                self.pools.setdefault((device.driver, device.pool), {})[device.device] = found
            whole = bool(found.wholes)
            found.add(key, number, result)
            self._count(device, whole, bool(found.wholes))
            changed[device] = None
        for device in changed:
            if self.devices[device].empty:
                del self.devices[device]
                pool = self.pools[(device.driver, device.pool)]
                del pool[device.device]
                if not pool:
                    del self.pools[(device.driver, device.pool)]
                    self.wholes.pop((device.driver, device.pool), None)
        return list(changed)

    def _count(self, device: DeviceKey, before: bool, after: bool) -> None:
        if before is not after:
            pool = (device.driver, device.pool)
            self.wholes[pool] = self.wholes.get(pool, 0) + (1 if after else -1)

    def holders(self, device: DeviceKey) -> list[Holder]:
        """The claims that hold a device, in the order in which they came."""
        use = self.devices.get(device)
        return [] if use is None else [self.claims[key].holder for key in use.holders() if key in self.claims]


def _results(use: ClaimUse | None) -> Iterable[tuple[int, DeviceKey, Mapping[str, Any]]]:
    if use is None:
        return
    for number, result in enumerate(use.results):
        yield (
            number,
            DeviceKey(result.get("driver") or "", result.get("pool") or "", result.get("device") or ""),
            result,
        )
