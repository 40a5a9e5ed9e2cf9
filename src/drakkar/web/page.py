"""The page: HTML and inline SVG from a view. Every text that comes from the cluster is escaped, without exception.

One fragment (`board`) is what changes; the page around it carries style and script, so that the server needs no other
file and the content security policy can refuse everything else. Colour never stands alone: each state has a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Final

from drakkar.web.view import MARKS, BoardView, DeviceCell, NodeCard

__all__ = ["board", "inline", "page", "problem"]

_SIDE: Final = 26
_GAP: Final = 6
_PER_ROW: Final = 8
_SYMBOLS: Final = {"held": "", "free": "", "tainted": "!", "stranded": "–", "lost": "×"}


def page(fragment: str, *, title: str) -> str:
    """The whole document around a fragment."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_data('board.css')}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><p id="taken" role="status"></p></header>'
        '<p id="problem" class="problem" role="alert" hidden></p>'
        f'<main id="board">{fragment}</main><script>{_data("board.js")}</script></body></html>'
    )


def inline() -> dict[str, str]:
    """The contents of the page's only style and script elements."""
    return {"style": _data("board.css"), "script": _data("board.js")}


def problem(message: str) -> str:
    """The fragment while the cluster cannot be read."""
    return f'<p class="problem">{escape(message)}</p>'


def board(view: BoardView) -> str:
    """The fragment: the same view gives the same text."""
    unread = "".join(f'<p class="problem">not read: {escape(text)}</p>' for text in view.unread)
    return unread + _summary(view) + _nodes(view) + _pending(view) + _claims(view)


def _summary(view: BoardView) -> str:
    tiles = [_tile("devices", view.total)]
    tiles += [_tile(mark, count, MARKS[mark], mark) for mark, count in view.counts.items()]
    tiles.append(_tile("pods waiting", len(view.pending) + view.hidden.get("pending", 0)))
    tiles += [_tile(f"claims {state}", count) for state, count in sorted(view.claims_by_state.items())]
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _tile(label: str, count: int, about: str = "", mark: str = "") -> str:
    swatch = f'<svg class="swatch" viewBox="0 0 26 26" aria-hidden="true">{_square(0, 0, mark, mark == "held")}</svg>'
    return f'<li title="{escape(about)}"><b>{count}</b><span>{swatch if mark else ""}{escape(label)}</span></li>'


def _nodes(view: BoardView) -> str:
    cards = "".join(_card(card) for card in view.nodes)
    empty = '<p class="quiet">No devices are published.</p>' if not view.nodes else ""
    return _section("Nodes", len(view.nodes), f'{empty}<div class="nodes">{cards}</div>', view.hidden.get("nodes", 0))


def _card(card: NodeCard) -> str:
    trouble = f'<p class="trouble">{escape(card.problem)}</p>' if card.problem else ""
    return (
        f'<article class="node"><h3>{escape(card.name)}</h3>{trouble}'
        f'<p class="quiet">{escape(card.products)}</p>{_drawing(card)}</article>'
    )


def _drawing(card: NodeCard) -> str:
    step = _SIDE + _GAP
    rows = -(-len(card.cells) // _PER_ROW)
    width, height = step * min(_PER_ROW, max(1, len(card.cells))) - _GAP, step * rows - _GAP
    cells = "".join(
        _cell(cell, index % _PER_ROW * step, index // _PER_ROW * step) for index, cell in enumerate(card.cells)
    )
    label = escape(f"devices of {card.name}")
    return f'<svg width="{width}" height="{max(height, 0)}" role="img" aria-label="{label}">{cells}</svg>'


def _cell(cell: DeviceCell, x: int, y: int) -> str:
    return f"<g><title>{escape(cell.text)}</title>{_square(x, y, cell.mark, cell.held)}</g>"


def _square(x: int, y: int, mark: str, held: bool) -> str:
    symbol = _SYMBOLS.get(mark, "")
    text = f'<text x="{x + _SIDE / 2:g}" y="{y + _SIDE / 2:g}">{symbol}</text>' if symbol else ""
    kind = f"{mark} held" if held and mark != "held" else mark
    return (
        f'<rect class="{escape(kind)}" x="{x + 1}" y="{y + 1}" width="{_SIDE - 2}" height="{_SIDE - 2}" rx="5"/>{text}'
    )


def _pending(view: BoardView) -> str:
    rows = [
        (
            escape(row.pod),
            f"<b>{escape(row.cause)}</b>"
            + (f'<br><span class="quiet">{escape(row.boundary)}</span>' if row.boundary else ""),
            escape(row.sentence) + (f"<br><code>{escape(row.next_step)}</code>" if row.next_step else ""),
        )
        for row in view.pending
    ]
    return _table(
        "Waiting pods",
        ("Pod", "Cause", "Why, and what next"),
        rows,
        "No pod waits for a device.",
        view.hidden.get("pending", 0),
    )


def _claims(view: BoardView) -> str:
    rows = [tuple(escape(text) for text in row) for row in view.claims]
    headers = ("Claim", "State", "Devices", "For", "Since")
    return _table("Claims", headers, rows, "There are no claims.", view.hidden.get("claims", 0))


def _table(title: str, headers: Sequence[str], rows: Sequence[Iterable[str]], empty: str, hidden: int) -> str:
    """A table of cells that are HTML already."""
    if not rows:
        return _section(title, 0, f'<p class="quiet">{escape(empty)}</p>', 0)
    head = "".join(f"<th scope=col>{escape(text)}</th>" for text in headers)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    text = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return _section(title, len(rows), text, hidden)


def _section(title: str, count: int, body: str, hidden: int) -> str:
    more = f'<p class="quiet">and {hidden} more, not shown here</p>' if hidden else ""
    number = f' <span class="count">{count + hidden}</span>' if count else ""
    return f"<section><h2>{escape(title)}{number}</h2>{body}{more}</section>"


@cache
def _data(name: str) -> str:
    return resources.files("drakkar.web").joinpath("data", name).read_text()
