"""CDI files of claims: what is wrong is refused whatever was right before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drakkar.drivers.kit.allocation import AllocatedClaim
from drakkar.drivers.kit.cdi_files import ClaimFiles
from drakkar.drivers.kit.kind import Edits
from drakkar.injection.errors import CdiError
from drakkar.preparation.values import ClaimRef, ClaimUID

_NODE = {"path": "/dev/x0", "type": "c", "major": 240, "minor": 0}


def _claim(number: int) -> AllocatedClaim:
    return AllocatedClaim(ClaimRef(ClaimUID(f"uid-{number}"), f"c{number}", "default"), (), ())


def test_what_all_containers_get_is_looked_at_whenever_it_differs(tmp_path: Path) -> None:
    files = ClaimFiles(tmp_path, "example.com")
    common: dict[str, Any] = {"env": ["A=1"], "mounts": [{"hostPath": "/l", "containerPath": "/l"}]}
    devices = {"x0": {"deviceNodes": [_NODE]}}

    def write(number: int, *, version: str = "0.5.0", **more: Any) -> dict[str, Any]:
        claim = _claim(number)
        files.write(claim, Edits(more.get("devices", devices), {**common, **more.get("common", {})}, version))
        found: dict[str, Any] = json.loads(files.path(claim.claim.uid).read_text())
        return found

    for number in range(2):
        assert write(number)["containerEdits"]["env"] == ["A=1"]
    with pytest.raises(CdiError, match="invalid environment variable"):
        write(2, common={"env": ["A"]})
    with pytest.raises(CdiError, match=r"at least v1\.1\.0"):
        write(3, common={"netDevices": [{"hostInterfaceName": "a", "name": "b"}]})
    typed = {"mounts": [{"hostPath": "/l", "containerPath": "/l", "type": "bind"}]}
    assert write(10, common=typed, version="0.4.0", devices={"x0": {"env": ["B=1"]}})
    with pytest.raises(CdiError, match=r"at least v0\.4\.0"):
        write(3, common=typed, version="0.3.0", devices={"x0": {"env": ["B=1"]}})
    with pytest.raises(CdiError, match=r"at least v0\.7\.0"):
        write(4, devices={"x0": {"deviceNodes": [_NODE], "additionalGids": [5]}})
    with pytest.raises(CdiError, match="empty device edits"):
        write(5, devices={"x0": {}})
    with pytest.raises(CdiError, match="no devices"):
        write(6, devices={})
    with pytest.raises(CdiError, match="invalid version"):
        write(7, version="9.9.9")
    common["mounts"][0]["hostPath"] = ""  # changed in place by a kind that keeps one object
    with pytest.raises(CdiError, match="host path"):
        write(8)
    common["mounts"][0]["hostPath"] = "/m"
    assert write(9)["containerEdits"]["mounts"][0]["hostPath"] == "/m"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"k8s.example.com-claim_uid-{number}.json" for number in (0, 1, 10, 9)
    ]
