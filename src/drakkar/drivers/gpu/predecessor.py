"""NVIDIA's driver as the one that was here before: its checkpoint, versions 1 and 2.

The checkpoint is one JSON document with a checksum per version: FNV-1a (32 bit) of the Go dump of the document's bytes,
with that checksum as 0. Its driver refuses to start when one does not match, and computes it by encoding what it has
read again. So claims are handed back with every byte of theirs unchanged; only whole claims are left out.

A checksum that does not match is told but does not stop the takeover: each claim is compared with the API anyway, and
pods that run should go on running.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from drakkar.drivers.kit.takeover import LeftClaim
from drakkar.errors import DrakkarError
from drakkar.files import replace_file
from drakkar.preparation.values import ClaimUID, PreparedDevice

_log = logging.getLogger(__name__)
_COMPLETED = "PrepareCompleted"
_KINDS = ("gpu", "mig", "vfio")


class NvidiaCheckpoint:
    """The checkpoint in `folder` (``plugins/gpu.nvidia.com``) on a machine with this `boot_id`."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._file = folder / "checkpoint.json"
        self._mark = folder / "checkpoint.adopted"
        self._boot_id = boot_id

    def claims(self) -> Sequence[LeftClaim]:
        """What is prepared by it; nothing after a reboot, without a file, or when this content was dealt with.

        Raises:
            DrakkarError: the file is not a checkpoint.
        """
        content = self._content()
        if content is None or self._marked() == _digest(content):
            return []
        document = self._document(content)
        if not verified(document):
            _log.warning("%s: its checksum does not match; every claim is compared with the API", self._file)
        version2 = document.get("v2")
        if isinstance(version2, dict):
            if version2.get("nodeBootID") not in (None, "", self._boot_id):
                _log.info("%s is of an earlier boot: nothing in it is prepared any more", self._file)
                return []
            entries = version2.get("preparedClaims") or {}
        else:
            entries = (document.get("v1") or {}).get("preparedClaims") or {}
        return [self._claim(uid, entry, isinstance(version2, dict)) for uid, entry in entries.items()]

    def taken_over(self) -> None:
        """Remember that the present content has been dealt with."""
        content = self._content()
        if content is not None:
            replace_file(self._mark, _digest(content), mode=0o600)

    def hand_back(self, held: Collection[ClaimUID]) -> None:
        """Write the checkpoint again with those of its claims that are `held`, and forget that it was taken over.

        Raises:
            DrakkarError: the file is damaged; it is left as it is.
        """
        content = self._content()
        if content is not None:
            document = self._document(content)
            if not verified(document):
                raise DrakkarError(
                    "the other driver's checkpoint does not match its checksum, so it cannot be written again",
                    reason="CheckpointDamaged",
                    subject=str(self._file),
                    next_step="drain the node and remove the file; that driver would not start with it either",
                )
            for version in ("v1", "v2"):
                part = document.get(version)
                if isinstance(part, dict) and isinstance(part.get("preparedClaims"), dict):
                    kept = {uid: entry for uid, entry in part["preparedClaims"].items() if uid in held}
                    part.pop("preparedClaims")
                    if kept:
                        # Go leaves an empty map out; the key comes where it was, behind the checksum.
                        document[version] = _after_checksum(part, kept)
            replace_file(self._file, encoded(signed(document)), mode=0o600)
        self._mark.unlink(missing_ok=True)

    def _content(self) -> bytes | None:
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DrakkarError(
                f"the other driver's checkpoint cannot be read: {error.strerror}", subject=str(self._file)
            ) from error

    def _marked(self) -> str:
        try:
            return self._mark.read_text().strip()
        except OSError:
            return ""

    def _document(self, content: bytes) -> dict[str, Any]:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"is no JSON: {error}") from error
        if not isinstance(document, dict) or not any(isinstance(document.get(key), dict) for key in ("v1", "v2")):
            raise self._damaged("has neither version 1 nor version 2 of a checkpoint")
        for version in ("v1", "v2"):
            part = document.get(version)
            claims = part.get("preparedClaims") if isinstance(part, dict) else None
            if not isinstance(part, dict | None) or not isinstance(claims, dict | None):
                raise self._damaged(f"{version}.preparedClaims is no object")
        return document

    def _claim(self, uid: str, entry: Any, version2: bool) -> LeftClaim:
        try:
            completed = not version2 or entry.get("checkpointState") == _COMPLETED
            devices = [
                _device(next(device[kind] for kind in _KINDS if device.get(kind)))
                for group in entry.get("preparedDevices") or ()
                for device in (group or {}).get("devices") or ()
            ]
            name, namespace = (entry.get(key) or "" for key in ("name", "namespace"))
            if not isinstance(name, str) or not isinstance(namespace, str):
                raise TypeError
        except (AttributeError, KeyError, TypeError, StopIteration) as error:
            raise self._damaged(f"claim {uid} is not described as NVIDIA's driver does it") from error
        return LeftClaim(ClaimUID(uid), completed, tuple(devices), name, namespace)

    def _damaged(self, what: str) -> DrakkarError:
        return DrakkarError(
            f"the other driver's checkpoint {what}",
            reason="CheckpointDamaged",
            subject=str(self._file),
            next_step="drain the node, remove the file and start without --adopt",
        )


def checksum(text: bytes) -> int:
    """Kubernetes' checkpoint checksum of bytes: FNV-1a, 32 bit, over their dump as Go values."""
    value = 0x811C9DC5
    for byte in b"([]uint8)[%b]" % " ".join(map(str, text)).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def signed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with both checksums right; the order of its keys is kept."""
    result = dict(document)
    if isinstance(result.get("v2"), dict):
        result["v2"] = {**result["v2"], "checksum": _checksum_of_v2(result)}
    if "checksum" in result:
        result["checksum"] = _checksum_of_v1(result)
    return result


def verified(document: Mapping[str, Any]) -> bool:
    """Whether both checksums match the content."""
    version2 = document.get("v2")
    if isinstance(version2, dict) and version2.get("checksum") != _checksum_of_v2(document):
        return False
    return document.get("checksum") == _checksum_of_v1(document)


def encoded(value: Any) -> bytes:
    """JSON as Go's encoder writes it: compact, with the characters escaped that HTML would take for markup."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _checksum_of_v1(document: Mapping[str, Any]) -> int:
    view = {"checksum": 0} | ({"v1": document["v1"]} if document.get("v1") is not None else {})
    return checksum(encoded(view))


def _checksum_of_v2(document: Mapping[str, Any]) -> int:
    return checksum(encoded({**document["v2"], "checksum": 0}))


def _after_checksum(part: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
    first = {"checksum": part["checksum"]} if "checksum" in part else {}
    return first | {"preparedClaims": claims} | {key: value for key, value in part.items() if key != "checksum"}


def _device(prepared: Mapping[str, Any]) -> PreparedDevice:
    device = prepared["device"]
    return PreparedDevice(
        tuple(device["Requests"] or ()),
        device["PoolName"],
        device["DeviceName"],
        tuple(device["CDIDeviceIDs"] or ()),
        device.get("ShareID") or None,
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
