"""Random devices for selectors: attributes of every kind, good ones and such as no driver should publish."""

from __future__ import annotations

import random
from typing import Any, Final

Json = dict[str, Any]


def random_device(rng: random.Random) -> Json:
    """A device; one of a hundred has one attribute that cannot be read."""
    attributes: Json = {}
    for domain in ("", "d.example.com/", "resource.kubernetes.io/"):
        for name, values in _VALUES.items():
            if rng.random() < 0.5:
                attributes[domain + name] = rng.choice(values)
    if rng.random() < 0.01:
        attributes["bad"] = rng.choice(_BAD)
    capacity = {
        domain + "memory": {"value": rng.choice(_AMOUNTS)} for domain in ("", "d.example.com/") if rng.random() < 0.6
    }
    return {
        "driver": rng.choice(_DRIVERS),
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": rng.random() < 0.3,
    }


_VALUES: Final[dict[str, tuple[Json, ...]]] = {
    "s": ({"string": "A100"}, {"string": ""}, {"string": "1.2.3"}, {"string": "grüße"}),
    "i": ({"int": 0}, {"int": 7}, {"int": -3}, {"int": (1 << 63) - 1}, {"int": -(1 << 63)}),
    "b": ({"bool": True}, {"bool": False}),
    "v": ({"version": "1.2.3"}, {"version": "2.0.0-rc.1"}, {"version": "1.2.3+b"}),
    "list": (
        {"strings": ["a", "b"]}, {"ints": [3, 1, 2]}, {"bools": [True]}, {"versions": ["1.0.0"]}, {"ints": []},
        {"strings": []}, {"bools": [True, False]}, {"versions": ["1.0.0", "0.9.0-a"]}, {"strings": ["x" * 64] * 3},
    ),
}  # fmt: skip
_BAD: Final[tuple[Json, ...]] = ({}, {"version": "1.2"}, {"version": ""}, {"versions": ["1.0.0", "x"]})
_AMOUNTS: Final = ("80Gi", "40Gi", "1500m", "0", "1e3", "9Ei", "-1", "0.1n", 7)
_DRIVERS: Final = (*["gpu.nvidia.com"] * 8, "d.example.com", "", "x" * 63)
