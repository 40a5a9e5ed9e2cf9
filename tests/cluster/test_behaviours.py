"""How simulated containers behave: what rules, annotations and commands say, and sentences for what they cannot."""

from __future__ import annotations

import math
from typing import Any

import pytest

from drakkar.cluster.behaviours import Behaviour, Rule, Span, behaviour, behaviour_of
from drakkar.cluster.runtimes.commands import Course, course
from drakkar.kube.chance import Chance


def test_fields_of_a_fleet_file() -> None:
    said = behaviour(
        {"startDelay": "5s..20s", "runs": "forever", "exitCode": {0: 95, 1: 5}, "readyAfter": 3, "stopDelay": "1m30s"}
    )
    assert said == Behaviour(
        Span(5, 20), Span(math.inf, math.inf), ((0, 95.0), (1, 5.0)), Span(3.0, 3.0), Span(90.0, 90.0)
    )
    assert behaviour({"exitCode": 3}).exit_code == ((3, 1.0),)
    assert behaviour({}) == Behaviour()


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("runs", "soon", "no duration"),
        ("runs", "30m..10m", "ends before it begins"),
        ("runs", "10m..", "no duration"),
        ("runs", -1, "no duration"),
        ("runs", True, "no duration"),
        ("runs", math.nan, "no duration"),
        ("startDelay", "forever", "no duration"),
        ("exitCode", 256, "no exit code"),
        ("exitCode", "", "no exit code"),
        ("exitCode", 1.5, "no exit code"),
        ("exitCode", True, "no exit code"),
        ("exitCode", {0: "many"}, "no weight"),
        ("exitCode", {0: -1}, "no weight"),
        ("exitCode", {0: 0}, "no exit code has a weight"),
        ("exitCode", [0], "no exit code"),
        ("exitCode", "0=95,x=5", "no exit code"),
    ],
)
def test_what_cannot_be_read_is_named(field: str, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: .*{told}"):
        behaviour({field: value})


def test_the_first_rule_that_fits_counts_and_annotations_come_before_it() -> None:
    rules = [
        Rule(behaviour({"runs": "1m"}), {"app": "train"}, "research"),
        Rule(behaviour({"runs": "2m", "exitCode": 1}), {"app": "train"}, container="main"),
        Rule(behaviour({"runs": "3m"})),
    ]
    train = {"app": "train", "tier": "x"}
    assert behaviour_of(rules, "research", train, {}, "main").runs == Span(60, 60)
    assert behaviour_of(rules, "default", train, {}, "main").runs == Span(120, 120)
    assert behaviour_of(rules, "default", train, {}, "side").runs == Span(180, 180)
    assert behaviour_of((), "default", train, {}, "main") == Behaviour()
    both = {"drakkar.dev/runs": "9s", "drakkar.dev/runs.side": "8s", "drakkar.dev/exit-code": "0=1,2=1"}
    assert behaviour_of(rules, "default", train, both, "main") == Behaviour(
        runs=Span(9, 9), exit_code=((0, 1.0), (2, 1.0))
    )
    assert behaviour_of(rules, "default", train, both, "side").runs == Span(8, 8)
    with pytest.raises(ValueError, match=r"annotation drakkar.dev/start-delay: no duration"):
        behaviour_of(rules, "default", train, {"drakkar.dev/start-delay": "later"}, "main")


def test_spans_and_codes_are_drawn_as_often_as_their_weights_say() -> None:
    said, chance = behaviour({"runs": "10s..20s", "exitCode": {0: 75, 1: 25}}), Chance(7)
    assert said.runs is not None
    draws = [said.runs.draw(chance, "runs", str(number)) for number in range(1000)]
    assert 10 <= min(draws) < 10.5
    assert 19.5 < max(draws) <= 20
    codes = [said.code(chance, "code", str(number)) for number in range(2000)]
    assert 400 < codes.count(1) < 600
    assert codes.count(0) + codes.count(1) == 2000
    assert Behaviour().code(chance) is None


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["sleep", "600"], Course(600, 0)),
        (["/usr/bin/sleep", "1m", "2.5"], Course(62.5, 0)),
        (["sleep", "inf"], Course(math.inf, 0)),
        (["sleep", "infinity"], Course(math.inf, 0)),
        (["true"], Course(0, 0)),
        (["false"], Course(0, 1)),
        (["sh"], Course(0, 0)),
        (["echo", "a", "b"], Course(0, 0, ((0, b"a b\n"),))),
        (["sh", "-c", "sleep 5; exit 3"], Course(5, 3)),
        (["bash", "-c", "echo 'a; b' && sleep 2\nfalse || exit 4; sleep 9"], Course(2, 4, ((0, b"a; b\n"),))),
        (["sh", "-c", "sleep 1; echo one; sleep 1; echo two"], Course(2, 0, ((1, b"one\n"), (2, b"two\n")))),
        (["sh", "-c", "true && false"], Course(0, 1)),
        (["sh", "-c", "false; sleep 7"], Course(7, 0)),
        (["sh", "-ec", "false; sleep 7"], Course(0, 1)),
        (["sh", "-c", "exit"], Course(0, 0)),
        (["sh", "-c", "exit 300"], Course(0, 44)),
        (["sh", "-c", ""], Course(0, 0)),
    ],
)
def test_simple_commands_are_understood(argv: list[str], expected: Course) -> None:
    assert course(argv) == expected


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py"],
        ["sh", "-c", "nvidia-smi -L; sleep 5"],
        ["sh", "-c", "sleep $SECONDS"],
        ["sh", "-c", "while true; do sleep 1; done"],
        ["sh", "-c", "sleep 5 & wait"],
        ["sh", "-c", "echo hi > /tmp/x"],
        ["sh", "-c", "trap 'exit 0' TERM; sleep 5"],
        ["sh", "-c", "exit now"],
        ["sh", "-c", "echo 'unfinished"],
        ["sh", "script.sh"],
        ["echo", "-n", "x"],
        ["sh", "-c", 'echo "$HOME"'],
        [],
    ],
)
def test_what_is_not_entirely_plain_is_not_guessed_at(argv: list[str]) -> None:
    assert course(argv) is None
