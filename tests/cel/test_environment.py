"""Environments: what an expression may use, by version, mode and gate; and environments of one's own."""

import subprocess
import sys

import pytest

from drakkar.cel import CelError, DeviceValue, Environment, device_environment, types
from drakkar.cel.libraries.catalog import libraries_for

DEVICE = DeviceValue.from_json("d", {"attributes": {"a": {"int": 1}, "l": {"ints": [1]}}})

SINCE = [
    (31, 'cel.bind(x, 1, x == 1) && !format.uuid().validate("x").hasValue() || true'),
    (32, "[1].all(i, v, v > i)"),
    (33, 'semver("v1", true).major() == 1'),
    (34, "[2, 1].sort() == [1, 2]"),
    (34, "!device.allowMultipleAllocations"),
    (36, "[1].includes(1)"),
    (36, 'device.attributes["d"].l.exists(x, x == 1)'),
]


@pytest.mark.parametrize(("minor", "text"), SINCE)
def test_stored_expressions_see_what_their_version_has(minor: int, text: str) -> None:
    assert device_environment(minor=minor).compile(text).evaluate({"device": DEVICE}).value is True
    with pytest.raises(CelError):
        device_environment(minor=minor - 1).compile(text).evaluate({"device": DEVICE})


@pytest.mark.parametrize(("minor", "text"), [entry for entry in SINCE if entry[0] < 36])
def test_new_expressions_are_one_version_behind(minor: int, text: str) -> None:
    assert device_environment(mode="new", minor=minor + 1).compile(text).evaluate({"device": DEVICE}).value is True
    with pytest.raises(CelError):
        device_environment(mode="new", minor=minor).compile(text)


def test_gates_matter_only_for_new_expressions() -> None:
    shared = "!device.allowMultipleAllocations"
    assert device_environment(consumable_capacity=False).compile(shared)
    with pytest.raises(CelError, match="undefined field 'allowMultipleAllocations'"):
        device_environment(mode="new", consumable_capacity=False).compile(shared)
    lists = 'device.attributes["d"].l.exists(x, x == 1)'
    assert device_environment(mode="new", list_attributes=True).compile(lists)
    with pytest.raises(CelError, match="cannot be range of a comprehension"):
        device_environment(mode="new").compile(lists)


def test_environments_are_shared() -> None:
    assert device_environment() is device_environment(mode="stored", minor=37)


def test_an_environment_of_ones_own_has_other_variables_and_any_result() -> None:
    environment = Environment(
        libraries_for(37, includes=True),
        {"object": types.DYN, "limit": types.INT},
    )
    program = environment.compile("object.spec.replicas + limit")
    evaluation = program.evaluate({"object": {"spec": {"replicas": 3}}, "limit": 4})
    assert (evaluation.value, evaluation.cost) == (7, 5)
    assert program.type is types.INT


def test_programs_are_pure_and_can_be_used_again() -> None:
    program = device_environment().compile('device.attributes["d"].a == 1 && cel.bind(x, 2, x + x == 4)')
    assert {program.evaluate({"device": DEVICE}) for _ in range(3)} == {program.evaluate({"device": DEVICE})}


def test_the_package_is_imported_lazily() -> None:
    code = "import sys, drakkar.cel; assert 're2' not in sys.modules and 'drakkar.cel.environment' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_common_selectors_need_no_re2() -> None:
    code = (
        "import sys; from drakkar.cel import device_environment as e;"
        "e().compile('device.driver.matches(\"A100|^H[12]00.*$\")');"
        "assert 're2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
