"""Devices are there and the program still fails: its CUDA and the driver or the GPU do not fit.

Only said where every boundary is passed as far as it is known: the container ran, and its own log names the mismatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from drakkar.api.identities import DeviceKey
from drakkar.diagnosis.situation import ClaimUse, Situation, affected, ready
from drakkar.diagnosis.verdict import Evidence, Finding
from drakkar.evidence.snapshot import name_of, reference

__all__ = ["mismatch"]

Object = dict[str, Any]

_SHOWN: Final = 4
_MISMATCHES: Final = (
    (
        re.compile(r"CUDA driver version is insufficient|cudaErrorInsufficientDriver", re.I),
        "the image's CUDA is newer than the driver",
    ),
    (
        re.compile(r"no kernel image is available|cudaErrorNoKernelImageForDevice", re.I),
        "the image has no code for this GPU",
    ),
    (
        re.compile(r"forward compatibility was attempted on non supported HW", re.I),
        "the image's compatibility libraries do not fit this GPU",
    ),
    (re.compile(r"unsatisfied condition: cuda\s*>=", re.I), "the image demands a newer CUDA than the driver has"),
    (
        re.compile(r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|cudaErrorSystemDriverMismatch", re.I),
        "the image brings a driver library of another version",
    ),
)


def mismatch(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """What the log of a failing container says about CUDA, driver and GPU."""
    if ready(pod):
        return
    for key, text in situation.snapshot.logs_of(pod):
        for line in reversed(text.splitlines()):
            for pattern, meaning in _MISMATCHES:
                if pattern.search(line):
                    yield Finding(
                        "application-cuda-mismatch",
                        reference(pod),
                        f"pod {name_of(pod)} has its devices, but {meaning}: {line.strip()}",
                        (Evidence(line.strip(), f"log of {key.pod}/{key.container}"), *_facts(situation, pod, uses)),
                        "use an image built for this driver and GPU, or upgrade the driver",
                        affects=affected(situation.snapshot, pod),
                    )
                    return


def _facts(situation: Situation, pod: Object, uses: list[ClaimUse]) -> list[Evidence]:
    images = ", ".join(str(container.get("image")) for container in (pod.get("spec") or {}).get("containers") or ())
    facts = [Evidence(f"image {images}", f"{reference(pod)} spec.containers")]
    held = {
        DeviceKey(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
        for use in uses
        for result in ((use.allocation or {}).get("devices") or {}).get("results") or ()
    }
    node = (pod.get("spec") or {}).get("nodeName")
    for published in situation.devices:
        if published.key in held or (not held and published.node == node and len(facts) <= _SHOWN):
            attributes = published.device.get("attributes") or {}
            shown = [
                f"{name} {next(iter(attributes[name].values()))}"
                for name in ("productName", "cudaComputeCapability", "cudaDriverVersion", "driverVersion")
                if attributes.get(name)
            ]
            facts.append(Evidence(f"{published.key}: {', '.join(shown)}", f"ResourceSlice/{published.slice_name}"))
    return facts
