"""What is wrong with a GPU, said once for all who tell it: slices, health streams, plugins, `drakkar top`.

A GPU that fell off the bus also logs XID 79: that is one fault, not two. XIDs that are the program's fault
(`xids.Xid.ignored`) keep no work away from a GPU, as in NVIDIA's DRA driver.
"""

from __future__ import annotations

from drakkar.hardware.machine import Fault
from drakkar.vendors.nvidia.gpu import Gpu
from drakkar.vendors.nvidia.xids import kernel_log_line, xid

LOST_XID = 79


def trouble(gpu: Gpu) -> str:
    """Why no new work should come to the GPU: lost, an XID that is not the program's fault, what it says itself;
    "" if it is well.
    """
    if gpu.lost:
        return _fallen(gpu)
    code = serious_xid(gpu)
    if code is not None:
        known = xid(code)
        return f"XID {code}: {known.meaning if known else 'unknown'}"
    return next((one.message for one in gpu.conditions if one.serious), "")


def serious_xid(gpu: Gpu) -> int | None:
    """The latest XID that is neither the program's fault nor ignored by the administrator. A program that crashes
    later does not hide it.
    """
    for code in reversed(gpu.xids):
        known = xid(code)
        if code not in gpu.ignored_xids and (known is None or not known.ignored):
            return code
    return None


def faults(gpu: Gpu) -> list[Fault]:
    """That it is lost, and the XIDs that it has logged and not recovered from."""
    lost = [Fault("lost", gpu.uuid, LOST_XID, _fallen(gpu))] if gpu.lost else []
    return lost + [
        Fault("xid", gpu.uuid, code, kernel_log_line(gpu.bus_id, code))
        for code in gpu.xids
        if not (gpu.lost and code == LOST_XID)
    ]


def _fallen(gpu: Gpu) -> str:
    return f"GPU {gpu.bus_id} has fallen off the bus"
