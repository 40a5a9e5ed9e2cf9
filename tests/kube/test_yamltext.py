"""YAML bodies as sigs.k8s.io/yaml reads them: YAML 1.1 values, JSON keys, the first document only."""

from typing import Any

import pytest

from drakkar.kube import yamltext


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: yes", {"a": True}),
        ("a: 'yes'", {"a": "yes"}),
        ("a: off", {"a": False}),
        ("a: 0x10", {"a": 16}),
        ("a: 0o7", {"a": 7}),
        ("a: 1_000", {"a": 1000}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: 09", {"a": 9.0}),
        ("a: 010", {"a": 8}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: -.5", {"a": -0.5}),
        ("a: !!str 1", {"a": "1"}),
        ("a: !!float 1", {"a": 1.0}),
        ("a: !!binary aGk=", {"a": "hi"}),
        ("a: !mine 1", {"a": "1"}),
        ('a: "1"', {"a": "1"}),
        ("a: ~", {"a": None}),
        ("1: x", {"1": "x"}),
        ("true: x", {"true": "x"}),
        ("a: 2026-01-01T00:00:00Z", {"a": "2026-01-01T00:00:00Z"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("a: 1\n---\nb: 2\n", {"a": 1}),
        ("", None),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert yamltext.parse(text.encode()) == (value, [])


def test_duplicates_are_named_with_their_line_and_later_ones_win() -> None:
    value, duplicates = yamltext.parse(b"a: 1\nb:\n  c: 1\n  c: 2\na: 2\n")
    assert value == {"a": 2, "b": {"c": 2}}
    assert duplicates == ['line 4: key "c" already set in map', 'line 5: key "a" already set in map']


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "a: *nowhere", "\t- x", "a: !!binary =", "a: !!int x", "a: .inf"])
def test_what_is_not_yaml_is_an_error(text: str) -> None:
    with pytest.raises(yamltext.YamlError):
        yamltext.parse(text.encode())


def test_an_alias_to_itself_does_not_hang() -> None:
    with pytest.raises(yamltext.YamlError):
        yamltext.parse(b"a: &x [*x]")


def test_every_document_knows_its_lines() -> None:
    first, second = yamltext.trees("# a comment\na: {b: 1}\n---\n- x\n- z: 2\n")
    assert (first.value, first.line) == ({"a": {"b": 1}}, 2)
    assert (second.value, second.line) == (["x", {"z": 2}], 4)
    assert second.node.value[1].value[0][0].start_mark.line == 4


def test_keys_stay_in_order_and_twice_is_an_error_unless_wanted() -> None:
    [tree] = yamltext.trees("b: 1\na: 2\n")
    assert list(tree.value) == ["b", "a"]
    with pytest.raises(yamltext.YamlError) as caught:
        yamltext.load("b: 1\na: 2\nb: 3\n")
    assert (caught.value.line, caught.value.problem) == (3, 'key "b" already set in map')
    [tree] = yamltext.trees("b: 1\na: 2\nb: 3\n", duplicates=True)
    assert tree.value == {"b": 3, "a": 2}


def test_documents_before_a_broken_one_are_given() -> None:
    found = []
    with pytest.raises(yamltext.YamlError) as caught:
        for tree in yamltext.trees("a: 1\n---\nb: [\n"):
            found.append(tree.value)
    assert found == [{"a": 1}]
    assert caught.value.line == 4


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 1}]" for n in range(12)),
        "[" * 20_000,
        "a: &x [*x]",
    ],
)
def test_bombs_and_cycles_are_errors(text: str) -> None:
    with pytest.raises(yamltext.YamlError):
        yamltext.load(text)
