"""Taking a node over from another driver of the same name while its pods run, and giving it back.

What the other driver prepared is in its checkpoint; what is true is in the API. A claim is taken over when both agree:
it exists with that UID, is allocated on this node, and the devices are the same. Everything else is left out and told,
since a claim held for nobody keeps a device from everybody. Nothing is set up again: the hardware and the containers
are as they were, only the CDI file becomes ours.

On the way back the other driver finds its checkpoint without the claims that were released meanwhile, and CDI files
under the names that it writes and removes itself. Claims that only we know it prepares again when kubelet asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drakkar.api.identities import DeviceKey
from drakkar.drivers.kit.allocation import AllocatedClaim, allocated_claim
from drakkar.drivers.kit.cdi_files import ClaimFiles
from drakkar.errors import DrakkarError
from drakkar.kube.apierrors import ApiError
from drakkar.kube.client import Client
from drakkar.kube.resources import RESOURCE_CLAIMS
from drakkar.preparation.claims import ClaimLedger, HeldClaim
from drakkar.preparation.values import ClaimRef, ClaimUID, PreparedDevice

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeftClaim:
    """A claim in the other driver's checkpoint; `completed` False means that preparing it was interrupted.

    `name` and `namespace` are empty where the checkpoint does not tell them.
    """

    uid: ClaimUID
    completed: bool
    prepared: tuple[PreparedDevice, ...]
    name: str = ""
    namespace: str = ""


class Predecessor(Protocol):
    """The other driver's files."""

    def claims(self) -> Sequence[LeftClaim]:
        """What it had prepared, nothing when that was taken over before. Raises `DrakkarError`: unreadable."""
        ...

    def taken_over(self) -> None:
        """Remember that the present checkpoint has been dealt with."""
        ...

    def hand_back(self, held: Collection[ClaimUID]) -> None:
        """Leave of its claims those that are still `held`."""
        ...


async def take_over(
    predecessor: Predecessor,
    ledger: ClaimLedger,
    files: ClaimFiles,
    client: Client,
    *,
    driver: str,
    pool: str,
    keys: Callable[[AllocatedClaim], tuple[Sequence[DeviceKey], Sequence[DeviceKey]]],
    noted: Callable[[AllocatedClaim], AllocatedClaim],
    undo: Callable[[AllocatedClaim], Any],
    tell: Callable[[str, str, str], None],
) -> list[ClaimRef]:
    """Take the predecessor's claims into `ledger`; returns them.

    Args:
        keys: the ledger's keys of a claim's devices, and those of them that others may hold, too.
        noted: the claim with what giving its devices back will need to know.
        undo: takes back what an interrupted prepare may have left of a claim.
        tell: hears (type, reason, message) of what an administrator should know.

    Raises:
        DrakkarError: the checkpoint or the API cannot be read; nothing was taken over.
    """
    left = [one for one in predecessor.claims() if one.uid not in ledger.claims]
    if not left:
        return []
    known = await _known(client, left)
    taken = []
    for one in left:
        found = known.get(one.uid)
        if found is None:
            _log.info("claim %s of the other driver is gone from the API; its files are removed", one.uid)
            continue
        ref = ClaimRef(one.uid, found["metadata"]["name"], found["metadata"]["namespace"])
        try:
            claim = noted(allocated_claim(ref, found, driver=driver, pool=pool))
            if not one.completed:
                await undo(claim)
                tell("Normal", "PrepareTakenBack", f"{ref}: the other driver was interrupted; what it left is undone")
                continue
            _compare(claim, one)
            devices, shared = keys(claim)
            await ledger.begin(ref, devices, shared=shared, detail=claim.to_json())
            await ledger.complete(one.uid, one.prepared)
            files.adopt(one.uid)
        except DrakkarError as error:
            tell("Warning", "ClaimNotTakenOver", f"{ref}: {error}")
            continue
        taken.append(ref)
    if taken:
        tell("Normal", "ClaimsTakenOver", f"{len(taken)} prepared claims of the other driver run on")
    return taken


async def _known(client: Client, left: Sequence[LeftClaim]) -> dict[str, Mapping[str, Any]]:
    """Those of the claims that the API still has, by UID. A driver may read claims; listing all is a right more, and
    asked for only where the checkpoint has no names.
    """
    if not all(one.name and one.namespace for one in left):
        try:
            return {claim["metadata"]["uid"]: claim for claim in (await client.list(RESOURCE_CLAIMS)).items}
        except ApiError as error:
            if error.status != 403:
                raise
            raise DrakkarError(
                "the other driver's checkpoint does not name its claims, and this driver may not list them",
                reason="ListForbidden",
                expected="the verb list on resourceclaims",
                next_step="install the chart with driver.adopt=true, or give the driver's account that right",
            ) from error
    found: dict[str, Mapping[str, Any]] = {}
    for one in left:
        try:
            claim = await client.get(RESOURCE_CLAIMS, one.name, one.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            continue
        found[claim["metadata"]["uid"]] = claim
    return found


async def hand_back(predecessor: Predecessor, ledger: ClaimLedger, files: ClaimFiles) -> list[HeldClaim]:
    """Leave the node to `predecessor`, with the claims that are held; returns them. Our driver must not run.

    Raises:
        DrakkarError: the other driver's checkpoint is damaged; nothing was changed.
    """
    held = list(ledger.claims.values())
    predecessor.hand_back(set(ledger.claims))
    files.hand_back()
    for claim in held:
        await ledger.release(claim.claim.uid)
    return held


def _compare(claim: AllocatedClaim, left: LeftClaim) -> None:
    allocated = sorted(device.device for device in claim.devices)
    prepared = sorted(device.device_name for device in left.prepared)
    if allocated != prepared:
        raise DrakkarError(
            f"prepared are {', '.join(prepared) or 'no devices'}, allocated {', '.join(allocated) or 'none'} here",
            reason="CheckpointDiffers",
        )
