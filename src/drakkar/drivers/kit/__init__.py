"""The driver kit: slices, preparation and CDI for any device, in a few lines of its author's own.

An author writes a `DeviceKind` (which devices, and what a container must get to have one) and gives it to `NodeDriver`.
"""

from drakkar.drivers.kit.allocation import AllocatedClaim, AllocatedDevice, OpaqueConfig
from drakkar.drivers.kit.driver import NodeDriver
from drakkar.drivers.kit.kind import DeviceKind, Edits, Health, PreparationError

__all__ = [
    "AllocatedClaim",
    "AllocatedDevice",
    "DeviceKind",
    "Edits",
    "Health",
    "NodeDriver",
    "OpaqueConfig",
    "PreparationError",
]
