"""A hook as every hook test runs it: with either of its two programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

Hook = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hook(program: list[str]) -> Hook:
    """Runs a hook with a state (an object, or text as it is) on standard input."""

    def run(arguments: Sequence[str], state: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        text = state if isinstance(state, str) else json.dumps(state)
        return subprocess.run(
            [*program, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False, **options
        )

    return run
