"""Semantic versions in CEL (KEP-5137): semver("1.2.3"), tolerant reading, comparison."""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel.signatures import Library
from drakkar.cel.values import INT_MAX, INT_MIN, Failure, size_of, tenth
from drakkar.kube.semver import Version, VersionError


def semver(text: str, normalize: bool = False) -> Any:
    """The version a text names, or upstream's error."""
    try:
        return Version.parse(text, normalize=normalize)
    except VersionError as problem:
        return Failure(problem.message)


def _is_semver(text: str, normalize: bool = False) -> bool:
    return not isinstance(semver(text, normalize), Failure)


def _int(number: int) -> int:
    """Upstream turns 64 unsigned bits into signed ones."""
    return number if number <= INT_MAX else number + 2 * INT_MIN


def _walk(arguments: Any, _: Any) -> int:
    return tenth(size_of(arguments[0]))


SEMVERS: Final = Library(
    name="semver",
    declarations="""
semver(string) -> kubernetes.Semver    string_to_semver
semver(string, bool) -> kubernetes.Semver    string_bool_to_semver
isSemver(string) -> bool    is_semver_string
isSemver(string, bool) -> bool    is_semver_string_bool
kubernetes.Semver.compareTo(kubernetes.Semver) -> int    semver_compare_to
kubernetes.Semver.isGreaterThan(kubernetes.Semver) -> bool    semver_is_greater_than
kubernetes.Semver.isLessThan(kubernetes.Semver) -> bool    semver_is_less_than
kubernetes.Semver.major() -> int    semver_major
kubernetes.Semver.minor() -> int    semver_minor
kubernetes.Semver.patch() -> int    semver_patch
""",
    implementations={
        "string_to_semver": semver,
        "string_bool_to_semver": semver,
        "is_semver_string": _is_semver,
        "is_semver_string_bool": _is_semver,
        "semver_compare_to": Version.compare,
        "semver_is_greater_than": lambda left, right: left.compare(right) > 0,
        "semver_is_less_than": lambda left, right: left.compare(right) < 0,
        "semver_major": lambda version: _int(version.major),
        "semver_minor": lambda version: _int(version.minor),
        "semver_patch": lambda version: _int(version.patch),
    },
    function_prices={
        "semver": _walk,
        "isSemver": _walk,
        **dict.fromkeys(("isGreaterThan", "isLessThan", "compareTo", "major", "minor", "patch"), 1),
    },
)
