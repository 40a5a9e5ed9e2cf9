"""Finding, loading and calling libnvidia-ml.so.1.

The library is looked up where drivers put it below a driver root, and loaded by its path, so that two driver roots on
one host are two libraries. A function is looked up when it is first called: one that the library lacks answers like
one that the GPU does not support.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from drakkar.errors import DrakkarError
from drakkar.hardware.lookup import Root
from drakkar.vendors.nvidia.nvml import codes, structs
from drakkar.vendors.nvidia.nvml.codes import NvmlError

SONAME = "libnvidia-ml.so.1"

#: Below a driver root, in this order; a root may also be the library folder itself (image-based hosts).
_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/lib/wsl/lib",
    "usr/local/glibc/usr/lib",
    "run/opengl-driver/lib",
    "home/kubernetes/bin/nvidia/lib64",
    "var/lib/nvidia/lib64",
    "lib",
    "",
)


def find_library(root: Path, search: Sequence[str] = ()) -> Path | None:
    """The library below `root`, or in one of the folders of `search` (absolute); None if there is none."""
    below = Root(root)
    for folder in search:
        if (Path(folder) / SONAME).is_file():
            return Path(folder) / SONAME
    found = below.find(SONAME, [f"/{folder}" for folder in _FOLDERS], count=1)
    return Path(found[0]) if found else None


class Library:
    """A loaded and initialised NVML."""

    def __init__(self, path: Path, root: Path = Path("/")) -> None:
        """Loads and initialises the library at `path`; links of it lead to what they mean below `root`.

        Raises:
            NvmlError: it does not initialise; `code` tells a driver that is not loaded from a mismatch.
            DrakkarError: it cannot be loaded (no library, another architecture).
        """
        self.path = path
        self._root = Root(root)
        real = Path(self._root.resolve(os.fspath(path)))
        self.identity = _identity(real)
        try:
            self._library: ctypes.CDLL | None = ctypes.CDLL(os.fspath(real))
        except OSError as error:
            raise DrakkarError(
                f"the NVML library cannot be loaded: {error}",
                reason="NvmlNotLoadable",
                subject=str(path),
                next_step="check that the driver root holds the driver of this architecture",
            ) from None
        self._functions: dict[str, Callable[..., int] | None] = {}
        try:
            self.call("nvmlInit_v2")
        except NvmlError:
            self._unload()
            raise

    def close(self) -> None:
        """Shuts NVML down and unloads the library, so that another version can be loaded from the same place."""
        if self._library is not None:
            self.code("nvmlShutdown")
            self._unload()

    @property
    def replaced(self) -> bool:
        """Whether the file at its path is another one now: the driver was exchanged."""
        real = Path(self._root.resolve(os.fspath(self.path)))
        return _identity(real) != self.identity

    def code(self, name: str, *arguments: Any) -> int:
        """Calls `name` and returns NVML's code; FUNCTION_NOT_FOUND for what the library lacks."""
        function = self._function(name)
        return codes.FUNCTION_NOT_FOUND if function is None else function(*arguments)

    def has(self, name: str) -> bool:
        """Whether the library knows the function."""
        return self._function(name) is not None

    def call(self, name: str, *arguments: Any, subject: str = "") -> None:
        """Calls `name`; NvmlError unless it succeeds."""
        code = self.code(name, *arguments)
        if code != codes.SUCCESS:
            raise NvmlError(name, code, subject=subject or str(self.path))

    def text(self, names: Sequence[str], *before: Any, size: int = structs.NAME_SIZE) -> str | None:
        """The string that the first of `names` that works writes into a buffer of `size`; None if none works."""
        buffer = ctypes.create_string_buffer(size)
        for name in names:
            if self.code(name, *before, buffer, ctypes.c_uint(size)) == codes.SUCCESS:
                return buffer.value.decode("utf-8", "replace")
        return None

    def number(self, names: Sequence[str], *before: Any) -> int | None:
        """The unsigned number that the first of `names` that works writes; None if none works."""
        value = ctypes.c_uint()
        for name in names:
            if self.code(name, *before, ctypes.byref(value)) == codes.SUCCESS:
                return value.value
        return None

    def fill(self, name: str, structure: Any, *before: Any) -> Any:
        """`structure` as `name` fills it; None where that does not work."""
        return structure if self.code(name, *before, ctypes.byref(structure)) == codes.SUCCESS else None

    def driver_version(self) -> str:
        """The driver's version as it spells it (`580.95.05`); NvmlError if even that is not told."""
        buffer = ctypes.create_string_buffer(structs.NAME_SIZE)
        self.call("nvmlSystemGetDriverVersion", buffer, ctypes.c_uint(structs.NAME_SIZE))
        return buffer.value.decode("ascii", "replace")

    def cuda_version(self) -> str | None:
        """The CUDA version that the driver supports (`13.0`); None if it is not told."""
        number = self.number(("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"))
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def _function(self, name: str) -> Callable[..., int] | None:
        if name not in self._functions:
            found: Any = getattr(self._library, name, None)
            if found is not None:
                found.restype = ctypes.c_int
            self._functions[name] = found
        return self._functions[name]

    def _unload(self) -> None:
        library, self._library = self._library, None
        self._functions = {}
        if library is not None:
            _ctypes.dlclose(library._handle)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
