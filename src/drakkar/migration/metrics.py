"""What DCGM's fields measure: unit, whether MIG instances have a value of their own, and which only ever grow."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

__all__ = ["BORN_AT_ONE", "MIG_INSTEAD", "STICKY", "Field", "cumulative", "exporter_metrics", "fields"]

STICKY: Final = ("DCGM_FI_DEV_XID_ERRORS",)
"""Gauges that keep their last value until another comes."""
BORN_AT_ONE: Final = (
    "DCGM_EXP_XID_ERRORS_TOTAL",
    "nvidia_dra_node_prepare_errors_total",
    "nvidia_dra_node_unprepare_errors_total",
)
"""Counters whose series appear with their first event."""
MIG_INSTEAD: Final = {
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "DCGM_FI_PROF_DRAM_ACTIVE",
}
_EXPORTER: Final = {
    "DCGM_EXP_XID_ERRORS_COUNT": (0,), "DCGM_EXP_XID_ERRORS_TOTAL": (4, 8, 3), "DCGM_EXP_CLOCK_EVENTS_COUNT": (0,),
    "DCGM_EXP_GPU_HEALTH_STATUS": (0,), "DCGM_EXP_P2P_STATUS": (0,),
}  # fmt: skip
_GROWING: Final = ("_VIOLATION", "_VOL_TOTAL", "_AGG_TOTAL", "_COUNT_TOTAL")
_ALSO_GROWING: Final = frozenset({
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_EXP_XID_ERRORS_TOTAL",
})  # fmt: skip


class Field(msgspec.Struct, frozen=True, rename="camel"):
    """A field: its unit, how MIG-enabled GPUs yield it, whether the built-in counter file has it, its newer name."""

    unit: str = ""
    mig: str = ""
    default: str = ""
    new_name: str = ""
    type: str = ""


@cache
def fields() -> dict[str, Field]:
    """Fields by name, also under their newer names."""
    data = files("drakkar.migration").joinpath("data/dcgm.json").read_bytes()
    known = msgspec.json.decode(data, type=dict[str, Field])
    return known | {field.new_name: field for field in known.values() if field.new_name}


def exporter_metrics(exporter: tuple[int, ...]) -> dict[str, bool]:
    """Metrics that the exporter makes itself, and whether this version of it has them."""
    return {name: not exporter or exporter >= since for name, since in _EXPORTER.items()}


def cumulative(metric: str) -> bool:
    """Whether a metric only grows, until the driver or process starts again."""
    if metric in _ALSO_GROWING or (metric.startswith("DCGM_FI_") and metric.endswith(_GROWING)):
        return True
    return metric.startswith("nvidia_dra_") and metric.endswith("_total")
