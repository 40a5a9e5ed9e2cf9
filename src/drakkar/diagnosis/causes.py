"""Every cause a verdict may name, and the page about each: symptom, evidence, repair, prevention.

All of it is data: ``data/causes.yaml`` has the codes with their boundary and meaning, ``data/pages/`` one file per
boundary with the pages. `tools/causes.py` writes the same pages as documentation. Known defects of drivers, Kubernetes
and runtimes stand in a table of their own (`defects`), since they come and go with versions.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final, NamedTuple

from drakkar.errors import DrakkarError
from drakkar.kube import yamltext

__all__ = ["Cause", "Page", "cause_of", "causes", "filled", "page_of", "page_text", "placeholders"]


class Cause(NamedTuple):
    """One code a verdict may name."""

    code: str
    boundary: str
    meaning: str


class Page(NamedTuple):
    """What to know of one cause.

    Attributes:
        symptom: what somebody sees who does not know the cause yet.
        evidence: the objects, fields and files that show it, and how it differs from its neighbours.
        check: a command that only reads; `{namespace}`, `{name}`, `{kind}`, `{node}` are of the verdict's subject.
        confirm: what would confirm the verdict.
        repair: what ends it.
        prevention: what keeps it from coming back.
        references: reports and specifications.
    """

    symptom: str
    evidence: str
    check: str
    confirm: str
    repair: str
    prevention: str
    references: tuple[str, ...] = ()


def cause_of(code: str) -> Cause:
    """The cause of that code; raises KeyError for a code that is not in the list."""
    return causes()[code]


@lru_cache(maxsize=1)
def causes() -> Mapping[str, Cause]:
    """Every cause by its code, in the order of the list."""
    listed = _yaml("causes.yaml")
    return {code: Cause(code, boundary, meaning) for code, (boundary, meaning) in listed.items()}


def page_of(code: str) -> Page:
    """The page about a cause. Raises `DrakkarError` for a code that is none."""
    known = causes()
    if code not in known:
        near = difflib.get_close_matches(code, known, 3)
        raise DrakkarError(
            f"there is no cause {code!r}",
            reason="UnknownCause",
            expected=f"one of {', '.join(near)}" if near else "a code that a verdict names",
            next_step="drakkar doctor --explain-cause list",
        )
    entry = _pages(known[code].boundary)[code]
    fields = {name: " ".join(str(entry.get(name, "")).split()) for name in Page._fields if name != "references"}
    return Page(**fields, references=tuple(entry.get("references") or ()))


def page_text(code: str, *, width: int = 80) -> str:
    """The page as text for a terminal."""
    import textwrap

    page, cause = page_of(code), cause_of(code)
    lines = textwrap.wrap(f"{code} ({cause.boundary}): {cause.meaning}", width, subsequent_indent="  ",
                          break_on_hyphens=False)  # fmt: skip
    for title in _SECTIONS:
        if body := placeholders(getattr(page, title)):
            lines += ["", title.upper(), *textwrap.wrap(body, width - 2, break_long_words=False,
                                                       break_on_hyphens=False, initial_indent="  ",
                                                       subsequent_indent="  ")]  # fmt: skip
    if page.references:
        lines += ["", "REFERENCES", *(f"  {reference}" for reference in page.references)]
    return "\n".join(lines) + "\n"


def placeholders(template: str) -> str:
    """A page's text outside of a verdict: placeholders stand for themselves, in capitals."""
    for word in ("namespace", "name", "kind", "node", "subject"):
        template = template.replace("{" + word + "}", word.upper())
    return template


_SECTIONS: Final = ("symptom", "evidence", "check", "confirm", "repair", "prevention")


def filled(template: str, subject: str) -> str:
    """A page's command or sentence with the subject's names (``Kind/namespace/name``) in their places."""
    kind, _, rest = subject.partition("/")
    namespace, _, name = rest.rpartition("/")
    fields = {"kind": kind.lower(), "namespace": namespace or "default", "name": name or rest, "subject": subject}
    fields["node"] = fields["name"] if kind == "Node" else "NODE"
    for word, value in fields.items():
        template = template.replace("{" + word + "}", value)
    return template


@lru_cache(maxsize=16)
def _pages(boundary: str) -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = _yaml(f"pages/{boundary}.yaml")
    return found


def _yaml(name: str) -> Any:
    text = resources.files("drakkar.diagnosis").joinpath(f"data/{name}").read_text()
    return yamltext.load(text)
