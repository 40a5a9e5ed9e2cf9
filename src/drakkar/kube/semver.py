"""Semantic versions as device attributes and CEL see them: strict SemVer 2.0.0, and Kubernetes' tolerant reading.

Build metadata is kept but never compared (https://semver.org, items 10 and 11). The tolerant reading ("v1", "01.2")
belongs to `semver(text, true)` in CEL (KEP-5137); attributes of devices are always read strictly (KEP-4381).
"""

from __future__ import annotations

import re
from functools import lru_cache, total_ordering
from typing import Final

from drakkar.errors import DrakkarError

__all__ = ["Version", "VersionError"]

_UINT64_MAX: Final = (1 << 64) - 1
_DIGITS: Final = re.compile(r"[0-9]*", re.ASCII)
_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z-]+", re.ASCII)


class VersionError(DrakkarError, ValueError):
    """The text is not a semantic version; the message says which part."""


@total_ordering
class Version:
    """One semantic version, immutable; equality, order and hash ignore build metadata."""

    __slots__ = ("_key", "build", "major", "minor", "patch", "prerelease")

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...]
    build: tuple[str, ...]

    def __init__(
        self,
        major: int,
        minor: int = 0,
        patch: int = 0,
        prerelease: tuple[int | str, ...] = (),
        build: tuple[str, ...] = (),
    ) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        self.prerelease = prerelease
        self.build = build
        # Numbers sort below words, and a release above its pre-releases.
        ranks = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in prerelease)
        self._key = (major, minor, patch, not prerelease, ranks)

    @staticmethod
    def parse(text: str, *, normalize: bool = False) -> Version:
        """Read a version; with `normalize` a leading "v", missing parts and leading zeroes are accepted.

        Raises `VersionError`.
        """
        found = _parsed(text, normalize)
        if isinstance(found, str):
            raise VersionError(found, reason="InvalidVersion", subject=repr(text), expected='a version like "1.2.3"')
        return found

    def compare(self, other: Version) -> int:
        """-1, 0 or 1 by precedence."""
        return (self._key > other._key) - (self._key < other._key)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(map(str, self.prerelease))
        return text + "+" + ".".join(self.build) if self.build else text

    def __repr__(self) -> str:
        return f"Version({str(self)!r})"


@lru_cache(maxsize=4096)
def _parsed(text: str, normalize: bool) -> Version | str:
    """The version, or what is wrong with the text."""
    if normalize:
        completed = _completed(text)
        if completed is None:
            return "short version cannot contain PreRelease/Build meta data"
        text = completed
    if not text:
        return "Version string empty"
    parts = text.split(".", 2)
    if len(parts) < 3:
        return "No Major.Minor.Patch elements found"
    rest, has_build, build_text = parts[2].partition("+")
    patch, has_prerelease, prerelease_text = rest.partition("-")
    numbers = []
    for name, digits in (("Major", parts[0]), ("Minor", parts[1]), ("Patch", patch)):
        number = _number(name, digits)
        if isinstance(number, str):
            return number
        numbers.append(number)
    prerelease: list[int | str] = []
    for word in prerelease_text.split(".") if has_prerelease else ():
        problem = _problem_in_prerelease(word)
        if problem:
            return problem
        prerelease.append(int(word) if word.isdigit() else word)
    build = tuple(build_text.split(".")) if has_build else ()
    for word in build:
        if not word:
            return "Build meta data is empty"
        if not _IDENTIFIER.fullmatch(word):
            return f'Invalid character(s) found in build meta data "{word}"'
    return Version(numbers[0], numbers[1], numbers[2], tuple(prerelease), build)


def _completed(text: str) -> str | None:
    """The tolerant spelling made strict, or None if a shortened version carries a suffix."""
    parts = [_without_zeroes(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and re.search(r"[+-]", parts[-1]):
        return None
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeroes(part: str) -> str:
    """A part without leading zeroes; one that then begins with no digit gets a zero ("-rc" is "0-rc")."""
    if len(part) < 2:
        return part
    rest = part.lstrip("0")
    return rest if rest and rest[0] in "0123456789" else "0" + rest


def _number(name: str, digits: str) -> int | str:
    if not _DIGITS.fullmatch(digits):
        return f'Invalid character(s) found in {name.lower()} number "{digits}"'
    if len(digits) > 1 and digits[0] == "0":
        return f'{name} number must not contain leading zeroes "{digits}"'
    if not digits:
        return 'strconv.ParseUint: parsing "": invalid syntax'
    if len(digits) > 20 or int(digits) > _UINT64_MAX:
        return f'strconv.ParseUint: parsing "{digits}": value out of range'
    return int(digits)


def _problem_in_prerelease(word: str) -> str:
    if not word:
        return "Prerelease is empty"
    if not _IDENTIFIER.fullmatch(word):
        return f'Invalid character(s) found in prerelease "{word}"'
    if not word.isdigit():
        return ""
    if len(word) > 1 and word[0] == "0":
        return f'Numeric PreRelease version must not contain leading zeroes "{word}"'
    if len(word) > 20 or int(word) > _UINT64_MAX:
        return f'strconv.ParseUint: parsing "{word}": value out of range'
    return ""
