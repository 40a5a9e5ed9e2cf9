"""Against recorded devices: selectors that match none, rollouts that cannot fit, taints that nobody tolerates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drakkar.migration.claims import Claim, Request
from drakkar.migration.documents import Steps, items_at
from drakkar.migration.findings import Finding
from drakkar.migration.pods import PodTemplate
from drakkar.migration.recorded import RecordedDevice, devices_of, matching, nodes_of
from drakkar.migration.review import Review
from drakkar.migration.rules import rule


@rule("inventory")
def matches_nothing(review: Review) -> Iterator[Finding]:
    """Selectors that no recorded device satisfies."""
    devices = devices_of(review)
    if not devices:
        return
    for _, request in review.iterate_requests():
        selectors = request.selectors
        if not selectors or not matching(review, request, devices, selectors=0):
            continue
        for number, selector in enumerate(selectors, 1):
            left = matching(review, request, devices, selectors=number)
            if left is None:
                break
            if not left:
                yield selector.document.finding(
                    "selector-matches-nothing",
                    selector.steps,
                    f"none of the {len(devices)} recorded devices satisfies the selectors:"
                    f" {_nearest(review, request, devices)}",
                )
                break


def _nearest(review: Review, request: Request, devices: list[RecordedDevice]) -> str:
    """What the devices of the class are."""
    of_class = matching(review, request, devices, selectors=0) or []
    names = Counter(_described(device) for device in of_class)
    return "there are " + ", ".join(f"{count} × {name}" for name, count in names.most_common(4))


def _described(device: RecordedDevice) -> str:
    attributes = device.value["attributes"].get(device.driver, {})
    memory = device.value["capacity"].get(device.driver, {}).get("memory")
    text = " ".join(str(attributes[name]) for name in ("productName", "profile") if name in attributes)
    return (text or device.name) + (f" ({memory})" if memory is not None else "")


@rule("inventory")
def surge(review: Review) -> Iterator[Finding]:
    """A rolling update that starts new pods before old ones end."""
    devices = devices_of(review)
    if not devices:
        return
    for pod in review.pods:
        document = pod.document
        if document.kind != "Deployment" or pod.steps != ("spec", "template", "spec"):
            continue
        rollout = _rollout(document.at(("spec", "strategy")), pod.replicas)
        per_pod = _requests(review, pod)
        if rollout is None or not per_pod or rollout[1] > 0:
            continue
        total = pod.replicas + rollout[0]
        free = [device for device in devices if not _held_by_others(device, pod)]
        room = _room(review, per_pod, free)
        if room is not None and room < total:
            each = sum(request.count for request in per_pod)
            yield document.finding(
                "surge-cannot-fit",
                _strategy_place(document.at(("spec", "strategy"))),
                f"a rolling update runs {total} pods at once ({pod.replicas} and {rollout[0]} more) and takes none away"
                f" before the new ones are ready: {total * each} devices, but the recorded inventory has room for"
                f" {room}"
                f" such pods; use strategy Recreate, or maxSurge: 0 with maxUnavailable: 1",
            )


def _rollout(strategy: Any, replicas: int) -> tuple[int, int] | None:
    """Pods above and below `replicas` during a rolling update; None if there is none."""
    strategy = strategy if isinstance(strategy, dict) else {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate" or replicas < 1:
        return None
    update = strategy.get("rollingUpdate")
    update = update if isinstance(update, dict) else {}
    more = _share(update.get("maxSurge", "25%"), replicas, math.ceil)
    fewer = _share(update.get("maxUnavailable", "25%"), replicas, math.floor)
    return (more, fewer) if more or fewer else (0, 1)


def _share(value: Any, replicas: int, rounding: Any) -> int:
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return int(rounding(replicas * int(value[:-1]) / 100))
    return int(value) if str(value).isdigit() else 0


def _strategy_place(strategy: Any) -> Steps:
    if not isinstance(strategy, dict):
        return ("spec",)
    update = strategy.get("rollingUpdate")
    if not isinstance(update, dict):
        return ("spec", "strategy")
    inner = ("maxSurge",) if "maxSurge" in update else ()
    return ("spec", "strategy", "rollingUpdate", *inner)


def _requests(review: Review, pod: PodTemplate) -> list[Request]:
    """The requests of each pod of its own: those made from templates."""
    found = []
    for entry in pod.claims:
        claim: Claim | None = review.claim(pod, entry)
        if claim is not None and entry.target[1] == "ResourceClaimTemplate":
            found += [group[0] for group in claim.groups() if group]
    return found


def _room(review: Review, requests: Sequence[Request], devices: list[RecordedDevice]) -> int | None:
    """How many such pods fit, each on one node; None if that cannot be told."""
    if any(request.all for request in requests):
        return None
    rooms: Counter[str] = Counter()
    fits: dict[str, int] = {}
    wanted: Counter[str] = Counter()
    for request in requests:
        found = matching(review, request, devices)
        if found is None:
            return None
        text = request.class_name + "\0" + "\0".join(selector.expression for selector in request.selectors)
        wanted[text] += request.count
        rooms = Counter(device.node for device in found)
        for node in {device.node for device in devices}:
            fits[node] = min(fits.get(node, rooms[node]), rooms[node] // max(wanted[text], 1))
    return sum(fits.values())


def _held_by_others(device: RecordedDevice, pod: PodTemplate) -> bool:
    """Claims of the Deployment's own pods are named after it, and go with the rollout."""
    if device.holder is None:
        return False
    namespace, name = device.holder
    return not (name.startswith(f"{pod.document.name}-") and pod.document.namespace in ("", namespace))


@rule("inventory")
def taints(review: Review) -> Iterator[Finding]:
    """Every node with such devices is tainted."""
    devices, nodes = devices_of(review), nodes_of(review)
    if not devices or not nodes:
        return
    for pod in review.pods:
        candidates = _candidates(review, pod, devices)
        if not candidates or not candidates <= nodes.keys():
            continue
        blocked = [_blocking(nodes[name], pod.spec.get("tolerations")) for name in sorted(candidates)]
        if all(blocked):
            taint = next(each for each in blocked if each)
            shown = (
                "=".join(str(taint[part]) for part in ("key", "value") if taint.get(part)) + f":{taint.get('effect')}"
            )
            steps = pod.steps + (("tolerations",) if isinstance(pod.spec.get("tolerations"), list) else ())
            yield pod.document.finding(
                "node-taint-not-tolerated",
                steps,
                f"every node with such devices ({', '.join(sorted(candidates)[:3])}) is tainted {shown}; a claim"
                " brings no"
                " toleration along, as nvidia.com/gpu in limits does",
                f"tolerations: [{{key: {taint.get('key')}, operator: Exists, effect: {taint.get('effect')}}}]",
            )


def _candidates(review: Review, pod: PodTemplate, devices: list[RecordedDevice]) -> set[str]:
    """Nodes that have devices for each request of the pod's claims."""
    found: set[str] | None = None
    for entry in pod.claims:
        claim = review.claim(pod, entry)
        for request in claim.requests() if claim is not None else ():
            fitting = matching(review, request, devices)
            if fitting is None or request.alternative:
                return set()
            names = {device.node for device in fitting}
            found = names if found is None else found & names
    return {name for name in found or () if name}


def _blocking(node: Mapping[str, Any], tolerations: Any) -> Mapping[str, Any] | None:
    """The first taint that keeps the pod away."""
    for taint in items_at(node, "spec", "taints"):
        tolerated = any(_tolerates(each, taint) for each in (tolerations if isinstance(tolerations, list) else ()))
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerated:
            return dict(taint)
    return None


def _tolerates(toleration: Any, taint: Mapping[str, Any]) -> bool:
    if not isinstance(toleration, dict) or toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")
