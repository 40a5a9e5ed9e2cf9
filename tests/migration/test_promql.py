"""PromQL as Prometheus reads it: precedence, modifiers, and what is none."""

from __future__ import annotations

import pytest

from drakkar.migration.promql import Binary, Call, Number, PromqlError, Selector, parse, walk


def metrics(text: str) -> list[str]:
    return [node.metric for node, _ in walk(parse(text)) if isinstance(node, Selector)]


@pytest.mark.parametrize(
    "text",
    [
        "up",
        '{__name__="up", job=~"a|b"}',
        "rate(x[5m])",
        "rate(x{a='b',}[5m] offset -1h30m)",
        "max_over_time(rate(x[5m])[1h:1m])",
        "sum by (a, b) (x) / on(a) group_left(c) y",
        "sum(x) without (a)",
        "x > bool 1",
        "-x ^ 2",
        "1e9 * 0x10 + .5",
        "x unless x offset 5m or vector(0)",
        'label_replace(x, "a", "$1", "b", "(.*)")',
        "x @ end() # comment",
        "count_values('v', x)",
        "quantile(0.9, x{a!~'b'})",
        "sum(rate(x[5m:])) > 1 and on() up",
    ],
)
def test_it_reads(text: str) -> None:
    assert parse(text) is not None


@pytest.mark.parametrize(
    "text", ["", "rate(x[5m]", "x >", "{{ .Values }}", '{app="a"} |= "b"', "x{a=b}", "(" * 500, "1 2"]
)
def test_it_refuses(text: str) -> None:
    with pytest.raises(PromqlError):
        parse(text)


def test_precedence() -> None:
    tree = parse("a + b * c > 1 and d or e")
    assert isinstance(tree, Binary) and tree.operator == "or"
    assert isinstance(tree.left, Binary) and tree.left.operator == "and"
    power = parse("a ^ b ^ c")
    assert isinstance(power, Binary) and isinstance(power.right, Binary)


def test_selectors_know_range_offset_and_matchers() -> None:
    tree = parse("rate(x{a!='b'}[5m] offset 1h)")
    assert isinstance(tree, Call)
    [selector] = tree.arguments
    assert isinstance(selector, Selector) and selector.range and selector.offset
    assert selector.matchers[0].matches("c") and not selector.matchers[0].matches("b")


def test_every_metric_is_seen() -> None:
    assert metrics("(sum(a) by (l) - b offset 5m) / max(c{d='e'})") == ["a", "b", "c"]
    assert parse("-5") == Number(-5)


def test_the_recipes_of_our_documentation_are_read() -> None:
    recipe = """
        (kube_pod_start_time * on(namespace,pod,uid) group_left(node) kube_pod_info
           and on(namespace,pod) kube_pod_resourceclaim_info)
         < on(node) group_left()
        max by(node)(kube_pod_start_time{pod=~"nvidia-driver-daemonset-.*"}
           * on(namespace,pod,uid) group_left(node) kube_pod_info)
    """
    assert metrics(recipe).count("kube_pod_info") == 2
