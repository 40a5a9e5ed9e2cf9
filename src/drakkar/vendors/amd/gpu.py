"""An AMD GPU, or a partition of one, as discovery found it."""

from __future__ import annotations

from dataclasses import dataclass

from drakkar.hardware.machine import Device

#: The major of /dev/dri/card<N> and /dev/dri/renderD<M> (Linux: drm).
DRM_MAJOR = 226


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu(Device):
    """A whole GPU or one compute partition of it.

    `uuid` is the board's unique id in hexadecimal, with `-<partition>` behind it for a partition; where the board has
    none, the bus address stands in. `bus_id` is the PCI function, for a partition that of its GPU.

    Attributes:
        card, render: the numbers of /dev/dri/card<N> and /dev/dri/renderD<M>.
        partition: its number, None for a whole GPU.
        profile: compute and memory mode, e.g. ``cpx_nps1``; "" for a board that cannot be partitioned.
        memory: bytes, None if the driver does not tell.
        simd_units, compute_units: from KFD; a compute unit has `simd_per_cu` of the former.
        target: the instruction set, e.g. ``gfx942``.
    """

    card: int
    render: int
    partition: int | None
    profile: str
    memory: int | None
    simd_units: int
    compute_units: int
    target: str
    device_id: str
    driver_version: str

    @property
    def name(self) -> str:
        """The name gpu.amd.com publishes: ``gpu-<card>-<render>``."""
        return f"gpu-{self.card}-{self.render}"
