"""The examples are what a reader learns from, so they run: under runc with two kubectls, and as processes."""

from pathlib import Path

import pytest

from tests.conftest import kubectl
from tools import examples

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXPECTATIONS = [file for example in sorted(FOLDER.iterdir()) for file in examples.expectations(example)]


def _id(file: Path) -> str:
    return f"{file.parent.name}{file.stem.removeprefix('expect')}"


def test_every_example_says_what_it_shows() -> None:
    folders = [folder for folder in FOLDER.iterdir() if folder.is_dir()]
    assert len(folders) >= 10
    for folder in folders:
        assert (folder / "README.md").read_text().startswith("# ")
        assert examples.expectations(folder), folder


@pytest.mark.root
@pytest.mark.kubectl
@pytest.mark.slow
@pytest.mark.parametrize("minor", [34, 37])
@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=_id)
def test_under_runc(expectation: Path, minor: int) -> None:
    examples.run(expectation, kubectl=kubectl(minor), runtime="runc")


@pytest.mark.kubectl
@pytest.mark.slow
@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=_id)
def test_as_processes(expectation: Path) -> None:
    examples.run(expectation, kubectl=kubectl(37), runtime="process")
