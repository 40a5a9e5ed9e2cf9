"""The runner of the documentation's commands must be able to fail."""

import re
from pathlib import Path

import pytest

from tools import docs


@pytest.mark.parametrize(
    ("expected", "printed", "holds"),
    [
        ([], ["anything"], True),
        (["a b"], ["a   b"], True),
        (["a b"], ["a c"], False),
        (["a"], ["a", "b"], False),
        (["a", "..."], ["a", "b", "c"], True),
        (["...", "c"], ["a", "b", "c"], True),
        (["...", "x"], ["a", "b", "c"], False),
        (["a..."], ["abc def"], True),
        (["id <uuid> end"], ["id 1-2-3 end"], True),
        (["id <uuid> end"], ["id 1 2 end"], False),
        (["(UUID: <x>)"], ["(UUID: GPU-1)"], True),
    ],
)
def test_fits(expected: list[str], printed: list[str], holds: bool) -> None:
    assert docs.fits(expected, printed) is holds


def test_commands_are_found_with_continuations_and_exit_status(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```console\n$ one \\\n  two\nout\n$ three  # exit 2\n```\n\n```\n$ not this\n```\n")
    found = docs.commands(page)
    assert [(each.text, each.expected, each.exit) for each in found] == [("one two", ["out"], 0), ("three", [], 2)]


def test_every_page_of_the_documentation_is_reachable() -> None:
    seen: set[Path] = set()
    pending = [docs.ROOT / "README.md"]
    while pending:
        page = pending.pop()
        assert page.exists(), f"a link leads to {page}, which is not there"
        if page.suffix == ".md" and page not in seen:
            seen.add(page)
            links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
            pending += [(page.parent / link).resolve() for link in links]
    assert set((docs.ROOT / "docs").rglob("*.md")) <= seen
    assert any(docs.commands(docs.ROOT / "README.md"))


@pytest.mark.parametrize("page", sorted((docs.ROOT / "docs" / "rooms").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_about_a_room_names_its_modules(page: Path) -> None:
    words = {word for code in re.findall(r"`([^`\n]+)`", page.read_text()) for word in re.split(r"[./ ]", code)}
    room = min((docs.ROOT / "src" / "drakkar").rglob(page.stem), key=lambda folder: len(folder.parts))
    modules = {path.stem for path in room.glob("[!_]*") if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules
    assert sorted(modules - words) == []
