"""What the objects look like that this room reads, so that everything behind the border can rely on it.

API servers check far more; a library also meets files written by hand and peers that are not API servers. The types
below are only used to look at an object, which stays the plain JSON it was. Unknown fields are nobody's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from drakkar.allocation.errors import AllocationError

Amount = str | int | float | None
Texts = list[str] | None

_Shape = TypeVar("_Shape", bound="Shape")


class Shape(msgspec.Struct, rename="camel", gc=False):
    """Base of all shapes; fields are named as in JSON."""


class Metadata(Shape):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    creation_timestamp: str | None = None


class Cel(Shape):
    expression: str | None = None


class Selector(Shape):
    cel: Cel | None = None


class Requirement(Shape):
    key: str | None = None
    operator: str | None = None
    values: Texts = None


class Term(Shape):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Shape):
    node_selector_terms: list[Term] | None = None


class Attribute(Shape):
    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    strings: Texts = None
    versions: Texts = None


class Range(Shape):
    min: Amount = None
    max: Amount = None
    step: Amount = None


class Policy(Shape):
    default: Amount = None
    valid_values: list[Amount] | None = None
    valid_range: Range | None = None


class Capacity(Shape):
    value: Amount = None
    request_policy: Policy | None = None


class Counter(Shape):
    value: Amount = None


class Consumption(Shape):
    counter_set: str | None = None
    counters: dict[str, Counter] | None = None
    compatibility_groups: Texts = None


class Taint(Shape):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class Device(Shape):
    name: str
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    consumes_counters: list[Consumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[Taint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: Texts = None
    binding_failure_conditions: Texts = None
    allow_multiple_allocations: bool | None = None


class CounterSet(Shape):
    name: str | None = None
    counters: dict[str, Counter] | None = None


class Pool(Shape):
    name: str | None = None
    generation: int | None = None
    resource_slice_count: int | None = None


class SliceSpec(Shape):
    pool: Pool
    driver: str | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None
    skip_node_operations: Texts = None


class Slice(Shape):
    spec: SliceSpec
    metadata: Metadata | None = None


class ClassSpec(Shape):
    selectors: list[Selector] | None = None
    config: list[dict[str, Any]] | None = None
    extended_resource_name: str | None = None


class Class(Shape):
    spec: ClassSpec | None = None
    metadata: Metadata | None = None


class Toleration(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class CapacityRequest(Shape):
    requests: dict[str, Amount] | None = None


class Derived(Shape):
    name: str | None = None
    expression: str | None = None


class Exactly(Shape):
    name: str | None = None
    device_class_name: str | None = None
    selectors: list[Selector] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[Toleration] | None = None
    capacity: CapacityRequest | None = None
    derived_attributes: list[Derived] | None = None


class Request(Shape):
    name: str | None = None
    exactly: Exactly | None = None
    first_available: list[Exactly] | None = None


class Constraint(Shape):
    requests: Texts = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class Config(Shape):
    requests: Texts = None


class DeviceClaim(Shape):
    requests: list[Request] | None = None
    constraints: list[Constraint] | None = None
    config: list[Config] | None = None


class ClaimSpec(Shape):
    devices: DeviceClaim | None = None


class Claim(Shape):
    spec: ClaimSpec | None = None
    metadata: Metadata | None = None


class Result(Shape):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    admin_access: bool | None = None
    consumed_capacity: dict[str, Amount] | None = None


class Results(Shape):
    results: list[Result] | None = None


class Allocated(Shape):
    devices: Results | None = None


class Consumer(Shape):
    name: str | None = None


class ClaimStatus(Shape):
    allocation: Allocated | None = None
    reserved_for: list[Consumer] | None = None


class AllocatedClaim(Shape):
    status: ClaimStatus | None = None
    metadata: Metadata | None = None


class NodeStatus(Shape):
    declared_features: Texts = None


class Node(Shape):
    metadata: Metadata | None = None
    status: NodeStatus | None = None


def check(obj: Any, shape: type[_Shape], kind: str) -> None:
    """Raise `AllocationError` with kind, name, path and reason if the object has not this shape."""
    try:
        msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        where = path.strip("`").removeprefix("$.") or "the object"
        subject = f"{kind}/{_name(obj)}"
        raise AllocationError(
            f"{subject}: {where}: {text[:1].lower()}{text[1:]}",
            reason="MalformedObject",
            subject=subject,
            expected=kind,
        ) from error


def _name(obj: Any) -> str:
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    return f"{namespace}/{name}" if namespace else str(name or "?")
