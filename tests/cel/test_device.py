"""The device as selectors see it: domains, conversions, and what a broken device does."""

from typing import Any

import pytest

from drakkar.cel import CelError, DeviceValue, device_environment
from drakkar.kube.quantity import Quantity

ENVIRONMENT = device_environment()


def evaluate(text: str, device: dict[str, Any], driver: str = "d") -> Any:
    return ENVIRONMENT.compile(text).evaluate({"device": DeviceValue.from_json(driver, device)}).value


def test_names_without_a_prefix_stand_under_the_driver() -> None:
    device = {"attributes": {"a": {"int": 1}, "other.com/a": {"int": 2}}}
    assert evaluate('device.attributes["d"].a == 1 && device.attributes["other.com"].a == 2', device)


def test_the_v1beta1_wrapper_is_understood() -> None:
    device = {"name": "x", "basic": {"attributes": {"a": {"string": "b"}}, "capacity": {"m": {"value": "1Gi"}}}}
    assert evaluate('device.attributes["d"].a == "b" && device.capacity["d"].m == quantity("1024Mi")', device)


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        ({"int": 0}, "a == 0"),
        ({"bool": False}, "a == false"),
        ({"string": ""}, 'a == ""'),
        ({"version": "1.2.3"}, 'a == semver("1.2.3+build")'),
        ({"ints": [1, 2]}, "a == [1, 2]"),
        ({"bools": []}, "a == []"),
        ({"strings": ["x"]}, 'a.includes("x")'),
        ({"versions": ["1.0.0"]}, 'a[0] == semver("1.0.0")'),
    ],
)
def test_every_kind_of_attribute_is_converted(attribute: dict[str, Any], text: str) -> None:
    assert evaluate(f'cel.bind(a, device.attributes["d"].a, {text})', {"attributes": {"a": attribute}})


@pytest.mark.parametrize(
    ("attribute", "problem"),
    [
        ({}, "attribute a: unsupported attribute value"),
        ({"version": "1.2"}, "attribute a: parse semantic version: No Major.Minor.Patch elements found"),
        ({"future": 1}, "attribute a: unsupported attribute value"),
    ],
)
@pytest.mark.parametrize("text", ["true", "device.driver == 'd'"])
def test_a_broken_attribute_fails_every_evaluation(attribute: dict[str, Any], problem: str, text: str) -> None:
    with pytest.raises(CelError) as failure:
        evaluate(text, {"attributes": {"a": attribute, "b": {"int": 1}}})
    assert (failure.value.kind, failure.value.message) == ("runtime", problem)


def test_the_object_it_came_from_is_left_alone_and_not_needed_later() -> None:
    device = {"attributes": {"a": {"ints": [1]}}, "capacity": {"m": {"value": "1"}}}
    value = DeviceValue.from_json("d", device)
    assert device == {"attributes": {"a": {"ints": [1]}}, "capacity": {"m": {"value": "1"}}}
    assert value["capacity"]["d"]["m"] == Quantity(1)


def test_capacity_may_be_given_as_a_plain_quantity() -> None:
    assert evaluate('device.capacity["d"].m == quantity("2Gi")', {"capacity": {"m": "2Gi"}})


def test_strange_texts_in_paths_are_no_shortcuts() -> None:
    device = {"attributes": {"a/b": {"int": 1}}}
    assert evaluate('device.attributes["a"]["b"] == 1', device)
    assert not evaluate('has(device.attributes["a\\u0000b"].c)', device)
    with pytest.raises(CelError, match="no such key"):
        evaluate('device.attributes[""]["a\\u0000b"] == 1', device)
