"""Semantic versions: strict parsing, tolerant parsing, precedence."""

import pytest

from drakkar.kube.semver import Version, VersionError

PRECEDENCE = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
    "18446744073709551615.0.0",
]


def test_precedence_follows_the_specification() -> None:
    versions = [Version.parse(text) for text in PRECEDENCE]
    assert sorted(versions, key=str) != versions
    assert sorted(versions) == versions
    for left in range(len(versions)):
        for right in range(len(versions)):
            assert versions[left].compare(versions[right]) == (left > right) - (left < right)


def test_build_metadata_is_kept_and_never_compared() -> None:
    plain, built = Version.parse("1.2.3"), Version.parse("1.2.3+build.05")
    assert plain == built
    assert hash(plain) == hash(built)
    assert str(built) == "1.2.3+build.05"


@pytest.mark.parametrize("text", ["1.2.3", "0.0.0", "1.2.3-rc.1+x.y", "1.0.0--", "1.0.0-0a", "570.86.15"])
def test_text_survives_a_round_trip(text: str) -> None:
    assert str(Version.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Version string empty"),
        ("1", "No Major.Minor.Patch elements found"),
        ("1.2", "No Major.Minor.Patch elements found"),
        ("v1.2.3", 'Invalid character(s) found in major number "v1"'),
        ("01.2.3", 'Major number must not contain leading zeroes "01"'),
        ("1.2.03", 'Patch number must not contain leading zeroes "03"'),
        ("1..3", 'strconv.ParseUint: parsing "": invalid syntax'),
        ("18446744073709551616.0.0", 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.2.3-ä", 'Invalid character(s) found in prerelease "ä"'),
        ("1.2.3+", "Build meta data is empty"),
        ("1.2.3+a_b", 'Invalid character(s) found in build meta data "a_b"'),
        ("1.2.3.4", 'Invalid character(s) found in patch number "3.4"'),
        ("1.2.٣", 'Invalid character(s) found in patch number "٣"'),
    ],
)
def test_strict_reading_names_the_bad_part(text: str, problem: str) -> None:
    with pytest.raises(VersionError) as failure:
        Version.parse(text)
    assert failure.value.message == problem


@pytest.mark.parametrize(
    ("text", "strict"),
    [("v1", "1.0.0"), ("01.002", "1.2.0"), ("v1.2.3-rc.1", "1.2.3-rc.1"), ("1001.0.00", "1001.0.0"), ("00", "0.0.0")],
)
def test_tolerant_reading_completes_short_versions(text: str, strict: str) -> None:
    assert str(Version.parse(text, normalize=True)) == strict


def test_tolerant_reading_refuses_a_short_version_with_a_suffix() -> None:
    with pytest.raises(VersionError, match="short version cannot contain PreRelease/Build meta data"):
        Version.parse("1.2-rc", normalize=True)
