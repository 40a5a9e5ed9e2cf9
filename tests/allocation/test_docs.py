"""The examples of the pages run and print what the pages say."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("page", "least"), [("docs/rooms/allocation.md", 8), ("docs/library.md", 40), ("docs/search.md", 25)]
)
def test_the_examples_of_a_page(page: str, least: int) -> None:
    failed, attempted = doctest.testfile(str(Path(page).resolve()), module_relative=False)
    assert attempted > least
    assert not failed
