"""Short ways of evaluating: the same value, the same error and the same cost as unit by unit."""

from __future__ import annotations

import itertools

import pytest

from drakkar.cel import CelError, DeviceValue, Program, device_environment
from drakkar.cel.program import DEFAULT_COST_LIMIT

ENVIRONMENT = device_environment()
DEVICES = [
    DeviceValue.from_json(
        "gpu.example.com",
        {
            "attributes": {
                "type": {"string": "gpu"},
                "empty": {"string": ""},
                "long": {"string": "a text of more than twenty letters"},
                "number": {"int": 3},
                "on": {"bool": True},
                "version": {"version": "1.2.3"},
                "other.example.com/type": {"string": "nic"},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        },
    ),
    DeviceValue.from_json("other.example.com", {"attributes": {"type": {"int": 1}}}),
]
BOUND = ('device.attributes["gpu.example.com"]', 'device.attributes["nobody"]')
AMOUNTS = (
    'g.memory.isGreaterThan(quantity("1Gi")) && has(g.memory)',
    'g.memory == quantity("40Gi") && g.missing == quantity("1")',
    '"memory" in g && g.size() > 0',
)
RESULTS = (
    'g.type == "gpu"',
    'g.type == "gpu" && g.number == 3 && g.on',
    '"gpu" == g.type',
    'g.missing == "x" || g.type == "gpu"',
    "has(g.type) && g.on",
    'has(g.missing) || g["type"] == "gpu"',
    'g.?type.orValue("") == "gpu"',
    'g.type == "gpu" ? g.on : g.number == 3',
    'g.long == "another text of more than twenty letters" || g.empty == "x"',
    'g.empty == "a long text, longer than ten letters"',
    'g.type.startsWith("g") && g.memory.isGreaterThan(quantity("1Gi"))',
    '"type" in g && g.size() > 1',
    "g.exists(k, k == 'type')",
    "cel.bind(h, g, h.type == 'gpu' && g.number == 3)",
    "cel.bind(g, device.driver, g == 'gpu.example.com') || g.on",
    "false && g.on",
    "true || g.on",
    "device.driver == 'other.example.com' || g.type == 'gpu'",
    "g.version.major() == 1 && g.number < 4",
    "size(g.type) == 3",
    "[g.type, g.empty].exists(t, t == 'gpu')",
)
PLAIN = (
    'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"',
    'device.driver == "gpu.example.org" && device.attributes["gpu.example.com"].type == "gpu"',
    'device.attributes["gpu.example.com"].type == "something quite long" && device.driver == "x"',
    'device.attributes["gpu.example.com"].long == "x" && device.driver == "gpu.example.com"',
    'device.attributes["gpu.example.com"].empty == "x" && device.driver == "gpu.example.com"',
    'device.attributes["gpu.example.com"].empty == "x" || device.driver != "gpu.example.com"',
    'device.attributes["gpu.example.com"].number == "x" && device.driver == "gpu.example.com"',
    'device.attributes["nobody"].type == "x" && device.driver == "gpu.example.com"',
    'device.attributes["nobody"].type == "x" && device.driver == "x"',
    'device.attributes["gpu.example.com"].missing.isGreaterThan(quantity("1Gi"))',
)


def outcome(program: Program, device: DeviceValue, *, unit_by_unit: bool) -> tuple[object, str, int]:
    try:
        if unit_by_unit:
            found = program._again({"device": device}, DEFAULT_COST_LIMIT, None)
        else:
            found = program.evaluate({"device": device})
    except CelError as error:
        return error.kind, str(error), error.cost
    return found.value, "", found.cost


@pytest.mark.parametrize(
    "text",
    [
        *PLAIN,
        *(f"cel.bind(g, {start}, {result})" for start, result in itertools.product(BOUND, RESULTS)),
        *(f'cel.bind(g, device.capacity["gpu.example.com"], {result})' for result in AMOUNTS),
    ],
)
def test_value_error_and_cost_are_those_of_every_single_step(text: str) -> None:
    program = ENVIRONMENT.compile(text)
    for device in DEVICES:
        assert outcome(program, device, unit_by_unit=False) == outcome(program, device, unit_by_unit=True)
