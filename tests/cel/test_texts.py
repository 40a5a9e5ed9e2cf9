"""Error texts: line, column, the line itself and a caret, exactly as Kubernetes prints them."""

import json
from pathlib import Path
from typing import Any

import pytest

from drakkar.cel import CelError, device_environment

FOLDER = Path(__file__).parents[2] / "cases/cel"
CASES = [
    case
    for path in sorted(FOLDER.glob("*.jsonl"))
    for case in map(json.loads, path.read_text().splitlines())
    if (case["expect"]["error"] or {}).get("kind") == "type" and not case.get("features")
]


def test_the_texts_of_all_type_errors_are_upstreams() -> None:
    different: list[tuple[str, str]] = []
    for case in CASES:
        with pytest.raises(CelError) as failure:
            device_environment(mode=case["env"]).compile(case["expression"])
        if failure.value.message != case["expect"]["error"]["text"]:
            different.append((case["name"], failure.value.message))
    assert len(CASES) > 300
    assert different == []


def compile_error(text: str) -> CelError:
    with pytest.raises(CelError) as failure:
        device_environment().compile(text)
    return failure.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo == 1", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n"
                     " | foo == 1\n | ^"),
        ('"ü" == x', "compilation failed: ERROR: <input>:1:8: undeclared reference to 'x' (in container '')\n"
                     ' | "ü" == x\n | .．.....^'),
        ("true &&\n\tx", "compilation failed: ERROR: <input>:2:2: undeclared reference to 'x' (in container '')\n"
                         " |  x\n | .^"),
    ],
)  # fmt: skip
def test_the_caret_stands_under_the_problem(text: str, message: str) -> None:
    assert compile_error(text).message == message


def test_an_empty_text_has_no_first_column() -> None:
    error = compile_error("")
    assert error.message.startswith("compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>'")
    assert "\n" not in error.message


def test_problems_come_sorted_and_as_values() -> None:
    error = compile_error("b == 1 || a == 2")
    assert [(issue.line, issue.column) for issue in error.issues] == [(1, 1), (1, 11)]
    assert error.kind == "type"
    assert error.to_dict()["reason"] == "CelTypeError"


def test_at_most_a_hundred_problems_are_printed() -> None:
    error = compile_error(" || ".join(f"x{index}" for index in range(120)))
    assert error.message.count("ERROR") == 100
    assert error.message.endswith("\n20 more errors were truncated")


KINDS: list[tuple[str, str]] = [
    ("1 +", "syntax"),
    ("has(1)", "syntax"),
    ('"a" + 1 == ""', "type"),
    ('duration("x") == duration("1s")', "compile"),
    ('int("x") == 1', "compile"),
    ('"a"', "compile"),
]


@pytest.mark.parametrize(("text", "kind"), KINDS)
def test_each_phase_has_its_kind(text: str, kind: str) -> None:
    assert compile_error(text).kind == kind


@pytest.mark.parametrize(
    "text", ["(", '"', "'\\", "[1, 2", "{1", "`a", "a.", "1 ? 2", "\ufeff", "\x00", "true;", "/*", "b'\\u0041'"]
)
def test_malformed_text_is_a_syntax_error(text: str) -> None:
    assert compile_error(text).kind == "syntax"


def test_errors_are_plain_values() -> None:
    error: Any = compile_error("foo")
    assert error.subject == "foo"
    assert str(error) == error.message
