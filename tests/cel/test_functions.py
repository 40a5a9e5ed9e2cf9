"""Every function, overload and macro that upstream declares, in upstream's order: that decides what is inferred."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Literal, cast

import pytest

from drakkar.cel import device_environment
from drakkar.cel.signatures import Overload
from drakkar.cel.types import declared_text

Mode = Literal["stored", "new"]
LINES = [
    line.split(" ", 3) for line in (Path(__file__).parent / "functions.txt").read_text().splitlines() if line[0] != "#"
]
PARAMETER, BARE = re.compile("<(.)>"), r"\1"
LOGIC = {"_&&_", "_||_"}  # the checker knows them


def shown(overload: Overload) -> str:
    arguments = ", ".join(map(declared_text, overload.parameters))
    kind = "method" if overload.is_method else "function"
    return f"{kind} ({arguments}) -> {declared_text(overload.result)}"


@pytest.mark.parametrize("mode", ["stored", "new"])
def test_all_overloads_are_declared_in_upstreams_order(mode: str) -> None:
    wanted = defaultdict(list)
    for env, function, overload, rest in LINES:
        if env == mode and overload != "macro" and function not in LOGIC:
            wanted[function].append(f"{overload} {PARAMETER.sub(BARE, rest)}")
    functions = device_environment(mode=cast(Mode, mode)).functions
    assert {name: [f"{one.id} {shown(one)}" for one in known] for name, known in functions.items()} == wanted


@pytest.mark.parametrize("mode", ["stored", "new"])
def test_all_macros_are_there(mode: str) -> None:
    wanted = set()
    for env, function, overload, rest in LINES:
        if env == mode and overload == "macro":
            kind, _, count = rest.partition(" ")
            wanted.add((function, int(count.split(")")[0].strip("(")), kind == "method"))
    assert set(device_environment(mode=cast(Mode, mode)).macros) == wanted
