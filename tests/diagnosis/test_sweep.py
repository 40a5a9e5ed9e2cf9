"""Explain never contradicts the allocator: random clusters and pods, and what must hold for each of them.

If no node would give a waiting pod its devices, explain says so (boundary allocation, never "the devices are
available") and quotes the allocator; if one would, it blames no device.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from drakkar.allocation import Allocation, AllocationError, Refusal, allocate
from drakkar.allocation.changes import fits, smallest_changes
from drakkar.diagnosis.explain import explain
from drakkar.diagnosis.refused import as_claim
from drakkar.diagnosis.situation import Situation
from tools.vectors._clusters import snapshot_of

MODELS = ("t4", "l4", "gh200", "l40s", "h100-pcie", "dgx-h100", "a100-40gb")
MEMORY = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{}')) >= 0"
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")
GPUS = {"t4": 1, "l4": 4, "gh200": 1, "l40s": 4, "h100-pcie": 4, "dgx-h100": 8, "a100-40gb": 8}


def random_world(seed: int) -> dict[str, Any]:
    pick = random.Random(seed)
    nodes, pods = {}, []
    for number in range(pick.randint(1, 3)):
        name, model = f"n{number}", pick.choice(MODELS)
        node: dict[str, Any] = {"model": model}
        if model == "h100-pcie" and pick.random() < 0.6:
            node["partitions"] = True
        if pick.random() < 0.2:
            node["device_taints"] = {f"gpu-{each}": "x/bad" for each in range(pick.randint(1, GPUS[model]))}
        if pick.random() < 0.15:
            node["taints"] = [{"key": "team", "effect": "NoSchedule"}]
        if pick.random() < 0.1:
            node["cpu"] = "1"
        nodes[name] = node
        free = [f"gpu-{each}" for each in range(GPUS[model])]
        while free and pick.random() < 0.6 and not node.get("partitions"):
            taken = [free.pop() for _ in range(pick.randint(1, len(free)))]
            pods.append({"name": f"p{len(pods)}", "on": name, "devices": taken})
        if node.get("partitions"):
            for gpu in range(4):
                if pick.random() < 0.6:
                    part = pick.choice(["", "-mig-1g10gb-19-1", "-mig-2g20gb-14-2", "-mig-3g40gb-9-0"])
                    pods.append({"name": f"p{len(pods)}", "on": name, "devices": [f"gpu-{gpu}{part}"]})
    wanted: dict[str, Any] = {"name": "train", "cpu": pick.choice(["0", "2"])}
    shape = pick.random()
    if shape < 0.2:
        wanted |= {"class": "mig.nvidia.com", "count": pick.choice([1, 1, 2, 3])}
        wanted["selector"] = f"device.attributes['gpu.nvidia.com'].profile == '{pick.choice(PROFILES)}'"
    elif shape < 0.35:
        one = {"deviceClassName": "gpu.nvidia.com", "count": pick.choice([1, 2, 4])}
        other = {"deviceClassName": pick.choice(["gpu.nvidia.com", "mig.nvidia.com"]), "count": pick.choice([1, 2, 3])}
        requests = [{"name": "a", "exactly": one}, {"name": "b", "exactly": other}]
        if pick.random() < 0.5:
            options = [{"name": "big", **one, "count": 9}, {"name": "small", **other}]
            requests = [{"name": "a", "firstAvailable": options}]
        wanted["devices"] = {"requests": requests}
    else:
        wanted["count"] = pick.choice([1, 1, 2, 3, 4, 8, 9])
        if pick.random() < 0.3:
            wanted["selector"] = MEMORY.format(pick.choice(["20Gi", "40Gi", "79Gi", "200Gi"]))
        if pick.random() < 0.2:
            wanted["match"] = "resource.kubernetes.io/pcieRoot"
        if pick.random() < 0.1:
            wanted["all"] = True
    if pick.random() < 0.3:
        wanted["tolerate"] = "x/bad"
    return {"nodes": nodes, "pods": pods, "waiting": [wanted]}


def judged(cluster: dict[str, Any]) -> tuple[Any, list[Refusal], bool, int]:
    """The snapshot, the refusals of nodes that would take the pod, whether one fits, and how many would take it."""
    snapshot = snapshot_of(cluster)
    situation = Situation(snapshot)
    pod = snapshot.get("Pod", "train", "ml")
    claims = [as_claim(pod, use) for use in situation.claims_of(pod)]
    refusals, fit, eligible = [], False, 0
    for name, reason in situation.refusals(pod).items():
        if reason:
            continue
        eligible += 1
        try:
            answer = allocate(situation.allocator, claims, snapshot.get("Node", name))
        except AllocationError:
            continue
        fit = fit or isinstance(answer, Allocation)
        refusals += [answer] if isinstance(answer, Refusal) else []
    return snapshot, refusals, fit, eligible


def contradiction(seed: int) -> tuple[str, str]:
    """What explain says against the allocator ("" for nothing), and the cause it names."""
    snapshot, refusals, fit, eligible = judged(random_world(seed))
    verdict = explain(snapshot, "pod/train", namespace="ml")
    said = " ".join([verdict.sentence, verdict.next_step, *(item.text for item in verdict.evidence)])
    if fit:
        good = verdict.cause == "not-enough-evidence" and "could be met" in verdict.sentence
        return ("" if good else f"it could be had: {verdict.sentence}"), verdict.cause
    if verdict.boundary != "allocation" or verdict.cause in ("healthy", "not-enough-evidence"):
        return f"it could not: {verdict.cause}: {verdict.sentence}", verdict.cause
    if "could be met" in said or "are available" in said:
        return f"it says that devices can be had: {verdict.sentence}", verdict.cause
    if eligible and refusals and not any(refusal.message in said for refusal in refusals):
        return f"the allocator is not quoted: {verdict.cause}: {verdict.sentence}", verdict.cause
    return "", verdict.cause


def test_explain_never_contradicts_the_allocator() -> None:
    causes: Counter[str] = Counter()
    for seed in range(60):
        text, cause = contradiction(seed)
        causes[cause] += 1
        assert not text, f"seed {seed}: {text}"
    assert len(causes) >= 6, causes


@pytest.mark.parametrize("seed", range(12))
def test_every_change_that_is_named_makes_it_fit(seed: int) -> None:
    snapshot, refusals, fit, _ = judged(random_world(seed))
    if fit:
        return
    verdict = explain(snapshot, "pod/train", namespace="ml")
    named = verdict.next_step.partition("it would fit with: ")[2]
    changes = [(refusal, change) for refusal in refusals for change in smallest_changes(refusal)]
    for refusal, change in changes:
        assert fits(refusal, change), change.text
    texts = {change.text for _, change in changes}
    for part in filter(None, named.split("; or ")):
        assert part.rpartition(" (node ")[0] in texts or part in texts, part
