"""The one seam of the kit: what varies from device to device.

Everything else (slices, sockets, journal, hand-over, CDI files, restart) is the same for every driver and lives in
`NodeDriver`. Only `pool` and `edits` must be written; the rest has defaults that suit a device which needs no setting
up and can only be had whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drakkar.drivers.kit.allocation import AllocatedClaim
from drakkar.errors import DrakkarError
from drakkar.inventory.slices import Pool


class PreparationError(DrakkarError):
    """A claim cannot be prepared; the text reaches the pod's events through the kubelet."""


@dataclass(frozen=True, slots=True)
class Edits:
    """CDI container edits: `common` once per container, `devices` by device name (CDI's own JSON)."""

    devices: Mapping[str, Mapping[str, Any]]
    common: Mapping[str, Any] = field(default_factory=dict)
    version: str = "0.5.0"


@dataclass(frozen=True, slots=True)
class Health:
    """Health of one device: HEALTHY, UNHEALTHY or UNKNOWN, with a sentence for the pod's status (KEP-4680)."""

    status: str
    message: str = ""


class DeviceKind(ABC):
    """Devices of one driver on one node. Methods run on the event loop and must not block it."""

    #: The driver's name, a DNS subdomain: `lamps.example.com`.
    driver: str

    #: The first word of its metrics, and the values of their label `device_type`.
    metrics_prefix: str = "drakkar_dra"
    device_types: tuple[str, ...] = ("device",)

    #: Whether `pool` depends on which claims hold devices: it is then asked again after each prepare and unprepare.
    follows_claims = False

    @abstractmethod
    def pool(self) -> Pool | None:
        """What to publish now; None while the hardware is not ready (nothing is published then, see `not_ready`)."""

    @abstractmethod
    def edits(self, claim: AllocatedClaim) -> Edits:
        """What a container needs to have the claim's devices. Must give the same after a restart.

        Raises:
            PreparationError: a device is unknown or unusable, or the parameters are wrong.
        """

    def not_ready(self) -> str:
        """Why `pool` is None, in a few words."""
        return "the hardware is not ready"

    def check(self, claim: AllocatedClaim) -> None:
        """Refuses what must never be prepared (parameters, unhealthy devices), before anything is written."""
        self.edits(claim)

    def shareable(self, claim: AllocatedClaim) -> frozenset[str]:
        """Names of devices that other claims may hold at the same time (beside those with a share of their own)."""
        return frozenset()

    def overlapping(self, device: str) -> frozenset[str]:
        """Names of other devices made of the same hardware: while `device` is held, they cannot be (partitions)."""
        return frozenset()

    def hardware(self, device: str) -> str:
        """The name of the piece of hardware that `device` is, or is a part of: claims on one piece take turns."""
        return device

    def compatible(self, claim: AllocatedClaim, other: AllocatedClaim, device: str) -> bool:
        """Whether two claims may share `device` with the parameters they have."""
        return True

    def needs_activation(self, claim: AllocatedClaim) -> bool:
        """Whether `activate` has anything to do for `claim`; by default if it is overridden."""
        return type(self).activate is not DeviceKind.activate

    def notes(self, claim: AllocatedClaim, *, ours: bool = True) -> Mapping[str, Any]:
        """What `deactivate` will have to know of the hardware as it is now; kept in the journal with the intent.

        `ours` False: another driver of this name has set the claim up already, and it is taken over.
        """
        return {}

    async def activate(self, claim: AllocatedClaim) -> None:
        """Sets the hardware up; called after the intent is durable, must be idempotent."""
        return

    async def deactivate(self, claim: AllocatedClaim) -> None:
        """Undoes `activate`, also of one that was interrupted; must be idempotent.

        `claim` names only the devices that no other claim shares any more.
        """
        return

    def restore(self, claim: AllocatedClaim) -> None:
        """Looks, when the kubelet asks again for a prepared claim, that its devices are still there; must be quick.

        Raises:
            PreparationError: one is gone and cannot be put back.
        """
        return

    async def sweep(self, held: Sequence[AllocatedClaim]) -> None:
        """Removes what was set up for claims that are not `held` any more; called once at the start."""
        return

    def device_type(self, device: str) -> str:
        """Which of `device_types` the device is."""
        return self.device_types[0]

    def edits_token(self) -> object:
        """A value that changes when `edits` would answer differently for claims that are prepared already."""
        return None

    def attributes(self, claim: AllocatedClaim) -> Mapping[str, Mapping[str, Any]]:
        """What a container may read of the claim's devices, by device name (KEP-5304); by default what is published."""
        pool = self.pool()
        wanted = {device.device for device in claim.devices}
        return {one.name: one.attributes for one in (pool.devices if pool else ()) if one.name in wanted}

    def health(self) -> Mapping[str, Health]:
        """Health by device name; devices that are not named are UNKNOWN."""
        return {}
