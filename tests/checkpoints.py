"""Checkpoints as NVIDIA's driver 0.5 leaves them, made by its published format with right checksums."""

from __future__ import annotations

from typing import Any

from drakkar.drivers.gpu import predecessor as nvidia

DRIVER = "gpu.nvidia.com"


def entry(
    uid: str,
    device: str,
    *,
    state: str = "PrepareCompleted",
    name: str = "c",
    info: str = "",
    namespace: str = "team-a",
    pool: str = "n1",
    kind: str = "gpu",
) -> dict[str, Any]:
    """A prepared claim as version 2 has it; `kind` is gpu or vfio."""
    ids = [f"k8s.{DRIVER}/claim={uid}-{device}"]
    prepared = {"Requests": ["gpu"], "PoolName": pool, "DeviceName": device, "CDIDeviceIDs": ids}
    return {
        "checkpointState": state,
        "status": {"allocation": {"devices": {"results": []}}},
        "preparedDevices": [
            {"devices": [{kind: {"info": {"note": info}, "device": prepared}, "mig": None}], "configState": {}}
        ],
        "name": name,
        "namespace": namespace,
    }


def checkpoint(boot_id: str, claims: dict[str, dict[str, Any]], *, versions: str = "12") -> dict[str, Any]:
    """The document of NVIDIA's driver with right checksums."""
    completed = {uid: claim for uid, claim in claims.items() if claim["checkpointState"] == "PrepareCompleted"}
    first = {uid: {key: claim[key] for key in ("status", "preparedDevices")} for uid, claim in completed.items()}
    document: dict[str, Any] = {"checksum": 0, "v1": {"preparedClaims": first} if first else {}}
    if "2" in versions:
        document["v2"] = {"checksum": 0, "preparedClaims": claims, "nodeBootID": boot_id}
    return nvidia.signed(document)
