"""Files in the container that say which devices it has (KEP-5304): one per request, in Kubernetes' own format.

An application that wants to know its device's bus address or partition reads
`/var/run/kubernetes.io/dra-device-attributes/{resourceclaims|resourceclaimtemplates}/<claim>/<request>/` instead of
asking an API server. The file is a stream of JSON objects, the newest version first, so that older readers find one
they know. It lies beside the driver's socket, under the claim's UID, and comes into the container by one more CDI
device of the claim's own file: nothing has to be kept in step with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from drakkar.drivers.kit.allocation import AllocatedClaim
from drakkar.drivers.kit.kind import Edits
from drakkar.files import replace_file
from drakkar.preparation.values import ClaimUID

#: Newest first, as readers expect.
VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
#: Where containers find the files.
IN_CONTAINER = "/var/run/kubernetes.io/dra-device-attributes"
_FOLDER = "dra-device-metadata"
_MOST_ATTRIBUTES = 32


class MetadataFiles:
    """The files of one driver, below `folder`, which has the same path on the host.

    Args:
        attributes: what may be told of the devices of a claim, by device name, in the API's own form.
    """

    def __init__(
        self, folder: Path, driver: str, attributes: Callable[[AllocatedClaim], Mapping[str, Mapping[str, Any]]]
    ) -> None:
        self._folder, self._driver, self._attributes = folder / _FOLDER, driver, attributes

    def write(self, claim: AllocatedClaim, edits: Edits) -> Edits:
        """Writes the files of `claim`; returns `edits` with a CDI device more for each request. Raises OSError."""
        told = self._attributes(claim)
        devices = dict(edits.devices)
        for request in dict.fromkeys(device.base_request for device in claim.devices):
            path = self._folder / claim.claim.uid / request / "metadata.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, self._stream(claim, request, told))
            mount = {"hostPath": str(path), "containerPath": self._place(claim, request), "options": ["ro", "bind"]}
            devices[device_of(request)] = {"mounts": [mount]}
        return replace(edits, devices=devices)

    def remove(self, uid: ClaimUID) -> None:
        """Removes the claim's files; none is fine. What is no UID has none."""
        if uid and "/" not in uid and uid not in (".", ".."):
            shutil.rmtree(self._folder / uid, ignore_errors=True)

    def sweep(self, known: Collection[ClaimUID]) -> None:
        """Removes the files of claims that are not `known`."""
        for folder in list(self._folder.iterdir()) if self._folder.is_dir() else ():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    def _place(self, claim: AllocatedClaim, request: str) -> str:
        of = f"resourceclaimtemplates/{claim.pod_claim}" if claim.pod_claim else f"resourceclaims/{claim.claim.name}"
        return f"{IN_CONTAINER}/{of}/{request}/{self._driver}-metadata.json"

    def _stream(self, claim: AllocatedClaim, request: str, told: Mapping[str, Mapping[str, Any]]) -> bytes:
        ref = claim.claim
        by_name: dict[str, dict[str, Any]] = {}
        for device in claim.devices:
            if device.base_request == request:
                one: dict[str, Any] = {"driver": self._driver, "pool": device.pool, "name": device.device}
                if attributes := dict(sorted(told.get(device.device, {}).items())[:_MOST_ATTRIBUTES]):
                    one["attributes"] = attributes
                by_name.setdefault(device.request, {})[device.device] = one
        content = {
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid, "generation": 1},
            **({"podClaimName": claim.pod_claim} if claim.pod_claim else {}),
            "requests": [{"name": name, "devices": list(devices.values())} for name, devices in by_name.items()],
        }
        objects = ({"kind": "DeviceMetadata", "apiVersion": version, **content} for version in VERSIONS)
        return b"".join(msgspec.json.encode(one) + b"\n" for one in objects)


def device_of(request: str) -> str:
    """The name of the CDI device that brings the file of `request`; no device can have it (KEP-4381: DNS labels)."""
    return f"metadata_{request}"
