"""A loaded specification file: its content, where it came from, what is doubtful about it.

Three profiles decide what counts as a mistake. ``default`` is the reference library without its carelessness,
``compat`` is the reference library 1.1.2 itself, ``strict`` adds the rules that only the text of the specification has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from . import advice, decode, nodes, rules, versions
from .block_text import compose_block
from .emit import to_json
from .errors import CdiError, Problem
from .json_text import read_json
from .model import Device, Spec, plain
from .names import qualified_name, split_kind

__all__ = ["CdiSpec", "Profile"]

Profile = Literal["default", "compat", "strict"]


class CdiSpec:
    """One specification, valid under its profile.

    Attributes:
        raw: the typed content.
        vendor, device_class: the two halves of ``kind``.
        path: the file it was loaded from, or "".
        warnings: problems that did not make it invalid.
    """

    __slots__ = ("_by_name", "device_class", "path", "raw", "vendor", "warnings")

    def __init__(self, raw: Spec, *, path: str = "", warnings: tuple[Problem, ...] = ()) -> None:
        self.raw = raw
        self.path = path
        self.warnings = warnings
        self.vendor, self.device_class = split_kind(raw.kind)
        self._by_name: dict[str, Device] | None = None

    @classmethod
    def load(cls, path: str | Path, *, profile: Profile = "default") -> CdiSpec:
        """Reads and checks a file; its suffix does not matter.

        Raises:
            CdiError: unreadable, not YAML, mistyped, or against a rule; with file, line and column.
        """
        name = str(path)
        try:
            text = _read(name)
        except OSError as error:
            raise CdiError(
                f"failed to read CDI specification {name}: {error.strerror or error}", file=name, reason="Unreadable"
            ) from None
        return cls.parse(text, file=name, profile=profile)

    @classmethod
    def parse(cls, text: bytes | str, *, file: str = "", profile: Profile = "default") -> CdiSpec:
        """Reads and checks text in YAML or JSON. ``file`` is for messages and ``path`` only.

        Raises:
            CdiError: as for :meth:`load`.
        """
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        raw, nulls, remarks = _decode(data, file, profile)
        found = [*nulls, *rules.problems(raw)]
        if not found and profile == "strict":
            found = list(rules.strict_problems(raw))
        if found:
            raise CdiError.of(_placed(found, data), file=file)
        remarks += advice.warnings(raw)
        return cls(raw, path=file, warnings=tuple(_placed(remarks, data)))

    @classmethod
    def from_object(cls, tree: Mapping[str, Any], *, profile: Profile = "default") -> CdiSpec:
        """Checks a specification given as plain JSON, e.g. one that a driver is about to write.

        Raises:
            CdiError: unknown fields, wrong types or against a rule.
        """
        try:
            text = to_json(tree)
        except (TypeError, ValueError, RecursionError) as error:
            raise CdiError(f"the specification is not plain JSON: {error}", reason="InvalidSpec") from None
        return cls.parse(text, profile=profile)

    @property
    def kind(self) -> str:
        """``vendor/class``."""
        return self.raw.kind

    @property
    def minimum_version(self) -> str:
        """The oldest specification version with everything the file uses."""
        return versions.minimum_version(self.raw)

    @property
    def devices(self) -> Mapping[str, Device]:
        """The devices by their unqualified name, in file order."""
        if self._by_name is None:
            self._by_name = {device.name: device for device in self.raw.devices}
        return self._by_name

    def qualified_names(self) -> list[str]:
        """``vendor/class=name`` of every device, in file order."""
        return [qualified_name(self.vendor, self.device_class, device.name) for device in self.raw.devices]

    def downgraded(self, maximum: str) -> CdiSpec:
        """The same for consumers that know only versions up to ``maximum``.

        Raises:
            CdiError: something it uses cannot be left out.
        """
        return CdiSpec(versions.downgrade(self.raw, maximum), path=self.path, warnings=self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """The specification as plain JSON."""
        return plain(self.raw)


def _read(path: str) -> bytes:
    """The file's bytes, at most one more than allowed: a device file or a huge one must not fill the memory."""
    with Path(path).open("rb") as file:
        return file.read(nodes.MAX_BYTES + 1)


def _decode(data: bytes, file: str, profile: Profile) -> tuple[Spec, list[Problem], list[Problem]]:
    """The typed content, null elements left out of lists, and remarks about the text."""
    compat = profile == "compat"
    short = read_json(data, json_escapes=not compat)
    if short is not None:
        return short, [], []
    tidy = _read_block(data, compat=compat)
    if tidy is not None:
        return tidy, [], []
    document = nodes.compose(data, json_escapes=not compat, file=file)
    root = document.root
    if root is None and compat:
        raise CdiError.of([Problem("EOF: the text holds no document")], file=file)
    raw, nulls = (None, []) if root is None else decode.decode(root, compat=compat, file=file)
    if raw is None:
        raise CdiError.of([Problem("no Spec data: the first document is empty")], file=file)
    remarks: list[Problem] = []
    if document.trailing and not compat:
        line, column = document.trailing_place
        if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
            raise CdiError.of([Problem("text follows the JSON object", (), line, column)], file=file)
        remarks.append(Problem("only the first document counts, what follows is ignored", (), line, column))
    return raw, nulls, remarks


def _read_block(data: bytes, *, compat: bool) -> Spec | None:
    """The content of tidy YAML by the short way; None where the long way must decide or report."""
    if not data.isascii() or data.translate(None, _PRINTABLE):
        return None
    root = compose_block(data.decode("ascii"))
    if root is None:
        return None
    try:
        spec, nulls = decode.decode(root, compat=compat)
    except (decode.NoPlaceError, CdiError):
        return None
    return None if nulls else spec


_PRINTABLE: Final = bytes(range(0x20, 0x7F)) + b"\n"


def _placed(problems: list[Problem], data: bytes) -> list[Problem]:
    """Gives problems their line and column; the text is composed again since only bad files need it."""
    if all(problem.line for problem in problems):
        return problems
    root = nodes.compose(data, json_escapes=True).root
    if root is None:
        return problems
    return [
        problem if problem.line else Problem(problem.message, problem.path, *nodes.locate(root, problem.path))
        for problem in problems
    ]
