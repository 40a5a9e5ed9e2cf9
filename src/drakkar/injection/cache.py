"""The devices of a machine, by name: all specification files of some directories, conflicts resolved, always current.

The work of the kubelet and of a runtime is :meth:`CdiCache.inject`. A query first asks the watch whether anything
changed, so a cache costs nothing while nobody asks, and no thread is needed. What the reference library leaves out of
its answers (why a name does not resolve) is part of the error here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from .edit import Injection, Lstat, OciConfig, apply_blocks
from .errors import CdiError
from .host import lstat_node
from .model import ContainerEdits, Device
from .parsed import ParsedFiles
from .paths import clean
from .prepared import Block, prepare
from .reasons import why_unresolved
from .scan import Scan, Scanner, directory_signatures, signature_of
from .spec import CdiSpec, Profile
from .watch import DirectoryWatch, watch_directories

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DEFAULT_DIRECTORIES", "CdiCache", "Resolved"]

DEFAULT_DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")


class Resolved(NamedTuple):
    """A device and the file that defines it."""

    name: str
    device: Device
    spec: CdiSpec
    path: str
    priority: int


class CdiCache:
    """Specification directories in rising priority.

    Args:
        directories: none means ``/etc/cdi`` and ``/var/run/cdi``.
        auto_refresh: look for changes at every query; else only :meth:`refresh` does.
        profile: how strictly files are read, see :mod:`drakkar.injection.spec`.
        lstat: how device nodes of the host are looked at.
        kept: what earlier processes parsed, see :mod:`drakkar.injection.parsed`; None parses every file once.
    """

    def __init__(
        self,
        directories: Iterable[str | Path] = (),
        *,
        auto_refresh: bool = True,
        profile: Profile = "default",
        lstat: Lstat = lstat_node,
        kept: ParsedFiles | None = None,
    ) -> None:
        self.directories: list[str] = [clean(str(directory)) for directory in directories] or list(DEFAULT_DIRECTORIES)
        self.profile: Profile = profile
        self._lstat = lstat
        self._auto_refresh = auto_refresh
        self._scanner = Scanner(profile, kept)
        self._scan: Scan | None = None
        self._devices: dict[str, Resolved] = {}
        self._prepared: dict[str, tuple[str, Block, Block]] = {}  # by device: file, its edits, the device's
        self._errors: dict[str, list[str]] = {}
        self._conflicts: dict[str, list[str]] = {}
        self._watch: DirectoryWatch | None = None
        self._watched: list[tuple[int, int]] = []

    def __enter__(self) -> CdiCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the watch; the cache stays usable and then looks at the directories at every query."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def refresh(self) -> None:
        """Looks at all directories now; files that did not change are not parsed again."""
        self._look(set())

    def devices(self) -> list[str]:
        """Qualified names of all usable devices, sorted."""
        self._refresh_if_changed()
        return sorted(self._devices)

    def vendors(self) -> list[str]:
        """Vendors of all loadable files, sorted."""
        return sorted({spec.vendor for spec in self.specs()})

    def classes(self) -> list[str]:
        """Classes of all loadable files, sorted."""
        return sorted({spec.device_class for spec in self.specs()})

    def specs(self, vendor: str = "") -> list[CdiSpec]:
        """Loadable files in scan order, of one vendor or of all."""
        return [found.spec for found in self._current().files if found.spec and vendor in ("", found.spec.vendor)]

    def find(self, name: str) -> Resolved | None:
        """The device of that qualified name."""
        self._refresh_if_changed()
        return self._devices.get(name)

    def errors(self) -> dict[str, list[str]]:
        """Messages by file or directory: what could not be loaded, and conflicts."""
        self._refresh_if_changed()
        return {path: list(messages) for path, messages in self._errors.items()}

    def conflicts(self) -> dict[str, list[str]]:
        """Devices that two files of one directory define, with the files; such a device does not exist."""
        self._refresh_if_changed()
        return {name: list(paths) for name, paths in self._conflicts.items()}

    def warnings(self) -> list[str]:
        """What works but hardly as meant: ignored files, stale definitions behind broken files, doubtful fields."""
        scan = self._current()
        texts = [
            f"{path} is ignored, only .json and .yaml files directly in the directory are read" for path in scan.ignored
        ]
        winners = list(self._devices.values())
        for found in scan.files:
            if found.error is not None:
                stale = sorted(winner.name for winner in winners if winner.priority < found.priority)
                if stale:
                    texts.append(
                        f"{found.path} cannot be loaded, so older definitions stay in force: {', '.join(stale)}"
                    )
            elif found.spec is not None:
                texts.extend(f"{found.path}: {problem}" for problem in found.spec.warnings)
        return texts

    def scan(self) -> Scan:
        """What the directories held at the last look, unusable files included."""
        return self._current()

    def resolve(self, names: Sequence[str]) -> list[Resolved]:
        """The devices of ``names``, in request order with repeats.

        Raises:
            CdiError: some do not exist; ``unresolved`` lists them, the message says why.
        """
        self._refresh_if_changed()
        devices = self._devices
        found = [devices.get(name) for name in names]
        if None in found:
            raise self._unresolvable([name for name, device in zip(names, found, strict=True) if device is None])
        return [device for device in found if device is not None]

    def injection(self, oci_config: OciConfig, names: Sequence[str]) -> Injection:
        """The edited copy of ``oci_config`` together with warnings about stale numbers and hidden mounts.

        Raises:
            CdiError: a name does not resolve or the host lacks a device; nothing is edited then.
        """
        if not isinstance(oci_config, dict):
            raise CdiError("can't inject devices, nil OCI Spec", unresolved=tuple(names), reason="InvalidOciConfig")
        return apply_blocks(oci_config, self._blocks(names), self._lstat)

    def inject(self, oci_config: OciConfig, names: Sequence[str]) -> OciConfig:
        """A copy of an OCI runtime configuration with the devices ``names``; ``oci_config`` is not changed.

        Raises:
            CdiError: as for :meth:`injection`.
        """
        return self.injection(oci_config, names).config

    def edits(self, names: Sequence[str]) -> list[ContainerEdits]:
        """The blocks of edits for ``names``: those of a file before those of its first device.

        Raises:
            CdiError: a name does not resolve.
        """
        blocks: list[ContainerEdits] = []
        files: set[str] = set()
        for resolved in self.resolve(names):
            if resolved.path not in files:
                files.add(resolved.path)
                blocks.append(resolved.spec.raw.container_edits)
            blocks.append(resolved.device.container_edits)
        return blocks

    def _blocks(self, names: Sequence[str]) -> list[Block]:
        """As :meth:`edits`, prepared; each device is prepared once for all containers."""
        self._refresh_if_changed()
        prepared = self._prepared
        if any(name not in prepared for name in names):
            for found in self.resolve(names):
                whole = next((block for path, block, _ in prepared.values() if path == found.path), None)
                whole = whole or prepare(found.spec.raw.container_edits)
                prepared[found.name] = (found.path, whole, prepare(found.device.container_edits))
        blocks: list[Block] = []
        files: set[str] = set()
        for name in names:
            path, whole, own = prepared[name]
            if path not in files:
                files.add(path)
                blocks.append(whole)
            blocks.append(own)
        return blocks

    def _unresolvable(self, names: list[str]) -> CdiError:
        scan = self._current()
        reasons = {name: why_unresolved(name, scan, self._conflicts, sorted(self._devices)) for name in names}
        known = "; ".join(dict.fromkeys(reason for reason in reasons.values() if reason))
        message = f"unresolvable CDI devices {', '.join(names)}"
        return CdiError(
            f"{message}: {known}" if known else message,
            unresolved=names,
            reason="UnresolvableDevice",
            next_step="drakkar cdi list",
        )

    def _current(self) -> Scan:
        self._refresh_if_changed()
        if self._scan is None:
            self._look(set())
        return self._scan or Scan()

    def _refresh_if_changed(self) -> None:
        if self._scan is None:
            self._look(set())
            return
        if not self._auto_refresh:
            return
        if self._watch is None or list(directory_signatures(self.directories)) != self._watched:
            self._look(set())
            return
        changed = self._watch.changed()
        if changed is None or changed or any(signature_of(path) != known for path, known in self._scan.links):
            self._look(changed or set())

    def _look(self, changed: set[str]) -> None:
        if self._auto_refresh:
            self._renew_watch()
        self._scan = self._scanner.scan(self.directories, changed=changed)
        self._index(self._scan)

    def _renew_watch(self) -> None:
        """The watch begins before the directories are read: a change in between is seen twice rather than never."""
        watched = list(directory_signatures(self.directories))
        if self._watch is None or watched != self._watched:
            self.close()
            self._watch = watch_directories(self.directories)
            self._watched = watched

    def _index(self, scan: Scan) -> None:
        errors: dict[str, list[str]] = {}
        if self.profile != "compat":
            errors.update({path: [message] for path, message in scan.directory_errors.items()})
        devices: dict[str, Resolved] = {}
        conflicts: dict[str, list[str]] = {}
        for found in scan.files:  # rising priority
            if found.error is not None:
                errors.setdefault(found.path, []).append(f"failed to load CDI Spec {found.error.message}")
            if found.spec is None:
                continue
            for name, device in zip(found.spec.qualified_names(), found.spec.raw.devices, strict=True):
                new = Resolved(name, device, found.spec, found.path, found.priority)
                old = devices.get(name)
                if old is None or old.priority < new.priority:
                    devices[name] = new
                    if self.profile != "compat":
                        conflicts.pop(name, None)
                    continue
                conflicts.setdefault(name, [old.path]).append(new.path)
                message = f'conflicting device "{name}" (specs "{new.path}", "{old.path}")'
                for path in (new.path, old.path):
                    errors.setdefault(path, []).append(message)
        for name in conflicts:
            del devices[name]
        self._devices, self._errors, self._conflicts = devices, errors, conflicts
        self._prepared = {}
