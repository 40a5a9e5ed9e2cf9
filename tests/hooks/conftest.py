"""The two programs that every hook test runs: Python's, and the static one, built once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing

NATIVE = Path(__file__).parents[2] / "src" / "drakkar" / "hooks" / "native"
Hook = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built programs."""
    if shutil.which("make") is None or shutil.which("cc") is None:
        missing("compiler", "needs make and a C compiler: install them (Debian: apt-get install gcc make)")
    folder = tmp_path_factory.mktemp("native")
    subprocess.run(["make", "-s", "-C", NATIVE, f"OUT={folder}"], check=True)
    return folder


@pytest.fixture(params=["python", "native"])
def program(request: pytest.FixtureRequest) -> list[str]:
    """The command line of a hook program, to be followed by the hook's name."""
    if request.param == "python":
        return [sys.executable, "-I", "-m", "drakkar.hooks"]
    return [str(request.getfixturevalue("native") / "drakkar-hook")]


@pytest.fixture
def hook(program: list[str]) -> Hook:
    """Runs a hook with a state (an object, or text as it is) on standard input."""

    def run(arguments: Sequence[str], state: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        text = state if isinstance(state, str) else json.dumps(state)
        return subprocess.run(
            [*program, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False, **options
        )

    return run
