"""Scenarios as data: manifests and what the containers must then see.

A file has `about`, `driver` (a key of `DRIVERS`), `manifests` (Kubernetes objects; pods and pod templates get image,
command and grace period filled in, and containers that name no claims have all of their pod) and `expect`:

    ready: [POD, …]        become Ready; all pods of the file if the key is missing
    pods: {SELECTOR: N}    so many pods with that label become Ready or succeed
    sees: {PLACE: {gpus, migs, vfio, models, environment, limits}}   how many whole GPUs, MIG devices; patterns of all
                                          nodes of one that has a GPU passed through; a pattern for each line of
                                          nvidia-smi -L; variables of CUDA, as NAME=value; what the driver lets it
                                          have of each GPU's memory, as `N MiB` or `[N/A]`
    distinct | same: [PLACE, …]           these see different, or the same, hardware
    unschedulable: {POD: PATTERN}         stays Pending; the scheduler's message
    refused: {POD: PATTERN}               stays ContainerCreating; the event of the failed prepare

A PLACE is a pod (its first container), `pod/container`, or `label=value` for all pods with that label.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.realkube import images

#: What a container does: show its device nodes by number, then what nvidia-smi finds behind them, then wait.
LOOK = (
    "for n in /dev/nvidia[0-9]* /dev/nvidia-caps/* /dev/vfio/* /dev/vfio/devices/* /dev/iommu; do "
    "[ -c $n ] && stat -c 'NODE %n %t:%T' $n; done; "
    "nvidia-smi -L; nvidia-smi --query-gpu=memory.limit --format=csv,noheader | sed 's/^/LIMIT /'; "
    "env | grep ^CUDA_ | sed 's/^/ENV /'; echo SEEN; "
)
#: Then it waits, and ends at once when it is told to.
WAIT = "trap 'exit 0' TERM; sleep 3600 & wait"

#: Options of `drakkar driver gpu`, and MIG instances (GPU, profile) that exist before it starts.
DRIVERS: dict[str, DriverSetup]


@dataclass(frozen=True, slots=True)
class DriverSetup:
    """A driver on a machine: the model, more options, static MIG instances as (GPU index, profile), and the version
    of NVIDIA's driver where it is not the usual one.
    """

    model: str = "dgx-h100"
    options: tuple[str, ...] = ()
    mig: tuple[tuple[int, str], ...] = ()
    version: str = ""


DRIVERS = {
    "plain": DriverSetup(),
    "dynamic-mig": DriverSetup(options=("--dynamic-mig",)),
    "static-mig": DriverSetup(mig=((0, "3g.40gb"), (0, "3g.40gb"), (1, "1g.10gb"), (1, "2g.20gb"))),
    "shares-memory": DriverSetup(options=("--shares=memory",)),
    "shares-enforced": DriverSetup(options=("--shares=memory",), version="615.43.02"),
    "shares-by-mps": DriverSetup(options=("--shares=memory", "--enforce-memory=mps")),
    "shares-unlimited": DriverSetup(options=("--shares=unlimited",)),
    "shares-4": DriverSetup(options=("--shares=4",)),
    "passthrough": DriverSetup(options=("--passthrough",)),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file."""

    name: str
    about: str
    driver: str
    manifests: list[dict[str, Any]]
    expect: dict[str, Any]


def scenarios() -> list[Scenario]:
    """All files, those with the same driver one after the other."""
    found = [_load(path) for path in sorted(Path(__file__).with_name("scenarios").glob("*.yaml"))]
    return sorted(found, key=lambda one: list(DRIVERS).index(one.driver))


def filled(manifest: dict[str, Any]) -> dict[str, Any]:
    """A copy with what every pod of the suite has: image, command, grace period, claims for each container."""
    manifest = copy.deepcopy(manifest)
    spec = manifest.get("spec") or {}
    if manifest["kind"] == "Pod":
        _fill(manifest.setdefault("spec", spec))
    elif isinstance(spec.get("template"), dict):
        template = spec["template"]["spec"]
        _fill(template, ends=manifest["kind"] == "Job")
    return manifest


def _load(path: Path) -> Scenario:
    document = yaml.safe_load(path.read_text())
    manifests = [filled(one) for one in document["manifests"]]
    return Scenario(path.stem, document["about"], document["driver"], manifests, document["expect"])


def _fill(spec: dict[str, Any], *, ends: bool = False) -> None:
    spec.setdefault("terminationGracePeriodSeconds", 2)
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("dnsPolicy", "Default")
    if ends:
        spec.setdefault("restartPolicy", "Never")
    names = [{"name": claim["name"]} for claim in spec.get("resourceClaims") or ()]
    for container in spec.setdefault("containers", [{"name": "main"}]):
        container.setdefault("image", images.WORKLOAD)
        container.setdefault("imagePullPolicy", "Never")
        container.setdefault("command", ["sh", "-c", LOOK + ("" if ends else WAIT)])
        if names:
            container.setdefault("resources", {}).setdefault("claims", names)
