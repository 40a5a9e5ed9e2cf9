"""Puts the static hook program on a host that has no hook program of its own.

The driver's image carries it; a runtime executes it on the host, so it must lie there under the path that
specifications name. It is replaced atomically and only when it differs: a container may be starting with it now.
"""

from __future__ import annotations

import os

__all__ = ["IMAGE_FOLDER", "PROGRAMS", "put_on_host"]

IMAGE_FOLDER = "/opt/drakkar/libexec"
PROGRAMS = ("drakkar-nvml-limits", "drakkar-hook")  # the second starts the first, so it comes last
_MODE = 0o755


def put_on_host(folder: str, source: str = IMAGE_FOLDER) -> str:
    """Copies the programs into ``folder`` (made if missing) and returns the path of the hook program.

    Args:
        folder: a directory of the host that has the same path here.
        source: where the image has them; "" is returned where it has none.

    Raises:
        OSError: the folder cannot be written.
    """
    if not os.path.isfile(f"{source}/{PROGRAMS[-1]}"):
        return ""
    os.makedirs(folder, mode=_MODE, exist_ok=True)
    for name in PROGRAMS:
        data, target = _content(f"{source}/{name}"), f"{folder}/{name}"
        if data and _content(target) != data:
            fresh = f"{folder}/.{name}-{os.urandom(6).hex()}"
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE), "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), _MODE)
            os.rename(fresh, target)
    return f"{folder}/{PROGRAMS[-1]}"


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
