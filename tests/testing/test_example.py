"""The example of the room's page is shown there as it is."""

from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_the_example_as_it_is() -> None:
    example = (_DOCS / "examples/test_train.py").read_text()
    assert f"$ cat docs/examples/test_train.py\n{example}$ " in (_DOCS / "rooms/testing.md").read_text()
