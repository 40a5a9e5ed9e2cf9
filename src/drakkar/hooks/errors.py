"""The one failure of a hook: a sentence on standard error and exit status 1, which makes the runtime stop the start."""

from __future__ import annotations

__all__ = ["HookError"]


class HookError(Exception):
    """Something that makes a hook give up; its text is one sentence for whoever reads the runtime's log."""
