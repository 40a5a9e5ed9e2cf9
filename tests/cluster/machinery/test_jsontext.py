"""JSON bodies: duplicates with their path, and Go's words for what is not JSON."""

import pytest

from drakkar.cluster.machinery import jsontext


def test_later_values_win_and_duplicates_are_named() -> None:
    value, duplicates = jsontext.parse(b'{"a":1,"b":[{"c":1,"c":2}],"a":3,"b":4}')
    assert value == {"a": 3, "b": 4}
    assert duplicates == ['duplicate field "b[0].c"', 'duplicate field "a"', 'duplicate field "b"']


def test_duplicates_are_not_looked_for_when_nobody_asks() -> None:
    assert jsontext.parse(b'{"a":1,"a":2}', find_duplicates=False) == ({"a": 2}, [])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "unexpected end of JSON input"),
        ('{"a":', "unexpected end of JSON input"),
        ("{,}", "invalid character ',' looking for beginning of object key string"),
        ("[1 2]", "invalid character '2' after array element"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("{}x", "invalid character 'x' after top-level value"),
        ("nul!", "invalid character '!' in literal null (expecting 'l')"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
        ('"\n"', "invalid character '\\n' in string literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ("01", "invalid character '1' after top-level value"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
    ],
)
def test_words_for_what_is_not_json(text: str, complaint: str) -> None:
    with pytest.raises(jsontext.JsonError) as caught:
        jsontext.parse(text.encode())
    assert str(caught.value) == complaint


def test_deep_nesting_ends_in_an_error() -> None:
    with pytest.raises(jsontext.JsonError):
        jsontext.parse(b"[" * 100_000)


def test_surrogates_are_made_whole_or_replaced() -> None:
    assert jsontext.parse(b'"\\ud83d\\ude00 \\ud800"')[0] == "\U0001f600 \ufffd"
