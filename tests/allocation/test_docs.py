"""The examples of the room's page run and print what the page says."""

import doctest
from pathlib import Path


def test_the_examples_of_the_page() -> None:
    page = Path("docs/rooms/allocation.md").resolve()
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 8
    assert not failed
