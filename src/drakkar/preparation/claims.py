"""What a driver has promised to which claim, over crashes.

A claim is *preparing* from its intent on, *prepared* once its completion is written, and gone after release. The intent
is written before the world is touched, so whatever a killed driver left behind can be found and undone; it is durable
before anything is touched that the next start would not sweep by itself, as it does CDI files that nobody knows.

Only the intent needs a barrier. A record survives the death of the process the moment it is written; a barrier guards
against the death of the machine, and after that the boot id differs, nothing is prepared any more whatever the last
records said, and all that matters is to know which claims may have left something behind: those with an intent.

A device is exclusive unless its holder takes it shared or as administrator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drakkar.api.identities import DeviceKey
from drakkar.errors import DrakkarError
from drakkar.preparation.journal import Damage, Journal, Record
from drakkar.preparation.values import ClaimRef, ClaimUID, PreparedDevice

_COMPACT_BYTES = 256 * 1024

PREPARING, PREPARED = "preparing", "prepared"


class DeviceBusyError(DrakkarError):
    """The device is held by another claim, `holder`."""

    def __init__(self, device: DeviceKey, holder: HeldClaim) -> None:
        super().__init__(f"device {device} is held by claim {holder.claim}", reason="DeviceBusy", subject=str(device))
        self.device, self.holder = device, holder


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """One claim as the journal knows it. `detail` is the driver's own JSON; `shared` devices may have other holders."""

    claim: ClaimRef
    state: str
    devices: tuple[DeviceKey, ...]
    shared: tuple[DeviceKey, ...] = ()
    prepared: tuple[PreparedDevice, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)


class ClaimLedger:
    """The claims on this node, kept in the journal at `path`.

    After a reboot (another `boot_id`) nothing is prepared any more; `forgotten` then lists what was.
    """

    def __init__(self, path: Path, *, boot_id: str) -> None:
        self._journal = Journal(path, boot_id=boot_id)
        self.damage: Damage | None = self._journal.damage
        self.claims: dict[ClaimUID, HeldClaim] = {}
        self.forgotten: list[HeldClaim] = []
        for record in self._journal.records:
            self._replay(record)
        self._journal.records.clear()
        if not self._journal.same_boot:
            self.forgotten, self.claims = list(self.claims.values()), {}
            self._journal.doubtful = False
            self._journal.compact([])
        self._holders: dict[DeviceKey, dict[ClaimUID, bool]] = {}
        for held in self.claims.values():
            self._hold(held)

    @property
    def doubtful(self) -> bool:
        """Whether a damaged journal may have lost that some of the claims were released, until `trust` is called."""
        return self._journal.doubtful

    def trust(self) -> None:
        """The claims are those that are held. Raises `JournalError`."""
        self._journal.doubtful = False
        self._journal.compact(map(_record, self.claims.values()))

    def holders(self, device: DeviceKey) -> list[HeldClaim]:
        """The claims that hold `device`."""
        return [self.claims[uid] for uid in self._holders.get(device, ())]

    def _check(self, claim: ClaimRef, devices: Iterable[DeviceKey], shared: Iterable[DeviceKey] = ()) -> None:
        """Raise `DeviceBusyError` if another claim stands in the way of this one."""
        shared = set(shared)
        for device in devices:
            for uid, holder_shares in self._holders.get(device, {}).items():
                if uid != claim.uid and not (holder_shares and device in shared):
                    raise DeviceBusyError(device, self.claims[uid])

    def begin(
        self,
        claim: ClaimRef,
        devices: Sequence[DeviceKey],
        *,
        shared: Sequence[DeviceKey] = (),
        detail: Mapping[str, Any] | None = None,
    ) -> Awaitable[HeldClaim]:
        """Write the intent and hold the devices, at once; what is returned is to be awaited, for its durability.

        Raises:
            DeviceBusyError, JournalError: at once or when awaited; the claim holds what it held before.
        """
        self._check(claim, devices, shared)
        held = HeldClaim(claim, PREPARING, tuple(devices), tuple(shared), (), dict(detail or {}))
        barrier = self._journal.append(_record(held))
        before = self.claims.get(claim.uid)
        self._set(held)
        return self._durable(held, before, barrier)

    async def _durable(self, held: HeldClaim, before: HeldClaim | None, barrier: Awaitable[None]) -> HeldClaim:
        try:
            await barrier
        except BaseException:
            self._drop(held.claim.uid)
            if before is not None:
                self._set(before)
            raise
        return held

    async def complete(
        self, uid: ClaimUID, prepared: Sequence[PreparedDevice], *, detail: Mapping[str, Any] | None = None
    ) -> HeldClaim:
        """Write that the claim's devices are ready."""
        before = self.claims[uid]
        held = HeldClaim(
            before.claim,
            PREPARED,
            before.devices,
            before.shared,
            tuple(prepared),
            before.detail if detail is None else dict(detail),
        )
        self._journal.append_now(_record(held))
        self._set(held)
        return held

    async def release(self, uid: ClaimUID) -> None:
        """Write that nothing of the claim is left; unknown claims are fine."""
        if uid not in self.claims:
            return
        self._journal.append_now({"op": "released", "uid": uid})
        self._drop(uid)
        if self._journal.size > _COMPACT_BYTES and self._journal.size > 4096 * (len(self.claims) + 1):
            self._journal.compact(map(_record, self.claims.values()))

    def catch_up(self) -> None:
        """Take over what another instance of the driver wrote (`Journal.catch_up`); between calls only."""
        replaced, records = self._journal.catch_up()
        if not replaced and not records:
            return
        if replaced:
            self.claims = {}
        for record in records:
            self._replay(record)
        self._holders = {}
        for held in self.claims.values():
            self._hold(held)

    def close(self) -> None:
        self._journal.close()

    def _replay(self, record: Record) -> None:
        uid = ClaimUID(record.get("uid", ""))
        if record.get("op") == "released":
            self.claims.pop(uid, None)
        elif record.get("op") in (PREPARING, PREPARED):
            self.claims[uid] = _held(record)

    def _set(self, held: HeldClaim) -> None:
        self._drop(held.claim.uid)
        self.claims[held.claim.uid] = held
        self._hold(held)

    def _hold(self, held: HeldClaim) -> None:
        for device in held.devices:
            self._holders.setdefault(device, {})[held.claim.uid] = device in held.shared

    def _drop(self, uid: ClaimUID) -> None:
        held = self.claims.pop(uid, None)
        for device in held.devices if held else ():
            holders = self._holders.get(device, {})
            holders.pop(uid, None)
            if not holders:
                self._holders.pop(device, None)


def _record(held: HeldClaim) -> Record:
    return {
        "op": held.state,
        "uid": held.claim.uid,
        "name": held.claim.name,
        "namespace": held.claim.namespace,
        "devices": [[device.driver, device.pool, device.device] for device in held.devices],
        "shared": [[device.driver, device.pool, device.device] for device in held.shared],
        "prepared": [
            [list(each.request_names), each.pool_name, each.device_name, list(each.cdi_device_ids), each.share_id]
            for each in held.prepared
        ],
        "detail": held.detail,
    }


def _held(record: Record) -> HeldClaim:
    return HeldClaim(
        ClaimRef(ClaimUID(record["uid"]), record["name"], record["namespace"]),
        record["op"],
        tuple(DeviceKey(*device) for device in record["devices"]),
        tuple(DeviceKey(*device) for device in record["shared"]),
        tuple(
            PreparedDevice(tuple(requests), pool, device, tuple(ids), share)
            for requests, pool, device, ids, share in record["prepared"]
        ),
        record["detail"],
    )
