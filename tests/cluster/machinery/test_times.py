"""Times and durations: RFC 3339 and Go's durations, with Go's complaints."""

import pytest

from drakkar.cluster.machinery import times


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.999Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
        ("2026-01-01T00:00:00-01:30", "2026-01-01T01:30:00Z"),
    ],
)
def test_times_are_written_in_utc_with_whole_seconds(text: str, written: str) -> None:
    assert times.canonical_time(text) == written


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2026-13-01T00:00:00Z", 'parsing time "2026-13-01T00:00:00Z": month out of range'),
        ("2026-02-30T00:00:00Z", 'parsing time "2026-02-30T00:00:00Z": day out of range'),
        (
            "2026-01-01T00:00:00",
            'parsing time "2026-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"',
        ),
        ("2026-01-01T00:00:00Zx", 'parsing time "2026-01-01T00:00:00Zx": extra text: "x"'),
    ],
)
def test_complaints_about_times(text: str, complaint: str) -> None:
    with pytest.raises(times.TimeError) as caught:
        times.parse_time(text)
    assert str(caught.value) == complaint


def test_microtimes_have_exactly_six_digits() -> None:
    assert times.canonical_microtime("2026-01-01T00:00:00.000001+01:00") == "2025-12-31T23:00:00.000001Z"
    with pytest.raises(times.TimeError, match="cannot parse"):
        times.canonical_microtime("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("90s", "1m30s"), ("1.5h", "1h30m0s"), ("0", "0s"), ("-2m", "-2m0s"), ("1500us", "1.5ms"), ("3ns", "3ns"),
        ("1h0m0.5s", "1h0m0.5s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_go_writes_them(text: str, written: str) -> None:
    assert times.canonical_duration(text) == written


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", 'time: invalid duration ""'),
        ("5", 'time: missing unit in duration "5"'),
        ("5d", 'time: unknown unit "d" in duration "5d"'),
        ("s", 'time: invalid duration "s"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
    ],
)
def test_complaints_about_durations(text: str, complaint: str) -> None:
    with pytest.raises(times.TimeError) as caught:
        times.seconds_of_duration(text)
    assert str(caught.value) == complaint
