"""Files that readers see whole or not at all: written beside their place and renamed into it (rename(2) is atomic).

This is for state that can be made again. What must survive a power cut goes through `preparation.journal`, and CDI
files through `injection.write`, whose names must not meet those of other processes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes | str, *, mode: int = 0o644) -> None:
    """Write `content` (text as UTF-8) to `path` with exactly `mode`, from the first moment that it has its name.

    The folder must exist. Raises OSError, and leaves what was there before.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()  # of a process with our number that was killed; it may have another mode
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            temporary.chmod(mode)  # whatever the umask is
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
