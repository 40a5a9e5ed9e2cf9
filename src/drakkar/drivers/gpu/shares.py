"""A claim's share of GPU memory, and what holds its containers to it.

The scheduler's accounts (KEP-5075) say how much memory a claim has; nothing in Kubernetes makes a container keep to it.
From driver branch R615 on the driver itself does, by control group: each container gets a hook with the claim's share.
MPS can bound what each of its clients pins, so it is the second best, and taken only when the administrator says so,
since every share then needs a daemon. Else nothing does, and the slice says that. MIG devices need none of it: the
hardware bounds them, but a share of one is not bound by a group, as the driver's limits are for whole GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drakkar.drivers.kit import AllocatedClaim, AllocatedDevice, PreparationError
from drakkar.kube.quantity import Quantity, QuantityError
from drakkar.vendors.nvidia.machine import NvidiaMachine
from drakkar.vendors.nvidia.published import Enforcement, WantedEnforcement

_MEBIBYTE = 1 << 20


def share(devices: Iterable[AllocatedDevice], name: str) -> int:
    """How much memory these allocated devices have of device `name`, in whole MiB; 0 where no amount was asked for.

    Raises:
        PreparationError: the consumed capacity is no quantity.
    """
    total = 0
    for device in devices:
        text = (device.consumed_capacity or {}).get("memory")
        if device.device != name or text is None or device.admin_access:
            continue
        try:
            amount = Quantity.from_json(text).value()
        except (QuantityError, TypeError):
            raise PreparationError(
                f"device {name}: consumedCapacity.memory {text!r} is no quantity", reason="InvalidShare", subject=name
            ) from None
        total += max(amount // _MEBIBYTE, 1) if amount > 0 else 0
    return total


class MemoryEnforcement:
    """What holds the claims of one machine to their shares, as `wanted` and as far as the machine can."""

    def __init__(self, machine: NvidiaMachine, wanted: WantedEnforcement) -> None:
        self._machine, self._wanted = machine, wanted

    def of(self, kind: str) -> Enforcement:
        """What holds claims on devices of type `kind` (gpu, mig)."""
        if self._wanted in ("mps", "none"):
            return self._wanted
        return "none" if kind != "gpu" or self._machine.why_no_memory_limits() else "cgroup"

    def by_kind(self) -> Mapping[str, Enforcement]:
        """`of` for every type that can be shared."""
        return {kind: self.of(kind) for kind in ("gpu", "mig")}

    def missing(self) -> str:
        """Why what was demanded cannot be had on this machine; "" if it can, or nothing was demanded."""
        if self._wanted != "cgroup":
            return ""
        reason = self._machine.why_no_memory_limits()
        return f"shares of memory cannot be enforced: {reason}" if reason else ""

    def check(self, kind: str, name: str) -> None:
        """Refuses a share of device `name` that must be enforced and cannot be. Raises PreparationError."""
        reason = self.missing()
        if not reason and self._wanted == "cgroup" and self.of(kind) != "cgroup":
            reason = "shares of memory cannot be enforced: the driver limits memory of whole GPUs only"
        if reason:
            raise PreparationError(f"device {name}: {reason}", reason="NotEnforced", subject=name)

    def hooks(self, claim: AllocatedClaim, name: str, kind: str, uuid: str) -> list[Mapping[str, Any]]:
        """The hooks with which a container of `claim` is held to its share of the device; none if nothing does it."""
        amount = share(claim.devices, name)
        if not amount or self.of(kind) != "cgroup":
            return []
        return [self._machine.memory_limit_hook(uuid, amount)]
