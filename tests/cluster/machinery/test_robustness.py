"""Whatever is sent ends in an object or in an error of ours: random bodies of every kind go the whole way.

Bodies follow the types' tables with odd values strewn in, from a fixed seed. A traceback for bad input is a defect.
"""

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from drakkar.cluster.machinery import kinds, patching, protobuf, schemas, tables
from drakkar.cluster.machinery.apply import ApplyConflict, apply, update_managed_fields
from drakkar.cluster.machinery.kinds import DecodeError, Kind, kind_of

NOW = "2026-01-01T00:00:00Z"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ODD: list[Any] = [
    "", None, 0, -1, 2**31, 2**63, 1.5, True, [], {}, [None], [{}], {"": None}, "x", "A/b/c", "é", "-", "1Gi", NOW,
    "a" * 300, [[]], {"a": {}}, "1e400",
]  # fmt: skip
WORDS = ("a", "b", "", "Always", "x.y", "A_b", "Exists", "In", "ExactCount", "gpu.example.com", "device.driver == 'a'")
KEYS = ("a", "b.c/d", "", "A b", "cpu", "nvidia.com/gpu", "k" * 70)
SCALARS: dict[str, tuple[Any, ...]] = {
    "s": WORDS, "i": (0, 1, -1, 5, 70000), "b": (True, False), "T": (NOW,), "M": ("2026-01-01T00:00:00.000000Z",),
    "D": ("1m",), "Q": ("1", "-1", "1Gi", "500m", 5), "X": (1, "25%", "x", "101%"), "B": ("aGk=",), "f": (1.5,),
}  # fmt: skip
ALL = [
    found
    for version, names in schemas.kinds().items()
    for name in names
    if (found := kind_of(version.rpartition("/")[0], version.rpartition("/")[2], name))
    and (found.group, name) in kinds._RULES
]


class Sender:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def value(self, kind: schemas.Type, depth: int = 0) -> Any:
        pick = self.chance
        if pick.random() < 0.06:
            return pick.choice(ODD)
        if kind.code == "@":
            fields = list(kind.struct.fields.values())
            density = (0.7 if depth < 2 else 0.25 if depth < 7 else 0) / (1 + len(fields) / 12)
            return {field.name: self.value(field.type, depth + 1) for field in fields if pick.random() < density}
        if kind.code == "L":
            return [self.value(kind.item, depth + 1) for _ in range(pick.choice((0, 1, 1, 2)))]
        if kind.code == "K":
            return {pick.choice(KEYS): self.value(kind.item, depth + 1) for _ in range(pick.choice((0, 1, 2)))}
        return pick.choice(SCALARS.get(kind.code, ({}, {"a": 1}, "x", [])))

    def body(self, kind: Kind) -> dict[str, Any]:
        obj = self.value(schemas.type_of("@" + kind.schema.name))
        obj = obj if isinstance(obj, dict) else {}
        meta = obj.get("metadata")
        obj["metadata"] = {**(meta if isinstance(meta, dict) else {}), "name": "x"}
        return {**obj, "apiVersion": kind.group_version, "kind": kind.kind}


def created(sender: Sender, kind: Kind) -> dict[str, Any] | None:
    try:
        decoded = kind.decode(json.dumps(sender.body(kind)).encode(), "application/json", "Warn")
    except DecodeError as error:
        assert error.status()["code"] == 400
        return None
    obj = update_managed_fields(None, kind.default(decoded.object, now=NOW), kind, manager="m", subresource="", now=NOW)
    obj = kind.prepare_create(obj)
    json.dumps(kind.invalid_status(obj, kind.validate_create(obj)))
    kind.warnings(obj)
    return obj


def go_on(sender: Sender, kind: Kind, old: dict[str, Any]) -> None:
    tables.table(kind, [old], now=MOMENT)
    again = kind.decode(protobuf.encode(old), "application/vnd.kubernetes.protobuf")
    assert again.object["kind"] == kind.kind
    new = created(sender, kind)
    subresource = sender.chance.choice(("", "status")) if kind.rules.status else ""
    if new is not None:
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": "1"}}
        new = update_managed_fields(old, new, kind, manager="n", subresource=subresource, now=NOW)
        new = kind.prepare_update(new, old, subresource)
        json.dumps(kind.invalid_status(new, kind.validate_update(new, old, subresource)))
    for media in (patching.MERGE_PATCH, patching.STRATEGIC_PATCH):
        try:
            patching.patch(kind, old, json.dumps(sender.body(kind)).encode(), media)
        except patching.PatchError as error:
            assert error.status()["status"] == "Failure"
    try:
        apply(old, sender.body(kind), kind, manager="a", force=False, subresource=subresource, now=NOW)
    except (patching.PatchError, ApplyConflict) as error:
        assert error.status()["status"] == "Failure"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: f"{kind.group_version}-{kind.kind}")
def test_random_bodies(kind: Kind) -> None:
    sender = Sender(7)
    for _ in range(8):
        obj = created(sender, kind)
        if obj is not None:
            go_on(sender, kind, obj)
