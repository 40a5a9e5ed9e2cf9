"""What was captured on one node, and how each file of it is read: nvidia-smi, device listings, CDI files, checkpoints.

Every reader is forgiving: a capture is made in trouble and may be half a file. What cannot be read is left out of the
result, and the raw text stays available for quoting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from drakkar.injection.spec import CdiSpec

__all__ = ["DeviceFile", "Gpu", "MigDevice", "NodeCapture", "PreparedClaim"]


class MigDevice(NamedTuple):
    """A MIG device as ``nvidia-smi -L`` lists it."""

    profile: str
    uuid: str


class Gpu(NamedTuple):
    """A GPU as ``nvidia-smi -L`` lists it."""

    number: int
    product: str
    uuid: str
    mig_devices: tuple[MigDevice, ...]


class DeviceFile(NamedTuple):
    """A line of ``ls -l``: a device node with its numbers, or another file without."""

    path: str
    kind: str  # the first letter of the mode: c, b, -, l, d
    major: int | None
    minor: int | None


class PreparedClaim(NamedTuple):
    """A claim that the kubelet holds for some pods, with the CDI devices per driver."""

    uid: str
    name: str
    namespace: str
    pods: tuple[str, ...]
    cdi_devices: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class NodeCapture:
    """Files of one node by name (``cdi/x.yaml``, ``journal.txt``); properties read them when asked."""

    name: str
    files: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A file's text, "" if it was not captured."""
        return self.files.get(name, "")

    def has(self, *names: str) -> bool:
        """Whether all these files were captured."""
        return all(name in self.files for name in names)

    @cached_property
    def gpus(self) -> tuple[Gpu, ...] | None:
        """The GPUs that ``nvidia-smi -L`` saw; None if it was not captured or failed."""
        text = self.files.get("nvidia-smi-L.txt")
        if text is None:
            return None
        found: list[Gpu] = []
        for line in text.splitlines():
            if match := _GPU.match(line):
                found.append(Gpu(int(match[1]), match[2].strip(), match[3], ()))
            elif (match := _MIG.match(line)) and found:
                last = found[-1]
                found[-1] = last._replace(mig_devices=(*last.mig_devices, MigDevice(match[1], match[2])))
        if not found and text.strip() and "No devices" not in text:
            return None
        return tuple(found)

    @cached_property
    def device_files(self) -> tuple[DeviceFile, ...]:
        """Lines of ``ls -l`` in ``dev.txt``."""
        found = []
        for line in self.text("dev.txt").splitlines():
            if match := _LS_DEVICE.match(line):
                found.append(DeviceFile(match[4], match[1], int(match[2]), int(match[3])))
            elif match := _LS_FILE.match(line):
                found.append(DeviceFile(match[2], match[1], None, None))
        return tuple(found)

    @cached_property
    def cdi_files(self) -> dict[str, str]:
        """CDI specification files by bare name."""
        return {name.removeprefix("cdi/"): text for name, text in self.files.items() if name.startswith("cdi/")}

    @cached_property
    def containerd(self) -> dict[str, Any] | None:
        """``containerd config dump``; None if it was not captured or is no TOML."""
        import tomllib

        try:
            return tomllib.loads(self.files["containerd.toml"])
        except (KeyError, tomllib.TOMLDecodeError):
            return None

    @cached_property
    def crictl_info(self) -> dict[str, Any] | None:
        """``crictl info``; None if it was not captured or is no JSON object."""
        return _json_object(self.text("crictl-info.json"))

    @cached_property
    def prepared_claims(self) -> tuple[PreparedClaim, ...] | None:
        """The kubelet's checkpoint of prepared claims (``dra_manager_state``); None if it was not captured."""
        if "dra_manager_state" not in self.files:
            return None
        outer = _json_object(self.files["dra_manager_state"]) or {}
        data = outer.get("Data")
        inner = _json_object(data) if isinstance(data, str) else data if isinstance(data, dict) else outer
        found = []
        for state in (inner or {}).get("ClaimInfoStateList") or ():
            drivers = {
                driver: tuple(cdi for device in (entry or {}).get("Devices") or () for cdi in _cdi_ids(device))
                for driver, entry in (state.get("DriverState") or {}).items()
            }
            pods = state.get("PodUIDs") or {}
            found.append(
                PreparedClaim(
                    state.get("ClaimUID", ""),
                    state.get("ClaimName", ""),
                    state.get("Namespace", ""),
                    tuple(pods),
                    drivers,
                )
            )
        return tuple(found)

    @cached_property
    def driver_claims(self) -> dict[str, dict[str, Any]]:
        """Claims in the driver's checkpoint, by UID, in the newest form the file holds."""
        outer = _json_object(self.text("checkpoint.json")) or {}
        for version in ("v3", "v2", "v1"):
            entry = outer.get(version) or {}
            claims = entry.get("preparedClaims") or entry.get("PreparedClaims")
            if isinstance(claims, dict):
                return {uid: state for uid, state in claims.items() if isinstance(state, dict)}
        return {}

    @cached_property
    def driver_boot(self) -> str:
        """The boot id that the driver's checkpoint was written in, "" if it does not say."""
        outer = _json_object(self.text("checkpoint.json")) or {}
        return str(next((entry["nodeBootID"] for entry in outer.values() if _has_boot(entry)), ""))

    @cached_property
    def driver_version(self) -> str:
        """The driver that ``nvidia-smi -q`` reports, "" if it was not captured."""
        match = _DRIVER_VERSION.search(self.text("nvidia-smi-q.txt"))
        return match[1] if match else ""

    @cached_property
    def cdi_definitions(self) -> dict[str, tuple[str, ...]]:
        """By qualified device name: the captured files that define it."""
        found: dict[str, tuple[str, ...]] = {}
        for file, spec in self._cdi_specs.items():
            for name in spec.qualified_names():
                found[name] = (*found.get(name, ()), file)
        return found

    @cached_property
    def cdi_nodes(self) -> dict[str, tuple[str, ...]]:
        """By qualified device name: the device nodes of its own that a container gets."""
        return {
            name: tuple(node.path for node in device.container_edits.device_nodes)
            for spec in self._cdi_specs.values()
            for name, device in zip(spec.qualified_names(), spec.raw.devices, strict=True)
        }

    @cached_property
    def _cdi_specs(self) -> dict[str, CdiSpec]:
        from drakkar.injection.errors import CdiError
        from drakkar.injection.spec import CdiSpec

        found = {}
        for file, text in self.cdi_files.items():
            try:
                found[file] = CdiSpec.parse(text, file=file)
            except CdiError:
                continue
        return found

    def injected_nodes(self, pod_uid: str) -> list[dict[str, str]] | None:
        """Per container of a pod: device nodes in the runtime's configuration with their numbers; None if unknown."""
        record = _json_object(self.text(f"injections/{pod_uid}.json"))
        if record is None:
            return None
        return [
            {
                str(device.get("path")): f"{device.get('major')}:{device.get('minor')}"
                for device in container.get("devices") or ()
            }
            for container in record.get("containers") or ()
        ]

    def not_applied(self, pod_uid: str) -> dict[str, str]:
        """By edit (``device node /dev/nvidia0``): what the runtime did instead in a container of the pod."""
        record = _json_object(self.text(f"injections/{pod_uid}.json")) or {}
        return {
            str(pair[0]): str(pair[1])
            for container in record.get("containers") or ()
            for pair in container.get("limitations") or ()
            if isinstance(pair, list) and len(pair) == _PAIR
        }

    def journal_lines(self, *words: str) -> list[str]:
        """Lines of the captured journal that hold every one of `words`."""
        return [line for line in self.text("journal.txt").splitlines() if all(word in line for word in words)]


_PAIR: Final = 2
_GPU: Final = re.compile(r"GPU (\d+): (.*?) \(UUID: ([^)]+)\)")
_MIG: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ([^)]+)\)")
_LS_DEVICE: Final = re.compile(r"([cb])\S+\s+\d+\s+\S+\s+\S+\s+(\d+),\s*(\d+)\s+.*?(/\S+)")
_LS_FILE: Final = re.compile(r"([-ldsp])[rwxsStT-]{9}\S*\s+\d+\s+\S+\s+\S+\s+\d+\s+.*?(/\S+)")
_DRIVER_VERSION: Final = re.compile(r"Driver Version\s*:\s*(\S+)")


def _has_boot(entry: Any) -> bool:
    return isinstance(entry, dict) and "nodeBootID" in entry


def _cdi_ids(device: Any) -> tuple[str, ...]:
    return tuple((device or {}).get("CDIDeviceIDs") or ())


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
