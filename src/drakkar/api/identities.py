"""The identity of a device in the whole cluster: driver, pool, device (KEP-4381), the same value in every room.

Together with the claim's UID and the node it runs through allocation, preparation, evidence and every log line.
"""

from __future__ import annotations

from typing import NamedTuple


class DeviceKey(NamedTuple):
    """A device in full; printed ``driver/pool/device``."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolKey(NamedTuple):
    """The identity of a pool: names are unique per driver only."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"
