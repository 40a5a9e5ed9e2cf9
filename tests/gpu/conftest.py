"""What runs on a machine with an NVIDIA GPU: `pytest tests/gpu` there, as root.

The small libnvidia-ml.so of the other tests and the ctypes layer were both written from nvml.h by the same people; here
the real library answers, and NVIDIA's own tools say what is right. Elsewhere these tests are skipped, saying so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from drakkar.vendors.nvidia import kernel
from drakkar.vendors.nvidia.nvml import find_library
from drakkar.vendors.nvidia.nvml_machine import NvmlMachine
from tests.conftest import missing


@pytest.fixture(scope="session")
def machine() -> Iterator[NvmlMachine]:
    """This host's GPUs; DRIVER_ROOT names the driver's root where it is not `/`."""
    root = Path(os.environ.get("DRIVER_ROOT", "/"))
    if kernel.driver_version(kernel.system_root(root)) is None or find_library(root) is None:
        missing("gpu", "needs a machine with an NVIDIA GPU and its driver: run `pytest tests/gpu` there")
    opened = NvmlMachine("this-host", root)
    yield opened
    opened.close()
