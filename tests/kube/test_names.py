"""Which names Kubernetes takes, and what it says about others (RFC 1123, RFC 1035)."""

from collections.abc import Callable

import pytest

from drakkar.kube import names

RULES: dict[Callable[[str], list[str]], tuple[list[str], list[str]]] = {
    names.dns_label: (["a", "a-1", "1a", "a" * 63], ["", "A", "-a", "a-", "a.b", "a_b", "a" * 64, "é"]),
    names.dns_subdomain: (["a", "a.b-c.1", "a" * 63 + ".b", "x" * 253], ["", "a..b", ".a", "A", "a_b", "x" * 254]),
    names.dns_subdomain_caseless: (["GPU.Example.com"], ["", "a..b", "a_b", "x" * 254]),
    names.dns_1035_label: (["a", "a1-b"], ["1a", "a.b", "A", "", "a" * 64]),
    names.label_key: (["a", "A_b.c", "x.io/a", "a" * 63], ["", "/a", "a/", "a/b/c", "-a", "X.io/a", "a" * 64]),
    names.label_value: (["", "a", "A.b_c-1", "a" * 63], ["-a", "a b", "a" * 64, "a/"]),
    names.c_identifier: (["a", "_A1"], ["", "1a", "a-b"]),
    names.config_map_key: (["a", ".a", "A_b.c-d"], ["", ".", "..", "..a", "a/b", "a" * 254]),
    names.path_segment: (["system:node", "A b"], [".", "..", "a/b", "a%b"]),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_accepted_and_refused(rule: Callable[[str], list[str]]) -> None:
    good, bad = RULES[rule]
    assert {name: rule(name) for name in good} == {name: [] for name in good}
    assert [name for name in bad if not rule(name)] == []


def test_words() -> None:
    assert names.dns_label("a.b") == ["must not contain dots"]
    assert names.dns_label("A") == [
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end"
        " with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
        " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    ]
    assert names.dns_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert names.label_value("a" * 64) == ["must be no more than 63 bytes"]
    assert names.path_segment("a/%") == ["may not contain '/'", "may not contain '%'"]


def test_the_dash_of_a_generated_name_is_fine() -> None:
    assert names.dns_label(names.prefix_of_generated("train-")) == []
    assert names.dns_label(names.prefix_of_generated("-")) != []
