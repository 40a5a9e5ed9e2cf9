"""Selectors mean what they mean in Kubernetes."""

import pytest

from drakkar.kube.selectors import NOTHING, FieldSelector, LabelSelector, SelectorError

LABELS = {"app": "web", "tier": "front", "cores": "8", "padded": "1_0", "huge": "9" * 30, "empty": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True), ("app=web", True), ("app==web", True), ("app!=web", False), ("gone!=x", True), ("app", True),
        ("!app", False), ("!gone", True), ("app in (web, api)", True), ("app notin (web,api)", False),
        ("gone notin (a)", True), ("cores>4", True), ("cores<4", False), ("app>4", False), ("gone>4", False),
        ("padded>4", False), ("huge>4", False),
        ("app=web,tier=front", True), ("app=web,tier=back", False), ("empty=", True), ("empty in (,x)", True),
        ("x.example.com/a!=1", True),
    ],
)  # fmt: skip
def test_label_selector(text: str, holds: bool) -> None:
    selector = LabelSelector.parse(text)
    assert selector.matches(LABELS) is holds
    assert LabelSelector.parse(str(selector)).matches(LABELS) is holds


@pytest.mark.parametrize("text", ["a=b,", "a in b", "a in (b", "=x", "a==b==c", "a>x", "-a", "a=b c", "a b", "(a)"])
def test_malformed_label_selector(text: str) -> None:
    with pytest.raises(SelectorError):
        LabelSelector.parse(text)


def test_selector_objects() -> None:
    assert not LabelSelector.from_object(None).matches({})
    assert NOTHING.selects_nothing
    assert LabelSelector.from_object({}).matches(LABELS)
    selector = LabelSelector.from_object(
        {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]}
    )
    assert selector.matches(LABELS)
    with pytest.raises(SelectorError, match="not a valid label selector operator"):
        LabelSelector.from_object({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})


@pytest.mark.parametrize(
    ("text", "holds"),
    [("", True), ("spec.nodeName=n1", True), ("spec.nodeName!=n1", False), ("spec.x=", True), ("a=1\\,2", True)],
)
def test_field_selector(text: str, holds: bool) -> None:
    assert FieldSelector.parse(text).matches({"spec.nodeName": "n1", "a": "1,2"}) is holds


def test_malformed_field_selector() -> None:
    with pytest.raises(SelectorError, match="invalid selector"):
        FieldSelector.parse("spec.nodeName")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("app in (train,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("app in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("app in", "unable to parse requirement: found '' expected: '('"),
        ("app in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("app b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("n>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value"),
        (f"n>{'9' * 5000}", "the value must be an integer"),
        ("a/b/c", 'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of'),
        (
            "a=-b",
            'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be an empty string',
        ),
    ],
)
def test_what_is_no_selector_is_refused_in_kubernetes_words(text: str, told: str) -> None:
    with pytest.raises(SelectorError) as error:
        LabelSelector.parse(text)
    assert told in error.value.message


@pytest.mark.parametrize(
    ("text", "same"),
    [("in in (in)", "in=in"), ("a in ()", "a="), ("a in (,)", "a="), ("a in (b,,c)", "a in (,b,c)"), ("a=", "a=")],
)
def test_odd_selectors_mean_what_they_mean_to_kubernetes(text: str, same: str) -> None:
    assert str(LabelSelector.parse(text)) == same
