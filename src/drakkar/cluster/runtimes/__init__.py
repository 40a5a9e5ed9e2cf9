"""What runs the containers of a pod, behind one protocol: `runc` proves an injection, `process` runs anywhere."""

from typing import Final

__all__ = ["NAMES"]

NAMES: Final = ("auto", "runc", "process", "simulated")
"""What may be asked for; `choice` says what `auto` means."""
