"""XID codes: what the driver's numbers in the kernel log mean, and what NVIDIA's DRA driver makes of them.

NVIDIA's catalogue, as data (`data/xids.json`). `ignored` codes are those that say more about the program than about
the GPU: the DRA driver publishes them as a taint without effect, every other code as `NoSchedule`.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from drakkar.vendors.nvidia.models import data_file


class Xid(msgspec.Struct, frozen=True, rename={"kind": "class"}):
    """One code; `kind` is application, driver, hardware, nvlink or memory-ecc, `action` the first response."""

    code: int
    mnemonic: str
    kind: str
    meaning: str
    ignored: bool
    action: Literal["none", "restart-app", "reset-gpu", "reboot", "rma-check"]
    then: str = ""
    log: str = ""


def xid(code: int) -> Xid | None:
    """The entry of `code`; None for a code that the catalogue does not explain."""
    return _codes().get(code)


def kernel_log_line(bus_id: str, code: int) -> str:
    """The line that the kernel log gets for `code` on the GPU at `bus_id` (sysfs form)."""
    known = xid(code)
    tail = (known.log or known.meaning) if known else "unknown"
    return f"NVRM: Xid (PCI:{bus_id.rpartition('.')[0]}): {code}, {tail}"


@cache
def _codes() -> dict[int, Xid]:
    return {entry.code: entry for entry in msgspec.json.decode(data_file("xids.json"), type=list[Xid])}
