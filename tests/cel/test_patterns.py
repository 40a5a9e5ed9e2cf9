"""Patterns: the quick ways agree with RE2, which is the reference."""

from hypothesis import given, settings
from hypothesis import strategies as st

from drakkar.cel.libraries.regex import Pattern, _engine, _translated, compile_pattern

PIECES = [
    "a", "b", "A", "1", " ", ".", r"\d", r"\w", r"\W", r"\.", "[a-c]", "[^ab]", "[0-9_-]", "^", "$", "(", "(?:", ")",
    "|", "*", "+", "?", "a*", ".*", "-", "/", r"\-", "a{2}", "(?i)", r"\b", "é",
]  # fmt: skip
TEXTS = st.text(alphabet="abcA1 ._-/\né", max_size=8)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join), st.lists(TEXTS, min_size=1, max_size=6))
def test_simple_patterns_find_what_re2_finds(pattern: str, texts: list[str]) -> None:
    compiled = compile_pattern(pattern)
    if not isinstance(compiled, Pattern):
        assert _translated(pattern) is None
        return
    engine = _engine(pattern)
    for text in texts:
        found = engine.search(text)
        assert compiled.test(text) is (found is not None)
        assert compiled.find(text) == ("" if found is None else found.group())


def test_plain_alternatives_are_substring_tests() -> None:
    pattern = compile_pattern("A100|H100")
    assert isinstance(pattern, Pattern)
    assert [pattern.test(text) for text in ("NVIDIA A100", "H100", "A10", "")] == [True, True, False, False]


def test_find_all_skips_an_empty_match_after_a_match() -> None:
    pattern = compile_pattern("b*")
    assert isinstance(pattern, Pattern)
    assert pattern.find_all("abb", -1) == ["", "bb"]
    assert pattern.find_all("abb", 1) == [""]
    assert pattern.find_all("", -1) == [""]
