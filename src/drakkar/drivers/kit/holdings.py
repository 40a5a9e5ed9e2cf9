"""Who holds which devices of a node, and who stands in the way of a claim.

The ledger knows which claims hold what; the kind knows which devices are the same hardware and which may be shared
(KEP-4815, KEP-5075). A holder that is going away is waited for (`handover`), one that stays is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from drakkar.api.identities import DeviceKey
from drakkar.drivers.kit import handover
from drakkar.drivers.kit.allocation import AllocatedClaim, AllocatedDevice, from_journal
from drakkar.drivers.kit.kind import DeviceKind, PreparationError
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.preparation.claims import ClaimLedger, DeviceBusyError, HeldClaim


class Holdings:
    """What claims hold of the devices of `kind` on node `node_name`, by the present `ledger`."""

    def __init__(
        self, kind: DeviceKind, node_name: str, ledger: Callable[[], ClaimLedger], client: Client, clock: Clock
    ) -> None:
        self._kind, self._node_name, self._ledger = kind, node_name, ledger
        self._client, self._clock = client, clock
        self._releases = handover.Releases()

    def of(self, claim: AllocatedClaim) -> tuple[list[DeviceKey], list[DeviceKey]]:
        """The devices that the claim holds, and those of them that others may hold, too."""
        exclusive = [key for key, device in self._keys(claim) if not device.admin_access]
        return exclusive, [key for key, one in self._keys(claim) if key in exclusive and self._shares(claim, one)]

    def hardware(self, claim: AllocatedClaim) -> list[DeviceKey]:
        """What to lock: the hardware that the claim's devices are made of."""
        return [self._key(name) for name in {self._kind.hardware(device.device) for device in claim.devices}]

    def only_its(self, claim: AllocatedClaim) -> AllocatedClaim:
        """The claim with those devices only that no other claim holds: the others must stay as they are set up."""
        devices = tuple(
            device
            for key, device in self._keys(claim)
            if all(holder.claim.uid == claim.claim.uid for holder in self._ledger().holders(key))
        )
        return replace(claim, devices=devices)

    def check(self, claim: AllocatedClaim) -> None:
        """Raises `DeviceBusyError` if another claim stands in the way, `PreparationError` if it shares differently."""
        busy = self._in_the_way(claim)
        if busy is not None:
            raise DeviceBusyError(self._key(busy[0]), busy[1])

    async def await_release(self, claim: AllocatedClaim, deadline: float) -> None:
        """Returns when nothing stands in the way of `claim`; raises when a holder stays or the time is over."""
        while True:
            busy = self._in_the_way(claim)
            if busy is None:
                return
            device, holder = busy
            reason = await handover.why_it_stays(self._client, self._clock, holder, until=deadline)
            left = deadline - self._clock.monotonic()
            if self._in_the_way(claim) != busy:
                continue
            if reason or left <= 0:
                raise PreparationError(
                    f"requested device {device} is already allocated to different claim {holder.claim.uid}"
                    f" ({holder.claim.namespace}/{holder.claim.name}): "
                    + (reason or f"it was not released within {handover.WAIT_SECONDS:.0f} s"),
                    reason="DeviceBusy",
                    subject=str(self._key(device)),
                )
            await self._releases.wait(self._clock, left)

    def announce_release(self) -> None:
        """A claim was released just now: who waits looks again."""
        self._releases.announce()

    def _in_the_way(self, claim: AllocatedClaim) -> tuple[str, HeldClaim] | None:
        for key, device in self._keys(claim):
            if device.admin_access:
                continue
            shared = self._shares(claim, device)
            for holder in self._ledger().holders(key):
                if holder.claim.uid == claim.claim.uid:
                    continue
                if not (shared and key in holder.shared):
                    return device.device, holder
                self._check_compatible(claim, holder, device.device)
            overlapping = self._kind.overlapping(device.device)
            for holder in self._ledger().claims.values() if overlapping else ():
                for other in holder.devices:
                    if other.device in overlapping and holder.claim.uid != claim.claim.uid:
                        return other.device, holder
        return None

    def _check_compatible(self, claim: AllocatedClaim, holder: HeldClaim, device: str) -> None:
        if not self._kind.compatible(claim, from_journal(holder.claim, holder.detail), device):
            raise PreparationError(
                f"requested device {device} has conflicting configuration with already prepared claim"
                f" {holder.claim.uid}",
                reason="ConflictingConfiguration",
                subject=str(self._key(device)),
            )

    def _shares(self, claim: AllocatedClaim, device: AllocatedDevice) -> bool:
        return device.share_id is not None or device.device in self._kind.shareable(claim)

    def _key(self, device: str) -> DeviceKey:
        return DeviceKey(self._kind.driver, self._node_name, device)

    def _keys(self, claim: AllocatedClaim) -> list[tuple[DeviceKey, AllocatedDevice]]:
        return [(self._key(device.device), device) for device in claim.devices]
