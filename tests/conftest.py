"""What tests need from outside, and what happens when it is missing.

A missing prerequisite skips, saying what would run the test. Where ``DRAKKAR_REQUIRE`` names it (CI does), it fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "src" / "drakkar" / "hooks" / "native"
_REQUIRED = os.environ.get("DRAKKAR_REQUIRE", "").split(",")


def missing(what: str, message: str) -> None:
    """Skip, or fail where `what` (root, kubectl) is required."""
    if what in _REQUIRED:
        pytest.fail(message)
    pytest.skip(message)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") is not None:
        if os.geteuid() != 0:
            missing("root", "needs root: run the tests as root on Linux")
        if shutil.which("runc") is None:
            missing("root", "needs runc: install it (Debian: apt-get install runc)")


def kubectl(minor: int) -> str:
    """The path of kubectl 1.`minor`, fetched if need be."""
    from tools import kubectl as kubectls

    try:
        return str(kubectls.fetch(minor))
    except (SystemExit, OSError) as error:
        missing("kubectl", f"needs kubectl 1.{minor}: {error}")
        raise


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the hooks' static programs, built once."""
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
