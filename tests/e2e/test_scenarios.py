"""What the driver promises a pod, on a real kubelet: each scenario is a file under `scenarios/`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.conftest import World
from tests.e2e.node import Seen
from tests.e2e.scenarios import Scenario, scenarios

_WITHIN = 20.0


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda one: one.name)
def test_scenario(scenario: Scenario, world: World) -> None:
    world.drivers(scenario.driver)
    world.apply(*scenario.manifests)
    expect = scenario.expect
    waiting = {**expect.get("unschedulable", {}), **expect.get("refused", {})}
    pods = [one["metadata"]["name"] for one in scenario.manifests if one["kind"] == "Pod"]
    ready = expect.get("ready", [pod for pod in pods if pod not in waiting])
    if ready:
        world.ready(*ready, seconds=_WITHIN)
    for selector, count in expect.get("pods", {}).items():
        pattern = rf"^((\S+ (Running|Succeeded) ?(true)?\n){{{count}}})$"
        columns = r'jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}'
        world.until("pods", "-l", selector, "-o", columns, matches=pattern, seconds=_WITHIN)
    for place, wanted in expect.get("sees", {}).items():
        for seen in _at(world, place):
            _check(place, seen, wanted)
    for word, holds in (("distinct", False), ("same", True)):
        if word in expect:
            hardware = [seen.hardware for place in expect[word] for seen in _at(world, place)]
            assert all(hardware), hardware
            different = len(set(hardware))
            assert different == (1 if holds else len(hardware)), f"{word}: {hardware}"
    for pod, pattern in expect.get("unschedulable", {}).items():
        columns = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
        world.until("pod", pod, "-o", columns, matches=pattern, seconds=_WITHIN)
    for pod, pattern in expect.get("refused", {}).items():
        selector = f"involvedObject.name={pod},reason=FailedPrepareDynamicResources"
        world.until("events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}", matches=pattern)


def _at(world: World, place: str) -> list[Seen]:
    return world.seen_all(place) if "=" in place else [world.seen(place)]


def _check(place: str, seen: Seen, wanted: dict[str, Any]) -> None:
    if "gpus" in wanted:
        assert len(seen.gpus) == wanted["gpus"], f"{place} sees {seen}"
        paths = [node.split()[0] for node in seen.nodes if re.match(r"/dev/nvidia\d+ ", node)]
        assert len(paths) == wanted["gpus"], f"{place} has the nodes {seen.nodes}"
    if "migs" in wanted:
        assert len(seen.migs) == wanted["migs"], f"{place} sees {seen}"
        capabilities = [node for node in seen.nodes if "/nvidia-cap" in node]
        assert len(capabilities) == 2 * wanted["migs"], f"{place} has the nodes {seen.nodes}"
    if "vfio" in wanted:
        paths = sorted(node.split()[0] for node in seen.nodes)
        patterns = sorted(wanted["vfio"])
        assert len(paths) == len(patterns) and all(map(re.fullmatch, patterns, paths)), f"{place} has {seen.nodes}"
    for variable in wanted.get("environment", ()):
        assert variable in seen.environment, f"{place} has the environment {seen.environment}"
    if "limits" in wanted:
        assert list(seen.limits) == wanted["limits"], f"{place} sees {seen}"
    if "models" in wanted:
        assert all(re.search(wanted["models"], line) for line in seen.lines), f"{place} sees {seen.lines}"
