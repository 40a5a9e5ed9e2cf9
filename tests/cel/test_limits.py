"""Poison: nesting, length, patterns, growth and endless loops end by a limit, with an error."""

import sys
import time

import pytest

from drakkar.cel import CelError, DeviceValue, Program, device_environment

DEVICE = DeviceValue.from_json(
    "gpu.example.com",
    {
        "attributes": {"name": {"string": "a" * 64}, "number": {"int": 3}, "many": {"ints": list(range(32))}},
        "capacity": {"memory": {"value": "40Gi"}},
    },
)
ENVIRONMENT = device_environment()


def compiled(text: str) -> Program:
    return ENVIRONMENT.compile(text)


def failure_of(text: str, **options: object) -> CelError:
    with pytest.raises(CelError) as failure:
        compiled(text).evaluate({"device": DEVICE}, **options)  # type: ignore[arg-type]
    return failure.value


def test_the_cost_limit_stops_at_the_very_unit() -> None:
    error = failure_of("lists.range(999000).map(x, x + 1).size() > 0")
    assert (error.kind, error.cost) == ("cost", 1_000_004)
    assert error.message == "operation cancelled: actual cost limit exceeded"


@pytest.mark.parametrize("limit", range(8))
def test_any_limit_is_kept_to_the_unit(limit: int) -> None:
    text = 'device.attributes["gpu.example.com"].number == 3 && device.driver != "x"'
    error = failure_of(text, cost_limit=limit)
    assert (error.kind, error.cost) == ("cost", limit + 1)
    assert compiled(text).evaluate({"device": DEVICE}, cost_limit=8).cost == 8


def test_the_cost_limit_is_never_absorbed() -> None:
    assert failure_of("false || lists.range(1000).all(x, x >= 0) || true", cost_limit=100).kind == "cost"
    assert failure_of("lists.range(1000).all(x, x >= 0) || true", cost_limit=100).kind == "cost"


def test_a_deadline_reaches_into_comprehensions_and_says_where() -> None:
    calls = 0

    def expired() -> bool:
        nonlocal calls
        calls += 1
        return calls > 3

    error = failure_of("true &&\n lists.range(100000).all(x, x >= 0)", deadline=expired)
    assert error.kind == "cost"
    assert error.message == "operation interrupted: deadline exceeded in line 2, column 25"
    assert error.cost == 100_011 + 400 * 5


def test_a_deadline_in_the_future_changes_nothing() -> None:
    evaluation = compiled("lists.range(1000).exists(x, x == 999)").evaluate({"device": DEVICE}, deadline=lambda: False)
    assert (evaluation.value, evaluation.cost) == (True, 7012)


def test_nesting_as_deep_as_kubernetes_allows_works_from_deep_within_a_program() -> None:
    texts = (
        "(" * 249 + "true" + ")" * 249,
        "size(" + "[" * 248 + "1" + "]" * 248 + ") == 1",
        "!(" * 249 + "true" + ")" * 249,
    )

    def descend(levels: int) -> list[bool]:
        if levels:
            return descend(levels - 1)
        return [compiled(text).evaluate({"device": DEVICE}).value for text in texts]

    before = sys.getrecursionlimit()
    assert descend(before - 150) == [True, True, False]
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * 300 + "true" + ")" * 300, "expression recursion limit exceeded: 250"),
        ("(" * 50_000, "expression recursion limit exceeded: 250"),
        ("[" * 20_000 + "]" * 20_000 + " == []", "expression recursion limit exceeded: 250"),
        ("1" + " + 1" * 400 + " > 0", "max recursion depth exceeded"),
        ("device" + ".a" * 10_000, "max recursion depth exceeded"),
        ("true" + " " * 100_000, "expression code point size exceeds limit: size: 100004, limit 100000"),
    ],
)
def test_nesting_and_length_beyond_the_limits_are_syntax_errors(text: str, message: str) -> None:
    with pytest.raises(CelError, match=message) as failure:
        compiled(text)
    assert failure.value.kind == "syntax"


def test_long_chains_are_not_deep() -> None:
    assert compiled(" && ".join(["true"] * 2000)).evaluate({"device": DEVICE}).value is True
    assert compiled("!" * 5000 + "true").evaluate({"device": DEVICE}).value is True


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(a*)*b", "a*a*a*a*a*a*a*b", "(x+x+)+y"])
def test_catastrophic_patterns_take_no_time(pattern: str) -> None:
    started = time.perf_counter()
    text = f'(device.attributes["gpu.example.com"].name + "{"a" * 3000}!").matches("{pattern}") || true'
    assert compiled(text).evaluate({"device": DEVICE}).value is True
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("pattern", ["(", "a{1001}", r"\\C", "(?=a)", "(" * 1001 + ")" * 1001, "[", "*", "(?P<n>a"])
def test_patterns_that_go_refuses_are_refused(pattern: str) -> None:
    with pytest.raises(CelError, match="invalid matches argument"):
        compiled(f'"a".matches("{pattern}")')


def test_a_text_that_explodes_ends_with_an_error() -> None:
    ten_times = ".replace('a', 'aaaaaaaaaa')" * 9
    error = failure_of(f"device.attributes['gpu.example.com'].name{ten_times}.size() > 0", cost_limit=1 << 60)
    assert "exceeds the size limit" in error.message


def test_huge_comprehensions_end_quickly() -> None:
    nested = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))"
    started = time.perf_counter()
    assert failure_of(nested).kind == "cost"
    assert time.perf_counter() - started < 10


def test_poisonous_numbers_are_errors() -> None:
    assert failure_of("quantity('1e9999999').add(quantity('1')).isInteger()").kind == "runtime"
    with pytest.raises(CelError, match="invalid int literal"):
        compiled("9" * 90_000 + " == 0")


def test_rounds_of_nested_comprehensions_are_counted_together() -> None:
    names = [f"lists.range(60).all(x{level}, " for level in range(3)]
    calls = 0

    def expired() -> bool:
        nonlocal calls
        calls += 1
        return calls == 5

    error = failure_of("".join(names) + "x0 + x1 + x2 >= 0" + ")" * 3, deadline=expired)
    assert error.message.startswith("operation interrupted: deadline exceeded in line 1, column ")
    assert error.cost < 10_000


@pytest.mark.parametrize(
    "text",
    [
        "lists.range(20000).map(x, double(x)).distinct().size() > 0",
        "sets.contains(lists.range(20000).map(x, [x]), lists.range(20000).map(x, [x]))",
        "lists.range(20000).map(x, double(x)).sort().size() > 0",
    ],
)
def test_what_is_too_dear_is_not_even_begun(text: str) -> None:
    started = time.process_time()
    error = failure_of(text)
    assert time.process_time() - started < 20.0  # it would take minutes; a tenth of a second untraced
    assert error.kind == "cost"
    assert error.cost > 400_000_000


def test_lists_do_not_grow_without_end() -> None:
    doubled = "lists.range(300000)"
    for name in "abcdefgh":
        doubled = f"cel.bind({name}, {doubled}, {name} + {name})"
    error = failure_of(f"({doubled}).size() > 0")
    assert error.message == "operation cancelled: result of _+_ exceeds the size limit"
