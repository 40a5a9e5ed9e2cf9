"""The answer as the API has it: AllocationResult per claim, with configuration and node selector.

Rules of KEP-4381 as 1.37 applies them: results in the order of allocation; class configuration once per class, naming
the requests that use it; claim configuration that concerns a chosen request; a list of requests that covers everything
is left out. A device that belongs to the node ties the claim to it, otherwise the selectors of the devices are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drakkar.allocation.errors import AllocationError
from drakkar.allocation.features import Features
from drakkar.allocation.plans import Chosen
from drakkar.allocation.requests import Ask, ClaimShape
from drakkar.allocation.slices import Device

Json = dict[str, Any]


def allocation_result(
    name: str,
    shape: ClaimShape,
    asks: Sequence[Ask],
    chosen: Sequence[Chosen],
    *,
    device_of: Callable[[int], Device],
    node_name: str,
    features: Features,
    share_id: Callable[[], str],
) -> Json:
    """One `status.allocation`; `asks` are the chosen alternatives in the order of the requests."""
    chosen_devices = [device_of(choice.device) for choice in chosen]
    results = [
        {"request": choice.ask.name, "driver": device.key.driver, "pool": device.key.pool, "device": device.key.device}
        if device.ordinary and choice.ask.ordinary
        else _device_result(choice, device, features, share_id)
        for choice, device in zip(chosen, chosen_devices, strict=True)
    ]
    found: Json = {"devices": {"results": results} if results else {}}
    if shape.configured:
        config = _config(shape, asks)
        if config:
            found["devices"]["config"] = config
    selector = _node_selector(name, chosen_devices, node_name)
    if selector is not None:
        found["nodeSelector"] = selector
    return found


def _device_result(choice: Chosen, device: Device, features: Features, share_id: Callable[[], str]) -> Json:
    ask, raw, key = choice.ask, device.raw, device.key
    result: Json = {"request": ask.name, "driver": key.driver, "pool": key.pool, "device": key.device}
    if ask.admin:
        result["adminAccess"] = True
    if ask.tolerations:
        result["tolerations"] = ask.tolerations
    if raw.get("bindingConditions"):
        result["bindingConditions"] = raw["bindingConditions"]
    if raw.get("bindingFailureConditions"):
        result["bindingFailureConditions"] = raw["bindingFailureConditions"]
    if device.shareable and features.consumable_capacity:
        result["shareID"] = share_id()
        if choice.amounts is not None and choice.amounts.taken:
            result["consumedCapacity"] = {name: str(amount) for name, amount in choice.amounts.taken.items()}
    if device.slice.skip_operations and features.experimental and features.optional_node_operations:
        result["skipNodeOperations"] = device.slice.skip_operations
    return result


def _config(shape: ClaimShape, asks: Sequence[Ask]) -> list[Json]:
    config: list[Json] = []
    users: dict[str, list[str]] = {}
    for ask in asks:
        users.setdefault(ask.class_record.name, []).append(ask.name)
    everything = len(asks)
    for ask in _first(asks):
        names = users[ask.class_record.name]
        for entry in ask.class_record.config:
            found: Json = {"source": "FromClass", **entry}
            if len(names) < everything:
                found["requests"] = names
            config.append(found)
    for entry in shape.config:
        requests = entry.get("requests") or []
        wanted = set(requests)
        covered = sum(1 for ask in asks if ask.name in wanted or ask.parent in wanted)
        if requests and not covered:
            continue
        found = {"source": "FromClaim", **{key: value for key, value in entry.items() if key != "requests"}}
        if requests and covered < everything:
            found["requests"] = requests
        config.append(found)
    return config


def _first(asks: Sequence[Ask]) -> list[Ask]:
    """The first request of each class."""
    seen: dict[str, Ask] = {}
    for ask in asks:
        seen.setdefault(ask.class_record.name, ask)
    return list(seen.values())


def _node_selector(claim: str, devices: Sequence[Device], node_name: str) -> Json | None:
    fields: list[Any] = []
    expressions: list[Any] = []
    seen: set[tuple[Any, ...]] = set()
    for device in devices:
        owner, raw = device.slice, device.raw
        node = raw.get("nodeName") if owner.per_device else owner.node_name
        if node or device.binds_to_node:
            only = {"key": "metadata.name", "operator": "In", "values": [node_name]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        selector = raw.get("nodeSelector") if owner.per_device else owner.selector
        if selector is None:
            continue
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:
            text = f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            raise AllocationError(f"create NodeSelector for claim {claim}: {text}", reason="UnsupportedSelector")
        _add_new(fields, terms[0].get("matchFields") or (), "field", seen)
        _add_new(expressions, terms[0].get("matchExpressions") or (), "label", seen)
    if not fields and not expressions:
        return None
    term: Json = {}
    if expressions:
        term["matchExpressions"] = expressions
    if fields:
        term["matchFields"] = fields
    return {"nodeSelectorTerms": [term]}


def _add_new(
    known: list[Any], requirements: Sequence[Mapping[str, Any]], kind: str, seen: set[tuple[Any, ...]]
) -> None:
    for requirement in requirements:
        values = frozenset(requirement.get("values") or ())
        identity = (kind, requirement.get("key"), requirement.get("operator"), values)
        if identity not in seen:
            seen.add(identity)
            known.append(requirement)
