"""Boundary values of every type of CEL, as texts of expressions: where implementations differ, if they do.

Values are chosen by the rules of Go's libraries and those of the specification: ends of ranges, signs of zero, what a
parser accepts by a hair and what it refuses by one. `TEXTS` has the texts that single functions read (quantities,
addresses, patterns); other texts go to functions of strings in general.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final


def quoted(text: str) -> str:
    """A text as a CEL literal."""
    escapes = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\x00"}
    return "'" + "".join(escapes.get(character, character) for character in text) + "'"


def _quoted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(quoted, texts)))


STRINGS: Final = _quoted(
    (
        "", "a", "ab", "aba", "abc", "A100", "true", " ", "  a b\t", "a,b,,c", ",", "grüße", "é", "e\u0301", "😀",
        "a😀b😀",
        "ﬀ", "İ", "ß", "\u00a0x\u2003", "\x00", "\ufeff", "日本語", "x" * 10, "x" * 11, "x" * 64, "y" * 2000, "%s",
        "%", "\\d",
        "[", "-1", "0", "1.5", "a\nb", "'\"`", "\u2028", "a.b.c",
    )
)  # fmt: skip

INTS: Final = (
    "0", "1", "-1", "2", "3", "10", "31", "32", "-2", "47", "48", "49", "63", "64", "100", "255", "1000", "1000000",
    "1000001",
    "2147483647", "2147483648", "-2147483648", "4294967296", "9007199254740992", "9007199254740993", "253402300799",
    "253402300800", "-62135596800", "-62135596801", "9223372036854775807", "9223372036854775806",
    "-9223372036854775808",
    "-9223372036854775807", "4611686018427387904", "3037000500",
)  # fmt: skip
UINTS: Final = (
    "0u", "1u", "2u", "10u", "255u", "9007199254740993u", "9223372036854775807u", "9223372036854775808u",
    "18446744073709551615u", "18446744073709551614u", "4294967296u",
)  # fmt: skip
DOUBLES: Final = (
    "0.0", "-0.0", "1.0", "-1.0", "0.5", "1.5", "2.5", "-2.25", "0.1", "1e6", "1e21", "123456.7", "1e-5", "1e-7",
    "1e300",
    "1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "2.225073858507201e-308", "9007199254740993.0",
    "9223372036854775807.0", "9223372036854774784.0", "-9223372036854775808.0", "-9223372036854777856.0",
    "18446744073709551615.0", "18446744073709549568.0", "double('NaN')", "double('Infinity')", "double('-Infinity')",
)  # fmt: skip
BYTES: Final = (
    "b''", "b'a'", "b'abc'", "b'abd'", r"b'\xff'", r"b'\xff\x00'", r"b'\xc3\xa9'", "b'é'", "b'😀'", r"b'\xed\xa0\x80'",
    r"b'\xf4\x90\x80\x80'", r"b'\xc0\x80'", "b'" + "x" * 40 + "'",
)  # fmt: skip
DURATIONS: Final = tuple(
    f"duration('{text}')"
    for text in (
        "0s", "1ns", "-1ns", "1s", "-1s", "1.5s", "999ms", "1m", "1h", "-90s", "59m59.999999999s", "24h", "8760h",
        "315537897599s", "2562047h47m16.854775807s", "-2562047h47m16.854775808s", "9223372036s",
        "1000h", "0.000000001s", "1500ms", "-1h0m0.5s",
    )
)  # fmt: skip
TIMESTAMPS: Final = tuple(
    f"timestamp('{text}')"
    for text in (
        "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00.000000001Z",
        "9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59Z", "2024-02-29T12:00:00Z", "2023-03-01T00:00:00+14:00",
        "2024-12-31T23:30:00-01:00", "2024-07-01T00:00:00.5Z", "2024-03-10T10:00:00Z", "2024-03-31T01:00:00Z",
        "1900-01-01T00:00:00Z",
        "2000-01-01T00:00:00.000001Z", "2038-01-19T03:14:08Z", "2262-04-11T23:47:16.854775807Z", "2262-04-12T00:00:00Z",
        "1677-09-21T00:12:43Z", "2024-01-01T00:00:00+05:30",
    )
)  # fmt: skip

# No exponents of nine digits: upstream writes such numbers out, for minutes.
_SUFFIXES: Final = (
    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e1", "E3", "e-3",
    "e+6", "e18",
    "e-9", "e-10", "e19", "e40",
)  # fmt: skip
_NUMBERS: Final = (
    "0", "1", "00", "007", "1.", ".1", ".", "", "1.5", "-1.5", "+2", "999999999999999999", "1000000000000000000",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "0.000000001", "0.0000000001", "1.0",
    "1.5000",
    "123456789012345678.9", "1024", "1023.999", "8", "7.999999999999999999", "-0", "-0.1", "12345678901234567890123",
)  # fmt: skip
QUANTITY_TEXTS: Final = (
    *dict.fromkeys(number + suffix for number, suffix in product(_NUMBERS, _SUFFIXES)),
    "1e", "1ee3", "1e400", "1e-400", "1e2147483648e", "1e4294967296",
    "1e9223372036854775808", "1e309", "1e1000", "1K", "1ki", "1 ", " 1", "1 Gi", "1,5", "0x10",
    "1_000", "١",
    "1Gi1", "1GiB", "--1", "+-1", "1.2.3", "e3", "Inf", "NaN", "1mm", "1e1.5", "1e+", "1e+-3", "-", "+", "-.", "1i",
)  # fmt: skip
_QUANTITIES: Final = (
    "0", "0Gi", "1", "-1", "80Gi", "1500m", "-1500m", "0.5", "1e3", "1k", "1.5k", "1n", "0.1n", "100Ti", "7Ei",
    "8Ei", "-8Ei",
    "9Ei", "999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808",
    "1e18", "1e19", "1e30", "-1e30", "1e-3", "123456789.987654321", "5M", "1.0", "1000m", "1E", "9E", "1e300",
    "1u", "0.1Ki",
)  # fmt: skip
QUANTITIES: Final = (
    *(f"quantity('{text}')" for text in _QUANTITIES),
    "quantity('0').add(-9223372036854775808)", "quantity('0').sub(-9223372036854775808)", "quantity('1').sub(1)",
    "quantity('9223372036854775807').add(1)", "quantity('0').add(9223372036854775807)",
    "quantity('1Ki').add(quantity('1m'))",
)  # fmt: skip

SEMVER_TEXTS: Final = (
    "1.2.3", "0.0.0", "v1.2.3", "1.2", "1", "v1", "", "v", "01.2.3", "1.02.3", "1.2.03", "1.2.3-rc.1",
    "1.2.3-rc.01", "1.2.3-01a",
    "1.2.3+b", "1.2.3+b.01", "1.2.3-a+b", "1.2.3-", "1.2.3+", "1.2.3-a..b", "1.2.3+a..b", "1.2.3-é", "1.2.3.4",
    "1.2.x", "-1.2.3",
    "18446744073709551615.0.0", "18446744073709551616.0.0", "9223372036854775808.0.0", "1.2.3-18446744073709551616",
    "1.2.3-99999999999999999999", "1.2-rc", "1.2+b", "1-rc", "v01.002.0003", "v1.2-rc.1", "vv1.2.3", "V1.2.3",
    " 1.2.3", "1..3",
    "1.2.3-a_b", "1.2.3 ", "1.-2.3", "1.2.-3", "0.0.0-0", "00.00.00", "v00", "1.2.3-0", "1.2.3-00", "1.2.3--",
    "1.2.3-+b", "1.2.3+b-c",
    "1.2.3+b+c", ".", "..", "1.2.", "1.", ".1.2", "١.2.3",
)  # fmt: skip
_SEMVERS: Final = (
    "1.2.3", "0.0.0", "1.2.3-rc.1", "1.2.3-rc.2", "1.2.3-1", "1.2.3-alpha", "1.2.3-alpha.1", "1.2.3-alpha.beta",
    "1.2.3+b",
    "1.2.3-rc.1+b", "9223372036854775808.0.0", "18446744073709551615.1.2", "2.0.0", "1.2.4", "1.3.0",
)  # fmt: skip
SEMVERS: Final = (*(f"semver('{text}')" for text in _SEMVERS), "semver('v1', true)", "semver('01.2', true)")

IP_TEXTS: Final = (
    "0.0.0.0", "127.0.0.1", "255.255.255.255", "10.0.0.1", "169.254.1.1", "224.0.0.1", "224.0.1.1",
    "239.255.255.255", "240.0.0.1",
    "::", "::1", "fe80::1", "fe80::1%eth0", "ff02::1", "ff01::1", "ff05::2", "ff12::1", "2001:db8::1", "2001:DB8::1",
    "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8:0:0:1:0:0:1", "::ffff:1.2.3.4", "::ffff:102:304",
    "::1.2.3.4", "64:ff9b::1.2.3.4",
    "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.256", "1.2.3.-4", "1.2.3.4 ", "", "a", ":::", "1::2::3",
    "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "12345::", "g::", "[::1]", "1.2.3.4/8", "fe80::%",
    "::%0", "1.2.3.4%a",
    "fec0::1", "fc00::1", "febf::1", "::ffff:0:0", "0:0:0:0:0:ffff:0a00:1", "1.1.1.1:80", "::1.2.3", "::1.2.3.04",
    "1:2:3:4:5:6:1.2.3.4",
    "0x1.0.0.0", "1", "１.2.3.4", "::ffff:1.2.3.4%a", "1:2:3:4:5:6:7:1.2.3.4", "::00001", "1.2..4", ".1.2.3",
    "1.2.3.", "0.0.0.0.",
)  # fmt: skip
IPS: Final = tuple(
    f"ip('{text}')"
    for text in (
        "0.0.0.0", "127.0.0.1", "127.255.0.1", "255.255.255.255", "10.0.0.1", "169.254.1.1", "224.0.0.1",
        "224.0.1.1", "::", "::1",
        "fe80::1", "febf::1", "fec0::1", "ff02::1", "ff01::1", "ff12::1", "fc00::1", "2001:db8::1", "::1.2.3.4",
        "10.0.0.255",
    )
)  # fmt: skip
CIDR_TEXTS: Final = (
    "0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/8", "10.0.0.1/32", "10.0.0.1/33", "10.0.0.0/-1", "10.0.0.0/08",
    "10.0.0.0/+8", "10.0.0.0/",
    "10.0.0.0", "/8", "", "::/0", "fe80::/64", "2001:db8::1/128", "::1/129", "::ffff:1.2.3.4/96",
    "::ffff:1.2.3.4/128", "fe80::%eth0/64",
    "10.0.0.0/8/8", "10.0.0/8", "10.0.0.0/ 8", "10.0.0.0/8 ", "10.0.0.0/a", "::/1234", "01.0.0.0/8", "10.0.0.0/00",
    "::/000", "::1.2.3.4/120",
    "::/٨", "1.2.3.4/32", "1.2.3.5/31", "1.2.3.4%a/8",
)  # fmt: skip
CIDRS: Final = tuple(
    f"cidr('{text}')"
    for text in (
        "0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/8", "10.0.0.1/32", "10.128.0.0/9", "::/0", "fe80::/10", "fe80::1/64",
        "2001:db8::1/128",
        "::1/127", "10.0.0.0/7", "1.2.3.4/31",
    )
)  # fmt: skip

URL_TEXTS: Final = (
    "https://h:80/p?q=1#f", "http://h", "/p", "", "h", "h/p", "http:", "http:/", "http://", "http:///p", "//h/p",
    "///p", "mailto:a@b",
    "http://[::1]:80/", "http://[::1]", "http://[::1", "http://::1/", "http://h:", "http://h:a", "http://h:80:90",
    "http://h:99999", "http://h:-1",
    "http://u:p@h/", "http://u@h", "http://@h", "http://u:@h", "http://u@v@h", "http://u%40:p@h", "http://u/x@h",
    "http://h/%41", "http://h/%zz",
    "http://h/%", "http://h/a b", "http://h/é", "http://é/", "http://h%41/", "http://h%20/", "http://h%e9/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/", "http://h?q", "http://h?", "http://h#", "http://h#f#g", "http://h?a=1&a=2&b",
    "http://h?a=%zz", "http://h?a;b=1",
    "http://h?a+b=c+d", "http://h?%41=%42", "?q", "#f", "*", "1http://h", "ht+tp://h", "ht_tp://h", ":p", "a:b",
    "/a:b", "a/b:c", "HTTP://H",
    "http://h/p;x", "http://h//p", "http://h/p/../q", "http://h/\t", "http://h/\x7f", "http://h/[",
    "http://h/!'()*", "http://h/a%2Fb",
    "http://h/a%2fb", "http://h/~", "http://h/|", "http://h/^", "http://h/\"", "http://h/<>", "http://h\\p",
    "http://h/\\", "http://h:080/",
    "http://1.2.3.4:80", "http://[1.2.3.4]/", "http://[::ffff:1.2.3.4]/", "http://[]/", "http://[::1]x/",
    "http://h[::1]/", "/%2F", "/ ",
    "//u@h", "http://h/p?a=b#%zz", "http://h/p?a=b%20c&d", "http:h", "http:h?x", "file:///etc", "x://", "x:///",
    "x://a_b/", "x://a b/",
    "x://a\"b/", "http://user name@h/", "http://h/?é=ü", "http://h/%E9", "http://h/%c3%a9",
)  # fmt: skip
URLS: Final = tuple(
    f"url('{text}')"
    for text in (
        "https://h:80/p?q=1#f", "http://h", "/p", "http://[::1]:80/", "http://[::1]",
        "http://u:p@h:1/a%2Fb?x=1&x=2&y", "mailto:a@b",
        "http://h:", "http://h/a b", "http://h/%c3%a9?%zz=1&a=%zz", "HTTP://H/?a+b=c%20d", "file:///etc", "*",
        "http://h?", "//h/p",
        "http://[fe80::1%25eth0]:8/", "http://h/é",
    )
)  # fmt: skip
FORMATS: Final = (
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix", "dns1123SubdomainPrefix",
    "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime",
)  # fmt: skip
NAMED_FORMATS: Final = tuple(f"format.{name}()" for name in FORMATS)
FORMAT_TEXTS: Final = (
    "", "a", "A", "a-b", "-a", "a-", "a.b", "a..b", ".a", "1a", "1", "a" * 63, "a" * 64, "a" * 253, "a" * 254,
    "a/b", "a.b/c", "/a", "a/", "a/b/c", "a_b",
    "A_b.c", "é", "a\n", "http://h", "/p", "h", "http://h/%zz", "123e4567-e89b-12d3-a456-426614174000",
    "123E4567E89B12D3A456426614174000",
    "123e4567-e89b-12d3-a456-42661417400", "YWJj", "YWJ", "YQ==", "Y Q==", "YQ=", "====", "2024-02-29",
    "2023-02-29", "2024-2-9", "0000-01-01",
    "2024-02-29T12:00:00Z", "2024-02-29T12:00:00", "2024-02-29t12:00:00z", "2024-02-29T12:00:00.5+01:00",
    "2024-02-29T24:00:00Z", "2024-02-29 12:00:00Z",
    "2024-02-29T12:00:60Z", "a b", "a.-b", "a-.b", "example.com/" + "a" * 64, "a" * 250 + ".com/a", "a" * 64 + ".b",
    "-", "_", "a.", "x-",
)  # fmt: skip

DURATION_TEXTS: Final = (
    "", "0", "+0", "-0", "0s", "1", "1s", "+1s", "-1s", "--1s", "1.s", ".1s", ".s", "s", "1.5h", "1h1h", "1s1h",
    "1h 1m", " 1s", "1S", "1d", "1us", "1µs", "1μs",
    "1ns", "0.5ns", "1.9999999999s", "0.0000000001s", "2562047h47m16.854775807s", "2562047h47m16.854775808s",
    "-2562047h47m16.854775808s",
    "-2562047h47m16.854775809s", "9223372036854775807ns", "9223372036854775808ns", "-9223372036854775808ns",
    "9999999999999999999ns",
    "1e3s", "1h-1m", "1m.5s", "0.3333333333333333333h", "1.00000000000000000000000001h", "99999999999999999999999s",
    "1_0s", "１s", "1hs", "1ms1",
    "0.9223372036854775808h", "3000000h", "1.0000000000000000009s", "9223372036.854775807s",
    "9223372036.8547758079s", "-.5s", "0h0m0s", "1h1m1s1ms1us1ns",
)  # fmt: skip
TIMESTAMP_TEXTS: Final = (
    "", "2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z", "2024-02-29t12:00:00Z", "2024-02-29T12:00:00z",
    "2024-02-29 12:00:00Z", "2024-02-29T12:00:00",
    "2024-02-29T12:00Z", "2024-02-29T1:00:00Z", "2024-02-29T12:00:60Z", "2024-02-29T24:00:00Z",
    "2024-02-29T23:60:00Z", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z",
    "2024-01-00T00:00:00Z", "2024-01-32T00:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.9999999999Z",
    "10000-01-01T00:00:00Z", "2024-01-01T00:00:00.Z",
    "2024-01-01T00:00:00.1Z", "2024-01-01T00:00:00,1Z", "2024-01-01T00:00:00.123456789123Z",
    "2024-01-01T00:00:00+00:00", "2024-01-01T00:00:00-00:00",
    "2024-01-01T00:00:00+24:00", "2024-01-01T00:00:00+23:59", "2024-01-01T00:00:00+24:60",
    "2024-01-01T00:00:00+25:00", "2024-01-01T00:00:00+00:60", "2024-01-01T00:00:00+00:61",
    "2024-01-01T00:00:00+0100", "2024-01-01T00:00:00+1:00", "2024-01-01T00:00:00 Z", " 2024-01-01T00:00:00Z",
    "2024-1-1T00:00:00Z", "24-01-01T00:00:00Z",
    "-2024-01-01T00:00:00Z", "2024-01-01T00:00:00Zx", "２024-01-01T00:00:00Z", "2024-04-31T00:00:00Z",
    "1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z",
    "0001-01-01T00:00:00-00:01", "2024-01-01T00:00:00.0000000005Z", "2024-01-01T0:00:00Z", "2024-01-01T00:0:00Z",
    "2024-01-01T00:00:0Z", "2024-01-01T5:00:00.5Z",
)  # fmt: skip
ZONES: Final = (
    "", "UTC", "Local", "utc", "Z", "GMT", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu",
    "Pacific/Kiritimati", "Pacific/Apia",
    "America/Nowhere", "Europe", "../UTC", "/UTC", "a/../b", "+00:00", "-00:00", "00:00", "+02:00", "-08:30",
    "02:00", "+14:00", "+99:99", "-99:99", "+2:0", "+2:5", "+:30",
    "+1:", ":", "a:b", "1:b", "+a:00", "1:2:3", "+01:-30", "-1:30", "--1:00", " 1:00", "Etc/GMT+5", "EST", "CET",
    "EST5EDT", "\\UTC", "Europe/berlin", "é",
    "+0100", "999999999999999999999:00", "00:99999999999999999999",
)  # fmt: skip
INT_TEXTS: Final = (
    "0", "-0", "+1", "1", "-1", "", " 1", "1 ", "1.0", "1e3", "0x10", "0b1", "0o7", "010", "1_000",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "18446744073709551615", "18446744073709551616", "a", "１", "1u", "--1",
    "00000000000000000000000000001", "+", "-", "true",
)  # fmt: skip
DOUBLE_TEXTS: Final = (
    "0", "-0", "1.5", "+1.5", ".5", "5.", ".", "", "e", "1e", "1e3", "1E3", "1e+3", "1e-3", "1e400", "-1e400",
    "1e-400", "5e-324", "2e-324", "3e-324",
    "1.7976931348623157e308", "1.7976931348623159e308", "NaN", "nan", "-nan", "+nan", "inf", "Inf", "-inf", "+Inf",
    "infinity", "Infinity", "infinit", "0x1p4", "0x1.8p1", "0x1", "0x.8p0",
    "0xp1", "0x1p", "0x1p1024", "0x1p-1080", "1_000.5", "_1", "1_", "1__0", "0x_1p0", "0_1", "1e1_0", " 1", "1 ",
    "1d", "1f", "0b1", "１", "1,5", "9007199254740993", "0.1e1000000000",
    "0x1.fffffffffffff8p1023", "1e99999999999999999999",
)  # fmt: skip
BOOL_TEXTS: Final = (
    "true",
    "True",
    "TRUE",
    "tRue",
    "t",
    "T",
    "1",
    "false",
    "False",
    "FALSE",
    "f",
    "F",
    "0",
    "",
    "yes",
    "no",
    " true",
    "10",
)
PATTERNS: Final = _quoted(
    (
        "", "a", "^a$", "a|b", "(a)(b)?", "[a-c]+", "\\d+", "\\bA", "(?i)ABC", "(?s).", "(?m)^b$", "a{2,3}",
        "a{1001}", "(a{100}){100}", "[", "(", "a**", "\\C", "\\p{L}+", "\\pN", "(?P<n>a)",
        "(?<n>a)", "\\1", "a(?=b)", "\\Aa\\z", "a\\Z", "x*", "(?U)a+", "\\Q[\\E", "[[:alpha:]]", "é", "😀", "[😀-😂]",
        ".", "..", "\\x{1F600}", "\\xzz", "\\", "(?i)ß", "(?i)K", "[^a]", "$", "^", "\\B", "a?",
        "(|a)*", "(?:)", "[a-", "[z-a]", "+", "?", "{1}", "a{,2}", "a{2", "\\8", "\\_", "(?z)a", "\\z",
        "(a|ab)(c|bcd)", "\\S+@\\S+", "[\\d-z]", "\\pZZ",
    )
)  # fmt: skip
_PRECISIONS: Final = ("", ".0", ".2", ".10", ".1000", ".1001", ".", ".-1", "5", "+", ".99999999999999999999")
TEMPLATES: Final = (
    *(f"%{precision}{clause}" for clause in "sdfeboxXcgqvn%" for precision in _PRECISIONS),
    "%", "%%", "a%sb%s", "%s%", "no clause", "%s%s", "é%sé", "%1$s", "% s", "%.2s",
)  # fmt: skip

LIST_ELEMENTS: Final[dict[str, tuple[str, ...]]] = {
    "int": ("", "1", "3, 1, 2", "1, 1", "9223372036854775807, 1",
            "-9223372036854775808, -1, 5", ", ".join(map(str, range(60)))),
    "uint": ("", "1u", "3u, 1u, 2u", "18446744073709551615u, 1u", "2u, 2u"),
    "double": (
        "", "1.5", "double('NaN')", "double('NaN'), 1.0", "1.0, double('NaN'), 0.5", "0.0, -0.0", "-0.0, 0.0",
        "1e308, 1e308",
        "double('Infinity'), double('-Infinity')", "2.0, 1.0, 2.0", "double('NaN'), double('NaN')",
    ),
    "bool": ("", "true", "true, false", "false, true, false"),
    "string": ("", "''", "'a'", "'b', 'a', 'a'", "'é', 'z', '😀', 'ﬀ'", "'a', 'B'", "'" + "x" * 30 + "', 'y'"),
    "bytes": ("", "b''", "b'b', b'a'", "b'a', b'a'", r"b'\xff', b'z'"),
    "duration": (
        "", "duration('1s')", "duration('2s'), duration('1s')",
        "duration('2562047h47m16.854775807s'), duration('1ns')",
    ),
    "timestamp": (
        "", TIMESTAMPS[0], f"{TIMESTAMPS[4]}, {TIMESTAMPS[2]}", f"{TIMESTAMPS[8]}, timestamp('2025-01-01T00:30:00Z')",
    ),
    "null": ("null", "null, null"),
    "dyn": (
        "", "dyn(1), dyn('a')", "dyn(1), dyn(1.0), dyn(1u)", "dyn(null), dyn([1])", "dyn('a'), dyn(b'a')",
        "dyn([1, 2]), dyn([1])", "dyn({'a': 1})",
        "dyn(1), dyn(double('NaN'))", "dyn(quantity('1')), dyn(1)", "dyn(true), dyn(1)", "dyn([[1]]), dyn([2])",
    ),
    "kubernetes.Quantity": ("", "quantity('1')", "quantity('2'), quantity('1'), quantity('1000m')"),
    "kubernetes.Semver": ("semver('1.2.3')", "semver('2.0.0'), semver('1.0.0')"),
    "net.IP": ("", "ip('10.0.0.1')", "ip('::1'), ip('10.0.0.1'), ip('::1')"),
    "optional": ("", "optional.of(1)", "optional.none(), optional.of(1)", "optional.of(1), optional.of(2)",
        "optional.none(), optional.none()"),
    "type": ("int", "int, string", "type(1), int"),
}  # fmt: skip
LISTS: Final = (
    *(f"[{inner}]" for kind in LIST_ELEMENTS.values() for inner in kind), "[[]]", "[[], [1]]", "[[1], [2, 3]]",
    "[[[1]], [[2]]]", "[{}]", "[{'a': 1}]",
    "lists.range(0)", "lists.range(3)", "['a']", "'a,b'.split(',')", "device.attributes['d.example.com'].list",
    "[1, 2] + [3]",
)  # fmt: skip
MAPS: Final = (
    "{}", "{'a': 1}", "{'a': 1, 'b': 2}", "{1: 'a', 2: 'b'}", "{1u: 'a'}", "{true: 1, false: 0}", "{'': null}",
    "{'a': {'b': [1]}}", "{'k': dyn(1)}", "{1: 1.5}",
    "device.attributes", "device.attributes['d.example.com']", "device.capacity",
    "device.capacity['d.example.com']", "{'a': 'x', 'b': 'y'}",
    "{dyn(1): 'a', dyn('b'): 'c'}", "{1.5: 'a'}", "{'é': 1}", "{'a': 1, ?'b': optional.none()}",
    "{dyn(1): 'a', dyn(1u): 'b'}",
)  # fmt: skip
OPTIONALS: Final = (
    "optional.none()", "optional.of(1)", "optional.of('a')", "optional.of(null)", "optional.of(optional.none())",
    "optional.of(optional.of(1))", "optional.of([1, 2])",
    "optional.of({'a': 1})", "optional.of(dyn(1))", "optional.ofNonZeroValue(0)", "[1].first()", "[].last()",
    "{'a': 1}.?a", "{'a': 1}.?b", "[1][?5]",
    "device.attributes['d.example.com'].?s", "device.attributes[?'none'].s", "optional.of(quantity('1'))",
    "optional.of(ip('::1'))",
)  # fmt: skip
TYPE_VALUES: Final = (
    "int", "string", "type(1)", "list", "map", "type", "null_type", "net.IP", "net.CIDR", "optional_type",
    "google.protobuf.Timestamp", "type(type(1))", "type(quantity('1'))",
    "type(null)", "type([])", "bool", "bytes", "double", "uint", "google.protobuf.Duration",
    "type(optional.none())", "type(dyn(1))",
)  # fmt: skip

_TO_YEAR_ONE: Final = 62_135_596_800
_STAMPS: Final = (
    (0, 0), (0, -1), (0, 999999999), (0, 1000000000), (0, 2147483647), (0, -2147483648), (253402300799, 999999999),
    (253402300799, 1000000000), (253402300800, 0), (-_TO_YEAR_ONE, 0), (-_TO_YEAR_ONE, -1), (-_TO_YEAR_ONE - 1, 0),
    (2**63 - 1, 0), (2**63 - 1, 999999999), (2**63 - 1, 2147483647), (-(2**63), 0), (-(2**63), -1), (2**63 - 90, 0),
    (-(2**63) + 90, 0), (2**63 - 1 - _TO_YEAR_ONE, 0), (2**63 - _TO_YEAR_ONE, 0), (-(2**63) + _TO_YEAR_ONE, 0),
    (2**62, 1), (9223372036, 854775807), (-9223372037, 145224192),
)  # fmt: skip
_SPANS: Final = (
    (0, 0), (1, -1), (-1, 1), (0, 2147483647), (0, -2147483648), (9223372036, 854775807), (9223372036, 854775808),
    (-9223372036, -854775808), (-9223372036, -854775809), (9223372037, 0), (2**63 - 1, 0), (-(2**63), 0),
    (1, 500000000),
)  # fmt: skip


def _message(name: str, fields: str) -> str:
    return f"google.protobuf.{name}{{{fields}}}"


MESSAGES: Final[dict[str, tuple[str, ...]]] = {
    "bool": tuple(_message("BoolValue", fields) for fields in ("", "value: true")),
    "int": (
        *(_message("Int64Value", fields) for fields in ("", "value: 1", "value: -9223372036854775808")),
        *(_message("Int32Value", fields) for fields in ("", "value: 2147483647", "value: 2147483648")),
        _message("Value", "number_value: 1.0"),
    ),
    "uint": (
        *(_message("UInt64Value", fields) for fields in ("", "value: 18446744073709551615u")),
        *(_message("UInt32Value", fields) for fields in ("value: 4294967295u", "value: 4294967296u")),
    ),
    "double": (
        *(_message("DoubleValue", fields) for fields in ("", "value: 0.1", "value: -0.0", "value: double('NaN')")),
        *(_message("FloatValue", f"value: {value}") for value in ("0.1", "1e300", "1e-46", "16777217.0")),
        *(_message("Value", f"number_value: {value}") for value in ("1.5", "double('Infinity')")),
    ),
    "string": (
        *(_message("StringValue", fields) for fields in ("", "value: 'a'", "value: 'grüße'")),
        _message("Value", "string_value: 'a'"),
    ),
    "bytes": tuple(_message("BytesValue", fields) for fields in ("", r"value: b'\xff'")),
    "null": (_message("Value", ""), _message("Value", "null_value: google.protobuf.NullValue.NULL_VALUE")),
    "duration": tuple(_message("Duration", f"seconds: {seconds}, nanos: {nanos}") for seconds, nanos in _SPANS),
    "timestamp": tuple(_message("Timestamp", f"seconds: {seconds}, nanos: {nanos}") for seconds, nanos in _STAMPS),
    "list": (
        *(_message("ListValue", fields) for fields in ("", "values: ['a', 1.5]", "values: [1, null]")),
        _message("Value", "list_value: ['a']"),
    ),
    "map": (
        *(_message("Struct", fields) for fields in ("", "fields: {'a': 1.5}", "fields: {'a': ['b'], 'c': null}")),
        _message("Value", "struct_value: {'a': 1}"),
    ),
    "type": (_message("Any", ""), _message("Empty", ""), _message("FieldMask", "paths: ['a']")),
}  # fmt: skip
"""Values that only message literals make, or make otherwise."""

_PLAIN: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("true", "false"),
    "int": INTS,
    "uint": UINTS,
    "double": DOUBLES,
    "string": STRINGS,
    "bytes": BYTES,
    "null": ("null",),
    "duration": DURATIONS,
    "timestamp": TIMESTAMPS,
    "kubernetes.Quantity": QUANTITIES,
    "kubernetes.Semver": SEMVERS,
    "kubernetes.URL": URLS,
    "kubernetes.NamedFormat": NAMED_FORMATS,
    "net.IP": IPS,
    "net.CIDR": CIDRS,
    "list": LISTS,
    "map": MAPS,
    "optional_type": OPTIONALS,
    "type": TYPE_VALUES,
}
POOLS: Final[dict[str, tuple[str, ...]]] = {name: (*pool, *MESSAGES.get(name, ())) for name, pool in _PLAIN.items()}
"""By the name of a type."""

BASES: Final[dict[str, str]] = {
    "bool": "true", "int": "1", "uint": "1u", "double": "1.5", "string": "'abc'", "bytes": "b'abc'", "null": "null",
    "duration": "duration('90s')",
    "timestamp": "timestamp('2024-02-29T12:00:00Z')", "kubernetes.Quantity": "quantity('80Gi')",
    "kubernetes.Semver": "semver('1.2.3')",
    "kubernetes.URL": "url('https://h:80/p?q=1')", "kubernetes.NamedFormat": "format.uuid()",
    "net.IP": "ip('10.0.0.1')", "net.CIDR": "cidr('10.0.0.0/8')",
    "list": "[1, 2]", "map": "{'a': 1}", "optional_type": "optional.of(1)", "type": "int",
}  # fmt: skip
"""A plain value of each type."""

TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "string_to_quantity": _quoted(QUANTITY_TEXTS),
    "is_quantity_string": _quoted(QUANTITY_TEXTS),
    **dict.fromkeys(
        ("string_to_semver", "string_bool_to_semver", "is_semver_string", "is_semver_string_bool"),
        _quoted(SEMVER_TEXTS),
    ),
    **dict.fromkeys(("string_to_ip", "is_ip", "ip_is_canonical", "cidr_contains_ip_string"), _quoted(IP_TEXTS)),
    **dict.fromkeys(("string_to_cidr", "is_cidr", "cidr_contains_cidr_string"), _quoted(CIDR_TEXTS)),
    **dict.fromkeys(("string_to_url", "is_url_string"), _quoted(URL_TEXTS)),
    "string_to_duration": _quoted(DURATION_TEXTS),
    "string_to_timestamp": _quoted(TIMESTAMP_TEXTS),
    "string_to_int64": _quoted(INT_TEXTS),
    "string_to_uint64": _quoted(INT_TEXTS),
    "string_to_double": _quoted(DOUBLE_TEXTS),
    "string_to_bool": _quoted(BOOL_TEXTS),
    "format-validate": _quoted(FORMAT_TEXTS),
    "format_named": _quoted((*FORMATS, "", "nothing", "DNS1123Label")),
}
"""Arguments of functions that read a text, by overload (for methods: the first argument)."""
