"""Random small clusters for the race against the upstream allocator, and mutants to prove that they are worth it.

    python -m tools.fuzz_allocation [--seconds 60]

breaks the allocator on purpose in ten ways, one at a time; the same random clusters that `tools.fuzz_race` compares
with upstream must notice each of them, compared with the allocator as it is.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from drakkar.allocation import (
    AllocationError,
    Features,
    Pod,
    capacity,
    constraints,
    plans,
    pools,
    result,
    search,
    taints,
)
from tests.allocation import worlds
from tools import fuzz_mutants
from tools.vectors.allocation import plain, share_ids, solve, state_of

Json = dict[str, Any]

ARGUMENTS = ("--timeout", "2s")
MODULES = "drakkar/allocation"
UNTRACED = ("funnel.py", "refusal.py", "changes.py", "taint_rules.py")
"""Explanations, and rules that are merged before the allocator sees them."""


def random_case(seed: int) -> tuple[Json, None]:
    """A case in the format of the oracle; equal seeds give equal cases."""
    case = worlds.random_case(seed)
    return (worlds.on_several_nodes(case, seed) if seed % 3 == 0 else case), None


def ours(case: Json) -> Json:
    """Allocations, error and whether it is for the node only, in the oracle's words."""
    if "nodes" in case:
        return _on_first(case)
    allocations, error, node_only, _ = solve(case)
    return {"allocations": plain(allocations), "error": error, "nodeOnly": node_only, "node": ""}


def _on_first(case: Json) -> Json:
    """Several nodes are asked as a scheduler asks them, and once more with everything prepared."""
    state, answers = state_of(case), []
    for _ in range(2):
        answer: Json = {"allocations": None, "error": None, "nodeOnly": False, "node": ""}
        try:
            features = Features.from_json(case.get("features"))
            found = Pod(state, case["claims"], features=features, share_id=share_ids()).on_first(case["nodes"])
            if found is not None:
                answer["allocations"], answer["node"] = plain(found[1].results), found[0]["metadata"]["name"]
        except AllocationError as error:
            answer["error"], answer["nodeOnly"] = error.message, error.node_only
        answers.append(answer)
    return answers[0] if answers[0] == answers[1] else {**answers[1], "error": f"the second time {answers[1]}"}


def difference(mine: Json, theirs: Json) -> str:
    """The first field in which the two differ, or an empty text."""
    wanted = {
        "allocations": plain(theirs["allocations"]),
        "error": theirs["error"],
        "nodeOnly": bool(theirs.get("nodeOnly")),
        "node": theirs.get("node") or "",
    }
    return next((field for field, value in wanted.items() if mine[field] != value), "")


def kind(theirs: Json) -> str:
    """How a case ended, to count."""
    return "errors" if theirs["error"] else "refusals" if theirs["allocations"] is None else "solutions"


def smaller(case: Json, tree: None = None) -> Iterator[tuple[Json, None]]:
    """The case with one element of a list or one optional field taken out, large things first."""
    for path in sorted(_containers(case), key=len):
        holder = _at(case, path)
        places = reversed(range(len(holder))) if isinstance(holder, list) else list(holder)
        for place in places:
            if place in _NEEDED:
                continue
            candidate = copy.deepcopy(case)
            del _at(candidate, path)[place]
            yield candidate, None


_NEEDED = frozenset(
    ("name", "metadata", "spec", "classes", "slices", "claims", "node", "nodes", "devices", "pool", "driver", "uid")
) | {"generation", "resourceSliceCount", "allocationMode", "requests", "exactly", "status", "allocation", "results"}


def _containers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if isinstance(value, list | dict) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _containers(item, (*path, key))
    return found


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _keeps_counters(self: Any, frame: Any) -> None:
    left = list(self.left)
    _restore(self, frame)
    self.left = left


def _without_build(self: Any, number: int, values: Any) -> None:
    _add(self, number, tuple((kind, v.partition("+")[0] if kind == "version" else v) for kind, v in values))


_restore, _add, _config, _fits = (
    search.Search._restore,
    constraints.AttributeBits.add,
    result._config,
    capacity.Amounts.fits,
)
# The package's `allocate` is the function; this is the module around it.
entry = import_module("drakkar.allocation.allocate")

MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "NoExecute does not block": (taints, "_BLOCKING", ("NoSchedule",)),
    "counters are not given back": (search.Search, "_restore", _keeps_counters),
    "versions match whatever their build": (constraints.AttributeBits, "add", _without_build),
    "constraints remember nothing": (plans.ConstraintPlan, "after", lambda self, before, device: before),
    "capacity in use is forgotten": (capacity.Amounts, "fits", lambda self, consumed=None, by_pod=None: _fits(self)),
    "pools are ordered backwards": (pools, "_pool_order", lambda pool: tuple(-b for b in str(pool.key).encode())),
    "slices keep the order they came in": (pools, "_slice_name", lambda record: b""),
    "groups as large as needed are cut": (entry, "hopeless", lambda plan, used: bool(plan.group_needs)),
    "configuration names no requests": (
        result,
        "_config",
        lambda shape, asks: [{k: v for k, v in item.items() if k != "requests"} for item in _config(shape, asks)],
    ),
    "claims may hold 33 devices": (search, "MAX_RESULTS", 3),
}


def noticed(name: str, seconds: float) -> int:
    """After how many cases the mutant gives another answer; 0 if it does not."""
    return fuzz_mutants.noticed(MUTANTS[name], sys.modules[__name__], seconds)


if __name__ == "__main__":
    raise SystemExit(fuzz_mutants.main(sys.argv[1:], __doc__, MUTANTS, noticed))
