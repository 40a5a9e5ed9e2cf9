"""What the board shows of a small world, and that nothing of it can become markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from drakkar.evidence.snapshot import Snapshot
from drakkar.web import page
from drakkar.web.view import MARKS, view
from tests.diagnosis.world import BIG, claim, devices, gpu, node, piece, pod, world

_EVIL = "<script>alert('1')</script>\"&"


class _Reader(HTMLParser):
    """Elements with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_each_device_has_a_mark() -> None:
    lost = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}
    snapshot = world(
        piece(
            "n1", gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2", taints=[lost]), gpu("gpu-3", taints=[{**lost, "key": "hot"}])
        ),
        node("n2", ready=False),
        claim("a", held="n1/gpu-0", users=("p",)),
        claim("b", held="n1/gpu-9"),
    )
    board = view(snapshot)
    marks = {f"{card.name}/{cell.name}": (cell.mark, cell.held) for card in board.nodes for cell in card.cells}
    assert marks == {
        "n1/gpu-0": ("held", True),
        "n1/gpu-1": ("free", False),
        "n1/gpu-2": ("lost", False),
        "n1/gpu-3": ("tainted", False),
        "n1/gpu-9": ("lost", True),
        "n2/gpu-0": ("stranded", False),
    }
    assert board.total == 5
    assert board.counts == {"held": 1, "free": 1, "tainted": 2, "stranded": 1, "lost": 2}
    assert set(board.counts) == set(MARKS)


def test_nodes_in_trouble_come_first_and_say_why() -> None:
    cards = view(world(node("n2", ready=False))).nodes
    assert [(card.name, card.problem) for card in cards] == [("n2", "the node is not ready"), ("n1", "")]
    assert cards[0].products == "1 × NVIDIA A100"


def test_a_waiting_pod_has_the_cause_a_diagnosis_finds() -> None:
    board = view(world(claim("c", devices(BIG)), pod("p", claim_name="c")))
    (row,) = board.pending
    assert (row.pod, row.boundary, row.cause) == ("ml/p", "allocation", "selector-matches-nothing")
    assert "memory is 40Gi" in row.sentence
    assert row.sentence.replace("'", "&#x27;").replace(">", "&gt;") in page.board(board)


def test_the_same_cluster_gives_the_same_text() -> None:
    objects = (claim("a", held="n1/gpu-0", users=("p",)), pod("p", claim_name="a", on="n1", phase="Running"))
    assert page.board(view(world(*objects))) == page.board(view(world(*objects)))
    assert page.board(view(world(*objects))) != page.board(view(world()))


def test_nothing_from_the_cluster_becomes_markup() -> None:
    snapshot = world(
        node(_EVIL, ready=False),
        piece(_EVIL, gpu(_EVIL, product=_EVIL, taints=[{"key": _EVIL, "value": _EVIL, "effect": "NoSchedule"}])),
        claim(_EVIL, devices(f"device.driver == {_EVIL!r}"), users=(_EVIL,)),
        claim("held", held=f"{_EVIL}/other"),
        pod(_EVIL, claim_name=_EVIL),
        unread=(f"secrets: {_EVIL}",),
    )
    document = page.page(page.board(view(snapshot)), title=_EVIL)
    reader = _Reader(document)
    assert reader.open == []
    assert reader.tags.count("script") == 1
    text = "".join(reader.texts)
    assert text.count(_EVIL) > 5
    assert _EVIL in _Reader(page.problem(_EVIL)).texts[0]


def test_the_page_needs_nothing_from_elsewhere() -> None:
    document = page.page(page.board(view(world())), title="t")
    assert not re.search(r"""\b(src|href|action)\s*=|url\(|@import|https?://""", document)
    assert page.inline()["script"] in document
    assert page.inline()["style"] in document


def test_an_empty_cluster_says_so() -> None:
    text = "".join(_Reader(page.board(view(Snapshot()))).texts)
    for sentence in ("No devices are published.", "No pod waits for a device.", "There are no claims."):
        assert sentence in text


def test_what_is_too_much_for_a_page_is_counted() -> None:
    many = [claim(f"c-{index:04}") for index in range(203)]
    board = view(world(*many))
    assert len(board.claims) == 200
    assert board.hidden == {"claims": 3}
    assert "and 3 more, not shown here" in page.board(board)
