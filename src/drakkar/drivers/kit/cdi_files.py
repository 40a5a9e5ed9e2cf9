"""The CDI file of a claim: `k8s.<driver>/claim`, device names `<claim UID>-<device>` (CDI specification 1.1).

The claim's UID is in the id, so that a container can only get what was prepared for its own claim, and a file that is
left over can be told from one in use by its name. The file is rebuilt from the journal, so writing it needs no barrier.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from drakkar.drivers.kit.allocation import AllocatedClaim
from drakkar.drivers.kit.kind import Edits
from drakkar.drivers.kit.metadata import MetadataFiles, device_of
from drakkar.injection import rules
from drakkar.injection.model import NO_EDITS, ContainerEdits, Spec
from drakkar.injection.spec import CdiSpec
from drakkar.injection.write import remove_spec, write_spec
from drakkar.preparation.values import ClaimUID


class ClaimFiles:
    """The CDI files of one driver in `directory`, and the files about devices that they bring into containers."""

    def __init__(self, directory: Path, driver: str, metadata: MetadataFiles | None = None) -> None:
        self._metadata = metadata
        self.directory = directory
        self._directory = os.fspath(directory)
        self.kind = f"k8s.{driver}/claim"
        self._prefix = f"k8s.{driver}-claim_"
        self._checked_common: tuple[str, ContainerEdits] | None = None

    def path(self, uid: ClaimUID) -> Path:
        """The file of the claim, whether it exists or not."""
        return self.directory / f"{self._prefix}{uid}.json"

    def device_id(self, uid: ClaimUID, device: str) -> str:
        """The qualified CDI name of a device of the claim."""
        return f"{self.kind}={uid}-{device}"

    def device_ids(self, claim: AllocatedClaim) -> list[tuple[str, ...]]:
        """The qualified CDI names for each device of `claim`; the file of a request comes with its first device."""
        uid, told, ids = claim.claim.uid, set[str](), []
        for device in claim.devices:
            own = [self.device_id(uid, device.device)]
            if claim.metadata and device.base_request not in told:
                told.add(device.base_request)
                own.append(self.device_id(uid, device_of(device.base_request)))
            ids.append(tuple(own))
        return ids

    def write(self, claim: AllocatedClaim, edits: Edits) -> None:
        """Writes the claim's file, checked and atomically; an equal one is replaced all the same. Raises CdiError.

        This is on the way of every pod that starts, so what is right and plain text is written here with few system
        calls; everything else goes through the writer of the injection room, for its messages and its escapes.
        """
        uid = claim.claim.uid
        if claim.metadata and self._metadata is not None:
            edits = self._metadata.write(claim, edits)
        checked = self._checked(self.spec(uid, edits))
        text = msgspec.json.encode(checked.raw)
        target = f"{self._directory}/{self._prefix}{uid}.json"
        try:
            if not text.isascii() or b"\x7f" in text or "/" in uid:
                raise ValueError("not plain")
            _replace(target, text)
        except (OSError, ValueError):
            write_spec(self.directory, self.path(uid).name, checked)

    def spec(self, uid: ClaimUID, edits: Edits) -> dict[str, Any]:
        """The specification for `edits` as plain JSON."""
        spec: dict[str, Any] = {
            "cdiVersion": edits.version,
            "kind": self.kind,
            "devices": [
                {"name": f"{uid}-{device}", "containerEdits": dict(own)} for device, own in edits.devices.items()
            ],
        }
        if edits.common:
            spec["containerEdits"] = dict(edits.common)
        return spec

    def remove(self, uid: ClaimUID) -> None:
        """Removes the claim's file and what it brings; none is fine. Raises CdiError."""
        if self._metadata is not None:
            self._metadata.remove(uid)
        remove_spec(self.directory, self.path(uid).name)

    def adopt(self, uid: ClaimUID) -> None:
        """Give the file that another driver of this name wrote for the claim (``.yaml``) our name."""
        path = self.path(uid)
        with contextlib.suppress(FileNotFoundError):
            path.with_suffix(".yaml").rename(path)

    def hand_back(self) -> None:
        """Give all files the names that the other driver writes and removes; JSON is YAML."""
        for uid in self.strangers(()):
            path = self.path(uid)
            path.rename(path.with_suffix(".yaml"))

    def left_by_other(self) -> list[ClaimUID]:
        """UIDs of claims that have a file of the other driver here."""
        return self._uids(".yaml")

    def remove_left_by_other(self, uid: ClaimUID) -> None:
        """Remove the other driver's file of the claim; none is fine. Raises CdiError."""
        remove_spec(self.directory, self.path(uid).with_suffix(".yaml").name)

    def sweep(self, known: Collection[ClaimUID]) -> None:
        """Removes half-made files that a driver of this kind left when it was killed while writing, and what told
        containers of claims that are not `known`.
        """
        if self._metadata is not None:
            self._metadata.sweep(known)
        mark = self.kind.encode()
        for path in self.directory.glob("spec.*.tmp") if self.directory.is_dir() else ():
            try:
                if mark in path.read_bytes():
                    path.unlink()
            except OSError:
                continue  # somebody else's, and gone or not for us

    def strangers(self, known: Iterable[ClaimUID]) -> list[ClaimUID]:
        """UIDs of claims that have a file here and are not in `known`."""
        kept = set(known)
        return [uid for uid in self._uids(".json") if uid not in kept]

    def _checked(self, tree: dict[str, Any]) -> CdiSpec:
        """The specification, checked. What is right takes a short way; what is wrong the long one, for its message.

        What all containers get is the same from claim to claim: once found right for a version, it is not asked again.
        """
        try:
            spec = msgspec.convert(tree, Spec)
            common = spec.cdi_version, spec.container_edits
            own = msgspec.structs.replace(spec, container_edits=NO_EDITS) if common == self._checked_common else spec
            if not any(True for _ in rules.problems(own)):
                self._checked_common = common
                return CdiSpec(spec)
        except msgspec.ValidationError:
            pass
        return CdiSpec.from_object(tree)

    def _uids(self, suffix: str) -> list[ClaimUID]:
        try:
            names = [entry.name for entry in self.directory.iterdir()]
        except OSError:
            return []
        return sorted(
            ClaimUID(name.removeprefix(self._prefix).removesuffix(suffix))
            for name in names
            if name.startswith(self._prefix) and name.endswith(suffix)
        )


def _replace(target: str, text: bytes) -> None:
    """Writes `text` beside `target` and renames it over it; readers see the old file or the new, mode 0644."""
    folder, _, name = target.rpartition("/")
    temporary = f"{folder}/spec.{name}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(descriptor, 0o644)  # whatever the umask is: rootless runtimes must be able to read it
        if os.write(descriptor, text) != len(text):
            raise OSError("the file system is full")
    finally:
        os.close(descriptor)
    os.rename(temporary, target)  # noqa: PTH104 - no Path objects on this way
