"""Allocation cases: objects that an allocator sees and what the allocator of Kubernetes 1.37 makes of them.

The format is described in cases/allocation/README.md. Each case must also leave its objects as they were, and
performance scenarios (`nodes` instead of `node`) name the node that is expected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from drakkar.allocation import AllocationError, ClusterState, Features, allocate
from tools.vectors import Outcome, difference

DEFAULT = "cases/allocation"

Json = dict[str, Any]


def run(folder: Path) -> Iterator[Outcome]:
    """Every case of every .jsonl file in the folder."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if line.strip():
                case = json.loads(line)
                yield Outcome(case["name"], check(case))


def check(case: Json) -> list[str]:
    """What differs from the case's expectation; what is raised besides AllocationError counts as well."""
    before = json.dumps(case)
    try:
        allocations, error, node_only, node = solve(case)
    except Exception as problem:
        return [f"raised {type(problem).__name__}: {problem}"]
    expect = case["expect"]
    differences = difference("allocations", plain(expect["allocations"]), plain(allocations))
    if expect["error"] is None or error is None:
        differences += difference("error", expect["error"], error)
    elif expect["error"] not in error:
        differences.append(f"error: wanted {expect['error']!r} in {error!r}")
    differences += difference("nodeOnly", bool(expect.get("nodeOnly")), node_only)
    if "node" in expect:
        differences += difference("node", expect["node"], node)
    if json.dumps(case) != before:
        differences.append("the objects of the case were changed")
    return differences


def state_of(case: Json) -> ClusterState:
    """The cluster of a case."""
    state = ClusterState()
    for item in case["slices"]:
        state.upsert_slice(item)
    for item in case["classes"]:
        state.upsert_class(item)
    for item in case.get("allocatedClaims") or ():
        state.upsert_claim(item)
    return state


def solve(case: Json, state: ClusterState | None = None) -> tuple[list[Json] | None, str | None, bool, str]:
    """Allocations, error text, whether it is for one node only, and the node that was taken."""
    state = state or state_of(case)
    features, share_id = Features.from_json(case.get("features")), share_ids()
    node_error: str | None = None
    for node in case.get("nodes") or [case["node"]]:
        try:
            found = allocate(state, case["claims"], node, features=features, share_id=share_id)
        except AllocationError as error:
            if not error.node_only:
                return None, error.message, False, ""
            node_error = node_error or error.message
            continue
        if found:
            return found.results, None, False, node["metadata"]["name"]
    return None, node_error, node_error is not None, ""


def share_ids() -> Callable[[], str]:
    """share-1, share-2, … as the cases name them."""
    numbers = iter(range(1, 1 << 30))
    return lambda: f"share-{next(numbers)}"


def plain(value: Any) -> Any:
    """JSON without empty lists and maps, which are the same as absent ones."""
    if isinstance(value, dict):
        items = ((key, plain(item)) for key, item in value.items())
        return {key: item for key, item in items if item not in ({}, [], None)}
    return [plain(item) for item in value] if isinstance(value, list) else value
