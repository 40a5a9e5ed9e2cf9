"""Sets of field paths in the form of FieldsV1 behave as sets."""

import random
from itertools import product
from typing import Any

import pytest

from drakkar.cluster.machinery.apply import fieldsets

ELEMENTS = ("f:a", "f:b", 'k:{"name":"x"}')


def made(paths: set[tuple[str, ...]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for path in sorted(paths):
        fieldsets.insert(fields, path)
    return fields


def paths_of(fields: dict[str, Any]) -> set[tuple[str, ...]]:
    return set(fieldsets.all_paths(fields))


UNIVERSE = [path for length in (1, 2, 3) for path in product(ELEMENTS, repeat=length)]


@pytest.mark.parametrize("seed", range(40))
def test_operations_are_those_of_sets(seed: int) -> None:
    chance = random.Random(seed)
    left = set(chance.sample(UNIVERSE, chance.randrange(1, 12)))
    right = set(chance.sample(UNIVERSE, chance.randrange(1, 12)))
    assert paths_of(made(left)) == left
    assert paths_of(fieldsets.union(made(left), made(right))) == left | right
    assert paths_of(fieldsets.difference(made(left), made(right))) == left - right
    assert paths_of(fieldsets.intersection(made(left), made(right))) == left & right


def test_members_with_something_below_are_marked() -> None:
    assert made({("f:a",), ("f:a", "f:b")}) == {"f:a": {".": {}, "f:b": {}}}
    assert made({("f:a", "f:b")}) == {"f:a": {"f:b": {}}}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:containers", 'k:{"name":"a"}', "f:image"), '.spec.containers[name="a"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"x"'), '.finalizers[="x"]'),
        (("f:list", "i:3"), ".list[3]"),
    ],
)
def test_paths_as_people_see_them(path: tuple[str, ...], text: str) -> None:
    assert fieldsets.path_text(path) == text
