"""`doctor --watch` tells what is new, what is different and what is over, and lives through a look that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from drakkar.cli.snapshots import Reader
from drakkar.cli.watching import changes, follow
from drakkar.errors import DrakkarError
from drakkar.evidence.snapshot import Snapshot
from drakkar.kube.clock import FakeClock
from tests.diagnosis.world import claim, pod, world


class Ended(Exception):
    """The looks are used up."""


class Turns(FakeClock):
    """Sleeping takes no time."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


def told(*looks: Snapshot | DrakkarError, target: str = "") -> list[str]:
    """The lines of a watch that takes these looks one after the other."""
    left: Iterator[Snapshot | DrakkarError] = iter(looks)

    async def read() -> Snapshot:
        found = next(left, None)
        if found is None:
            raise Ended
        if isinstance(found, DrakkarError):
            raise found
        return found

    lines: list[str] = []
    with pytest.raises(Ended):
        asyncio.run(follow(Reader("x", "ml", read), target, "", 5.0, Turns(), lines.append))
    return [line.partition(" ")[2] for line in lines]


GOOD = world(claim("c", held="n1/gpu-0", users=("p",)), pod("p", claim_name="c", on="n1", phase="Running"))
MISSING = world(pod("p", claim_name="gone"))
OTHER = world(pod("p", template_name="gone"))


def test_only_changes_are_told() -> None:
    assert told(GOOD, GOOD, MISSING, MISSING, GOOD) == [
        "ok  nothing is wrong",
        "NO  Pod/ml/p: claim-missing: ResourceClaim gone, which pod p names, does not exist in namespace ml",
        "ok  Pod/ml/p: claim-missing is over",
    ]


def test_another_cause_is_news() -> None:
    assert [line.split(":")[1].strip() for line in told(MISSING, OTHER)] == ["claim-missing", "template-missing"]


def test_one_target_is_followed_alone() -> None:
    both = world(pod("p", claim_name="gone"), pod("q", claim_name="gone"))
    assert [line.split()[1] for line in told(both, target="pod/q")] == ["Pod/ml/q:"]


def test_a_server_that_is_away_for_a_while_is_told_once() -> None:
    away = DrakkarError("no answer from x")
    lines = told(MISSING, away, away, GOOD)
    assert [line[:2] for line in lines] == ["NO", "? ", "ok"]
    assert "cannot look: no answer from x" in lines[1]


def test_a_first_look_that_fails_is_an_error() -> None:
    async def read() -> Snapshot:
        raise DrakkarError("no such cluster")

    with pytest.raises(DrakkarError, match="no such cluster"):
        asyncio.run(follow(Reader("x", "ml", read), "", "", 5.0, Turns(), print))


def test_nothing_new_is_nothing_told() -> None:
    state = {"Pod/ml/p": ("claim-missing", "…")}
    assert list(changes(state, state)) == []
