"""Writes the page about each cause as documentation: `python -m tools.causes`, or `--check` that it is up to date.

The pages are data (`drakkar/diagnosis/data`); here they become ``docs/causes/``, one file per cause and a list of all.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from drakkar.diagnosis.causes import causes, page_of, placeholders
from drakkar.diagnosis.defects import defects

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "causes"
_TITLES = {
    "symptom": "What is seen",
    "evidence": "What shows it",
    "confirm": "What would confirm it",
    "repair": "Repair",
    "prevention": "Prevention",
}


def pages() -> dict[str, str]:
    """The text of each file by its name."""
    found = {f"{code}.md": _page(code) for code in causes()}
    found["README.md"] = _index()
    return found


def _page(code: str) -> str:
    cause, page = causes()[code], page_of(code)
    lines = [
        f"# {code}",
        "",
        _wrapped(f"{cause.meaning[0].upper()}{cause.meaning[1:]}. Boundary: {cause.boundary}."),
        "",
    ]
    for field, title in _TITLES.items():
        if body := placeholders(getattr(page, field)):
            lines += [f"## {title}", "", _wrapped(body), ""]
        if field == "evidence" and page.check:
            lines += ["A command that only reads:", "", f"    {placeholders(page.check)}", ""]
    known = [defect for defect in defects() if code in defect.causes]
    if known:
        lines += ["## Known defects", ""]
        lines += [
            _wrapped(f"- {d.component} ({_versions(d.versions)}): {d.symptom} {d.advice} ({d.reference})")
            for d in known
        ]
        lines += [""]
    if page.references:
        lines += ["Reports: " + ", ".join(page.references), ""]
    lines += [f"`drakkar doctor --explain-cause {code}` prints this page. [All causes](README.md)"]
    return "\n".join(lines) + "\n"


def _index() -> str:
    lines = [
        "# Causes a verdict may name",
        "",
        _wrapped(
            "Every verdict of [`drakkar doctor`](../rooms/diagnosis.md) names one of these. The pages are generated"
            " from `src/drakkar/diagnosis/data` by `python -m tools.causes`."
        ),
        "",
    ]
    for boundary in dict.fromkeys(cause.boundary for cause in causes().values()):
        lines += [f"## {boundary}", ""]
        lines += [f"- [{c.code}]({c.code}.md): {c.meaning}" for c in causes().values() if c.boundary == boundary]
        lines += [""]
    return "\n".join(lines[:-1]) + "\n"


def _versions(text: str) -> str:
    return "no version is known free of it" if text == "*" else f"versions {text}"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return "\n".join(textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent))


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check say which differ."""
    wanted = pages()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.md")} if FOLDER.is_dir() else {}
    if there == wanted:
        return 0
    if "--check" in arguments:
        differing = sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))
        print(f"docs/causes is not what the data says ({', '.join(differing[:5])}); run python -m tools.causes")
        return 1
    FOLDER.mkdir(exist_ok=True)
    for name in there.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
