"""NVML by ctypes: the driver's own management library, below any driver root, with every call optional.

A binding of our own since the usual one loads a fixed library name, while a driver container's files lie below a root
of their own, and since libraries of ten years must be served by one program: what a library lacks, or a GPU does not
support, is None and never the end of the inventory.

`library` finds and loads it, `structs` and `codes` are its layouts and numbers (nvml.h of driver branch R590),
`device` asks one GPU, `mig` asks and changes its partitions, `events` waits for what the driver reports.
"""

from drakkar.vendors.nvidia.nvml.codes import NvmlError
from drakkar.vendors.nvidia.nvml.device import NvmlDevice, devices
from drakkar.vendors.nvidia.nvml.library import Library, find_library

__all__ = ["Library", "NvmlDevice", "NvmlError", "devices", "find_library"]
