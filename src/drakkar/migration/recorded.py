"""Recorded devices, and which of them a request can get: class and request selectors by the scheduler's own engine.

Only what selectors say counts here, plus the nodes' taints and what recorded claims hold; counters, constraints and
quotas are the business of `drakkar explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from drakkar.cel import CelError, DeviceValue, Program, device_environment
from drakkar.kube.paths import value_at
from drakkar.migration.claims import Request
from drakkar.migration.documents import items_at
from drakkar.migration.review import Review

__all__ = ["RecordedDevice", "devices_of", "matching", "nodes_of"]


@dataclass(frozen=True, eq=False)
class RecordedDevice:
    """One published device: its node ("" if it is not bound to one), its key, and who holds it by claim."""

    node: str
    driver: str
    pool: str
    name: str
    value: DeviceValue
    holder: tuple[str, str] | None


def devices_of(review: Review) -> list[RecordedDevice]:
    """All devices of the newest generation of every pool."""
    holders = _holders(review)
    newest: dict[tuple[str, str], int] = {}
    for spec in _specs(review):
        key, generation = _pool(spec)
        newest[key] = max(newest.get(key, 0), generation)
    found = []
    for spec in _specs(review):
        key, generation = _pool(spec)
        if generation < newest[key]:
            continue
        for device in items_at(spec, "devices"):
            if _well_formed(device):
                name = str(device.get("name"))
                node = str(device.get("nodeName") or spec.get("nodeName") or "")
                holder = holders.get((*key, name))
                found.append(RecordedDevice(node, *key, name, DeviceValue.from_json(key[0], device), holder))
    return found


def matching(
    review: Review, request: Request, devices: list[RecordedDevice], *, selectors: int | None = None
) -> list[RecordedDevice] | None:
    """The devices that satisfy the class and the first `selectors` of the request; None if that cannot be evaluated."""
    expressions = _class_expressions(review, request.class_name)
    if expressions is None:
        return None
    own = [selector.expression for selector in request.selectors]
    try:
        programs = [_program(text) for text in (*expressions, *(own if selectors is None else own[:selectors]))]
        return [device for device in devices if _all_true(programs, device)]
    except CelError:
        return None


def nodes_of(review: Review) -> dict[str, Mapping[str, Any]]:
    """Recorded Nodes by name."""
    return {str(value_at(node, ("metadata", "name"))): node for node in review.recorded("Node")}


def _all_true(programs: list[Program], device: RecordedDevice) -> bool:
    bindings = {"device": device.value}
    return all(program.evaluate(bindings).value is True for program in programs)


def _class_expressions(review: Review, class_name: str) -> list[str] | None:
    obj = review.classes.get(class_name)
    if obj is None:
        kinds = review.device_kinds(class_name)
        if len(kinds) != 1:
            return None
        driver, kind = kinds[0].driver, kinds[0].type
        return [f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'"]
    return [str(value_at(entry, ("cel", "expression"))) for entry in items_at(obj, "spec", "selectors")]


@lru_cache(maxsize=1024)
def _program(text: str) -> Program:
    return device_environment().compile(text)


def _specs(review: Review) -> Iterator[Mapping[str, Any]]:
    for obj in review.recorded("ResourceSlice"):
        spec = obj.get("spec")
        if isinstance(spec, dict):
            yield spec


def _pool(spec: Mapping[str, Any]) -> tuple[tuple[str, str], int]:
    pool = spec.get("pool")
    pool = pool if isinstance(pool, dict) else {}
    generation = pool.get("generation", 0)
    return (str(spec.get("driver")), str(pool.get("name"))), generation if isinstance(generation, int) else 0


def _holders(review: Review) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Namespace and name of the claim that holds a device, by driver, pool and device."""
    found = {}
    for claim in review.recorded("ResourceClaim"):
        names = value_at(claim, ("metadata", "namespace")), value_at(claim, ("metadata", "name"))
        for result in items_at(claim, "status", "allocation", "devices", "results"):
            if not result.get("adminAccess"):
                key = (str(result.get("driver")), str(result.get("pool")), str(result.get("device")))
                found[key] = (str(names[0] or ""), str(names[1] or ""))
    return found


def _well_formed(device: Mapping[str, Any]) -> bool:
    """Whether attributes and capacities have the shape that every API server insists on."""
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    return (
        isinstance(attributes, dict)
        and isinstance(capacity, dict)
        and all(isinstance(each, dict) and _scalars(each) for each in attributes.values())
        and all(isinstance(value_at(each, ("value",)), str | int) for each in capacity.values())
    )


def _scalars(attribute: Mapping[str, Any]) -> bool:
    return all(isinstance(each, str | int | list) for each in attribute.values()) and not isinstance(
        attribute.get("version", ""), list | int
    )
