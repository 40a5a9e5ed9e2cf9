"""A loaded specification file: its content, where it came from, what is doubtful about it.

Three profiles decide what counts as a mistake. ``default`` is the reference library without its carelessness,
``compat`` is the reference library 1.1.2 itself, ``strict`` adds the rules that only the text of the specification has.
``compat-1.1.0`` and ``compat-0.8.1`` are older releases of the library, see :mod:`older`.
How text becomes a value is imported when there is text to read: a process that finds its files in the cache of
:mod:`parsed` never needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from .errors import CdiError, Problem
from .model import Device, Spec, plain
from .names import qualified_name, split_kind

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAX_BYTES", "CdiSpec", "Profile"]

MAX_BYTES: Final = 16 << 20

Profile = Literal["default", "compat", "compat-1.1.0", "compat-0.8.1", "strict"]


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
        from .reading import read_spec

        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        raw, warnings = read_spec(data, file=file, profile=profile)
        return cls(raw, path=file, warnings=warnings)

    @classmethod
    def from_object(cls, tree: Mapping[str, Any], *, profile: Profile = "default") -> CdiSpec:
        """Checks a specification given as plain JSON, e.g. one that a driver is about to write.

        Raises:
            CdiError: unknown fields, wrong types or against a rule.
        """
        from .emit import to_json

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
        from .versions import minimum_version

        return minimum_version(self.raw)

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
        from .versions import downgrade

        return CdiSpec(downgrade(self.raw, maximum), path=self.path, warnings=self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """The specification as plain JSON."""
        return plain(self.raw)


def _read(path: str) -> bytes:
    """The file's bytes, at most one more than allowed: a device file or a huge one must not fill the memory."""
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not loaded for the quickest commands
        return file.read(MAX_BYTES + 1)
