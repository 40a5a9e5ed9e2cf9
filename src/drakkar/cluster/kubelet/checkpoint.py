"""kubelet's `dra_manager_state`: which claims are prepared on this node, for whom, and what the drivers answered.

The format is kubelet's own, checksum included, so that tools which read it on a real node read it here:
`{"Data": "<JSON text>", "Checksum": <CRC-32 (IEEE) of that text>}` with a `DRACheckpoint` of version
`checkpoint.dra.kubelet.k8s.io/v1` inside. A damaged file is set aside, never trusted and never a reason not to start.
"""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from drakkar.files import replace_file

FILE_NAME: Final = "dra_manager_state"
_KIND: Final = "DRACheckpoint"
_API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PreparedDevice:
    """A device as a driver prepared it; `requests` are the base names of the claim's requests it serves."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None


@dataclass(slots=True)
class ClaimInfo:
    """A claim that is, or may be, prepared on this node. `prepared` is not written: after a restart nobody can know,
    so the driver is asked again (both calls are idempotent)."""

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, list[PreparedDevice]] = field(default_factory=dict)
    prepared: bool = False


class Checkpoint:
    """The file, written whole and atomically."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._written = ""

    def load(self) -> list[ClaimInfo]:
        """The claims that were known when the file was written; none if there is no (readable) file."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            self._set_aside(str(error))
            return []
        try:
            return decode(text)
        except ValueError as error:
            self._set_aside(str(error))
            return []

    def store(self, claims: list[ClaimInfo]) -> None:
        """Replace the file if anything changed."""
        text = encode(claims)
        if text == self._written:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, text, mode=0o600)
        self._written = text

    def _set_aside(self, why: str) -> None:
        aside = self.path.with_name(f"{FILE_NAME}.damaged")
        _log.warning("%s is damaged (%s); set aside as %s", self.path, why, aside.name)
        self.path.replace(aside)


def encode(claims: list[ClaimInfo]) -> str:
    """The file's text."""
    document = {
        "kind": _KIND,
        "apiVersion": _API_VERSION,
        "ClaimInfoStateList": [_claim_to_json(claim) for claim in claims],
    }
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}, separators=(",", ":"), ensure_ascii=False)


def decode(text: str) -> list[ClaimInfo]:
    """The claims in the file's text. Raises `ValueError` saying what is wrong."""
    try:
        envelope = json.loads(text)
        data, checksum = envelope["Data"], envelope["Checksum"]
        if zlib.crc32(data.encode()) != checksum:
            raise ValueError("checkpoint is corrupted: the checksum does not match")
        document = json.loads(data)
        if document.get("kind") != _KIND or document.get("apiVersion") != _API_VERSION:
            raise ValueError(f"not a {_KIND} of {_API_VERSION}")
        return [_claim_from_json(entry) for entry in document.get("ClaimInfoStateList") or ()]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"unexpected content: {error!r}") from error


def _claim_to_json(claim: ClaimInfo) -> dict[str, Any]:
    return {
        "ClaimUID": claim.uid,
        "ClaimName": claim.name,
        "Namespace": claim.namespace,
        "PodUIDs": {pod: {} for pod in sorted(claim.pods)},
        "DriverState": {
            driver: {"Devices": [_device_to_json(device) for device in devices] or None}
            for driver, devices in sorted(claim.drivers.items())
        },
    }


def _device_to_json(device: PreparedDevice) -> dict[str, Any]:
    entry: dict[str, Any] = {"PoolName": device.pool, "DeviceName": device.device}
    if device.share_id is not None:
        entry["ShareID"] = device.share_id
    return entry | {"RequestNames": list(device.requests), "CDIDeviceIDs": list(device.cdi_ids)}


def _claim_from_json(entry: dict[str, Any]) -> ClaimInfo:
    return ClaimInfo(
        entry["ClaimUID"],
        entry["ClaimName"],
        entry["Namespace"],
        set(entry["PodUIDs"] or ()),
        {
            driver: [
                PreparedDevice(
                    device["PoolName"],
                    device["DeviceName"],
                    tuple(device["RequestNames"] or ()),
                    tuple(device["CDIDeviceIDs"] or ()),
                    device.get("ShareID"),
                )
                for device in state.get("Devices") or ()
            ]
            for driver, state in (entry["DriverState"] or {}).items()
        },
    )
