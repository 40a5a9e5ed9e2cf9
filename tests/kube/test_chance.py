"""Chance from a seed: the same for the same words and instants, whatever others draw in between."""

from __future__ import annotations

import re
from collections import Counter
from uuid import UUID

from drakkar.kube.chance import Chance


def drawn(chance: Chance) -> list[str]:
    return [chance.uid("pods", "a"), chance.uid("pods", "a"), chance.uid("pods", "b"), chance.suffix(5, "pods", "x-")]


def test_the_same_seed_gives_the_same_and_another_one_something_else() -> None:
    assert drawn(Chance(7)) == drawn(Chance(7))
    assert not set(drawn(Chance(7))) & set(drawn(Chance(8)))
    assert not set(drawn(Chance())) & set(drawn(Chance()))


def test_every_draw_is_another_one_and_uids_are_version_4() -> None:
    for chance in (Chance(7), Chance()):
        uids = [chance.uid("pods", "a") for _ in range(100)]
        assert len(set(uids)) == 100
        assert all(UUID(uid).version == 4 and UUID(uid).variant == "specified in RFC 4122" for uid in uids)
        assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{5}", chance.suffix(5, "pods"))


def test_what_others_draw_in_between_changes_nothing() -> None:
    disturbed = Chance(7)
    found = []
    for _ in range(2):
        disturbed.uid("secrets", "of somebody else")
        found.append(disturbed.uid("pods", "a"))
    alone = Chance(7)
    assert found == [alone.uid("pods", "a"), alone.uid("pods", "a")]


def test_another_instant_is_another_draw() -> None:
    now = [0.0]
    chance = Chance(7, lambda: now[0])
    first = chance.uid("pods", "a")
    now[0] = 1.0
    second = chance.uid("pods", "a")
    assert first != second
    again = Chance(7, lambda: 1.0)
    assert again.uid("pods", "a") == second


def test_a_lasting_suffix_is_the_same_at_any_instant() -> None:
    now = [0.0]
    chance = Chance(7, lambda: now[0])
    first = chance.lasting_suffix(5, "token", "uid")
    now[0] = 1.0
    assert chance.lasting_suffix(5, "token", "uid") == first != chance.lasting_suffix(5, "token", "other")


def test_numbers_are_spread_evenly_between_their_bounds() -> None:
    chance = Chance(7)
    tenths = Counter(int(chance.uniform(10, 20, "runs", str(number))) for number in range(5000))
    assert sorted(tenths) == list(range(10, 20))
    assert all(400 < count < 600 for count in tenths.values())
