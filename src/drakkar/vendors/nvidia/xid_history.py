"""XIDs over restarts of a driver: NVML's events come once, and a GPU that needs a reset must stay tainted until then.

One small file beside the driver's state, valid for one boot and one version of NVIDIA's driver; a damaged one is as
good as none, since it holds nothing that the GPU would not log again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drakkar.files import replace_file

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class XidRecord:
    """What one GPU has logged, oldest first, and whether the driver wanted it recovered."""

    codes: tuple[int, ...]
    needs_recovery: bool = False


class XidFile:
    """The file at `path` for the boot `boot_id`."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path, self._boot_id = path, boot_id
        self._written: object = None

    def read(self, driver_version: str) -> dict[str, XidRecord]:
        """What was kept, by UUID; nothing of another boot or driver, or from a file that is none."""
        try:
            content = json.loads(self._path.read_bytes())
            if (content["boot"], content["driver"]) != (self._boot_id, driver_version):
                return {}
            return {
                str(uuid): XidRecord(tuple(map(int, one["xids"])), bool(one["needsRecovery"]))
                for uuid, one in content["gpus"].items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("%s is left aside: %s", self._path, error)
            return {}

    def write(self, driver_version: str, history: Mapping[str, XidRecord]) -> None:
        """Keeps `history`, if it is not kept already. What cannot be written is told and forgotten."""
        gpus = {uuid: {"xids": one.codes, "needsRecovery": one.needs_recovery} for uuid, one in sorted(history.items())}
        content = {"boot": self._boot_id, "driver": driver_version, "gpus": gpus}
        if content == self._written or (not gpus and self._written is None and not self._path.exists()):
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(content), mode=0o600)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error)
            return
        self._written = content
