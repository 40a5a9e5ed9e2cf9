"""Why a prepared device does not reach the container: the runtime's answer against its configuration and CDI files.

The runtime only says "unresolvable CDI devices". The captured configuration and specification files, read by our own
CDI room, say which of the possible reasons is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from drakkar.diagnosis.situation import ClaimUse, Situation, affected
from drakkar.diagnosis.verdict import UNDECIDED, Evidence, Finding
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.runtimes import cdi_settings
from drakkar.evidence.snapshot import event_time, message_of, name_of, reference, uid_of
from drakkar.injection.errors import CdiError
from drakkar.injection.spec import CdiSpec

__all__ = ["not_injected"]

Object = dict[str, Any]

DRIVER_DIRECTORY: Final = "/var/run/cdi"
_UNRESOLVED: Final = re.compile(r"unresolvable CDI devices ((?:[^\s,\"]+=[^\s,\"]+(?:, )?)+)")
_MISSING_FILE: Final = re.compile(r"(?:open|stat|mount)\S*\s+(/\S+?\.so[.\d]*)[:\"]? ?.*no such file or directory")
_NO_LIBRARY: Final = re.compile(
    r"libcuda\.so\.1|libnvidia-ml\.so|no CUDA-capable device|NVIDIA driver.*not (?:found|loaded)", re.I
)


def not_injected(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """What keeps the devices of a bound pod with prepared claims out of its containers."""
    node = (pod.get("spec") or {}).get("nodeName", "")
    capture = situation.snapshot.nodes.get(node) or NodeCapture(node)
    failures = [event for event in situation.snapshot.events_of(pod, "Failed") if not _runs(pod)]
    for event in reversed(failures):
        text = message_of(event)
        if match := _UNRESOLVED.search(text):
            yield _unresolved(
                situation, pod, uses, event, [name.rstrip(":") for name in match[1].split(", ") if name], capture
            )
            return
        if (match := _MISSING_FILE.search(text)) and (found := _stale(situation, pod, uses, event, match[1], capture)):
            yield found
            return
    yield from _invisible(situation, pod, uses, capture)


def _unresolved(
    situation: Situation, pod: Object, uses: list[ClaimUse], event: Object, names: list[str], capture: NodeCapture
) -> Finding:
    node = capture.name
    evidence = [_event(pod, event)]
    enabled, directories, source = cdi_settings(capture)
    files = {name: text for name, text in capture.cdi_files.items() if any(_mentions(text, wanted) for wanted in names)}
    evidence += [
        Evidence(f"{DRIVER_DIRECTORY}/{name} on {node} defines {_defined(text, names)}", f"{node} cdi/{name}")
        for name, text in files.items()
    ]
    if enabled is False:
        return _disabled(situation, pod, capture, evidence)
    if directories is not None and DRIVER_DIRECTORY not in directories and "/run/cdi" not in directories:
        evidence.insert(1, Evidence(f"cdi_spec_dirs = {', '.join(directories)}", source))
        return Finding(
            "cdi-directory-mismatch",
            reference(pod),
            f"the runtime of {node} reads CDI files from {' and '.join(directories)}, the driver writes them to"
            f" {DRIVER_DIRECTORY}",
            tuple(evidence),
            f"add {DRIVER_DIRECTORY} to cdi_spec_dirs of containerd on {node} and restart it",
            affects=affected(situation.snapshot, pod),
        )
    for name in names:
        defining = [file for file, text in files.items() if _mentions(text, name)]
        if len(defining) > 1:
            lines = capture.journal_lines("conflicting device")
            evidence += [Evidence(line.strip(), f"{node} journal.txt") for line in lines[-1:]]
            return Finding(
                "cdi-spec-conflict",
                reference(pod),
                f"{' and '.join(defining)} on {node} both define {name}, so the runtime accepts neither",
                tuple(evidence),
                f"remove the file that the driver did not write (the driver's is named after the claim UID) on {node}",
                affects=affected(situation.snapshot, pod),
            )
    if too_new := _too_new(situation, pod, event, files, evidence, capture):
        return too_new
    broken = list(_broken(capture, names))
    if broken:
        return Finding(
            "cdi-spec-stale",
            reference(pod),
            f"a CDI file on {node} cannot be read: {broken[0].text}",
            (*evidence, *broken),
            f"restart the driver's plugin on {node}; it writes the file again",
            "likely",
            affects=affected(situation.snapshot, pod),
        )
    if (capture.cdi_files or capture.has("cdi.txt")) and not files:
        held = capture.prepared_claims
        return Finding(
            "prepared-state-stale",
            reference(pod),
            f"no CDI file on {node} defines {', '.join(names)}, although the claim counts as prepared",
            (*evidence, Evidence(f"CDI files on {node}: {', '.join(capture.cdi_files) or 'none'}"))
            + ((Evidence(f"the kubelet holds {len(held)} claims", f"{node} dra_manager_state"),) if held else ()),
            f"delete pod {name_of(pod)}; if it repeats, restart the driver's plugin on {node}",
            "likely",
            affects=affected(situation.snapshot, pod),
        )
    return Finding(
        UNDECIDED,
        reference(pod),
        f"the runtime of {node} does not find {', '.join(names)}; its configuration and CDI files were not captured",
        (*evidence, Evidence(f"missing: nodes/{node}/containerd.toml and nodes/{node}/cdi/")),
        f"on {node}: containerd config dump | grep -i cdi; ls -l {DRIVER_DIRECTORY} /etc/cdi",
        "possible",
        affects=affected(situation.snapshot, pod),
        boundary="injection",
    )


def _stale(
    situation: Situation, pod: Object, uses: list[ClaimUse], event: Object, path: str, capture: NodeCapture
) -> Finding | None:
    node = capture.name
    uids = [uid_of(use.claim) for use in uses if use.claim]
    naming = [
        name
        for name, text in capture.cdi_files.items()
        if path in text and any(uid in name or uid in text for uid in uids)
    ]
    version = _version_in(path)
    installed = sorted(
        {found for file in capture.text("dev.txt").split() if (found := _version_in(file)) and "nvidia" in file}
    )
    current = capture.driver_version or (installed[-1] if installed else "")
    if not naming and (not version or version == current):
        return None
    evidence = [_event(pod, event)]
    evidence += [Evidence(f"{name} mounts {path}", f"{node} cdi/{name}") for name in naming]
    if current:
        evidence.append(Evidence(f"the driver on {node} is {current}", f"{node} nvidia-smi-q.txt"))
    evidence += [Evidence(f"claim UID {uid}") for uid in uids]
    evidence += [Evidence(line.strip(), f"{node} journal.txt") for line in capture.journal_lines("NVRM: loading")[-1:]]
    return Finding(
        "cdi-spec-stale",
        reference(pod),
        f"the CDI specification of pod {name_of(pod)}'s claim names {path.rpartition('/')[2]}, which is gone"
        + (f": the driver on {node} is now {current}" if current else f" from {node}"),
        tuple(evidence),
        f"delete pod {name_of(pod)} so that its claim is prepared anew with the present driver's files",
        affects=affected(situation.snapshot, pod),
    )


def _invisible(situation: Situation, pod: Object, uses: list[ClaimUse], capture: NodeCapture) -> Iterator[Finding]:
    """The container starts and its program finds no device."""
    complaint = _complaint(situation, pod)
    if complaint is None:
        return
    enabled, _, _ = cdi_settings(capture)
    if enabled is False:
        yield _disabled(situation, pod, capture, [complaint])
        return
    uids = [uid_of(use.claim) for use in uses if use.claim]
    for name, text in capture.cdi_files.items():
        if any(uid in name or uid in text for uid in uids) and "/dev/nvidia" not in text:
            yield Finding(
                "cdi-spec-incomplete",
                reference(pod),
                f"{name} on {capture.name} gives pod {name_of(pod)} no device node",
                (complaint, Evidence("no /dev/nvidia* among its deviceNodes", f"{capture.name} cdi/{name}")),
                f"restart the driver's plugin on {capture.name} after its driver is loaded, then recreate the pod",
                affects=affected(situation.snapshot, pod),
            )
            return


def _disabled(situation: Situation, pod: Object, capture: NodeCapture, evidence: list[Evidence]) -> Finding:
    node = capture.name
    others = [name for name, other in situation.snapshot.nodes.items() if cdi_settings(other)[0] is True]
    return Finding(
        "cdi-disabled",
        reference(pod),
        f"CDI is off in containerd of {node} (enable_cdi = false): pod {name_of(pod)}'s devices are not injected",
        (
            *evidence,
            Evidence("enable_cdi = false", f"{node} containerd.toml"),
            *(Evidence(f"enable_cdi = true on {name}", f"{name} containerd.toml") for name in others),
        ),
        f"set enable_cdi = true in containerd's configuration on {node} and restart containerd",
        affects=affected(situation.snapshot, pod),
    )


def _complaint(situation: Situation, pod: Object) -> Evidence | None:
    for key, text in situation.snapshot.logs_of(pod):
        for line in reversed(text.splitlines()):
            if _NO_LIBRARY.search(line) and not _runs(pod):
                return Evidence(line.strip(), f"log of {key.pod}/{key.container}")
    return None


def _too_new(
    situation: Situation,
    pod: Object,
    event: Object,
    files: dict[str, str],
    evidence: list[Evidence],
    capture: NodeCapture,
) -> Finding | None:
    """A file that is valid, of a version that the runtime says it does not know."""
    node = capture.name
    complaints = [Evidence(message_of(event))] if _VERSION_REFUSED.search(message_of(event)) else []
    journal = capture.journal_lines("version")
    complaints += [Evidence(line.strip(), f"{node} journal.txt") for line in journal if _VERSION_REFUSED.search(line)]
    for name, text in files.items():
        spec = CdiSpec.parse(text)
        version = spec.raw.cdi_version.removeprefix("v")
        named = [item for item in complaints if version in item.text or name in item.text]
        if named:
            enough = spec.minimum_version.removeprefix("v")
            return Finding(
                "cdi-unsupported-version",
                reference(pod),
                f"cdi/{name} on {node} is of CDI version {version}, which the runtime there does not know yet",
                (*evidence, named[-1], Evidence(f"cdiVersion {version}; its content needs {enough}", f"{node} {name}")),
                f"upgrade the container runtime on {node}"
                + (f", or let the driver write version {enough}" if enough != version else ""),
                affects=affected(situation.snapshot, pod),
            )
    return None


_VERSION_REFUSED: Final = re.compile(
    r"(?:invalid|unsupported|unknown)[^\n]{0,40}version|version[^\n]{0,60}(?:not supported|unsupported|invalid)", re.I
)


def _broken(capture: NodeCapture, names: list[str]) -> Iterator[Evidence]:
    for name, text in capture.cdi_files.items():
        try:
            CdiSpec.parse(text, file=name)
        except CdiError as error:
            if any(_short(wanted) in text or wanted.partition("=")[2][:36] in name for wanted in names):
                yield Evidence(error.message, f"{capture.name} cdi/{name}")


def _mentions(text: str, qualified: str) -> bool:
    """Whether a specification text defines the device."""
    try:
        return qualified in CdiSpec.parse(text).qualified_names()
    except CdiError:
        return False


def _defined(text: str, names: list[str]) -> str:
    return ", ".join(name for name in names if _mentions(text, name))


def _short(qualified: str) -> str:
    return qualified.partition("=")[2]


def _version_in(path: str) -> str:
    match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", path)
    return match[1] if match else ""


def _event(pod: Object, event: Object) -> Evidence:
    return Evidence(message_of(event), f"event {event.get('reason')} of {reference(pod)}, last at {event_time(event)}")


def _runs(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return bool(statuses) and all((status.get("state") or {}).get("running") for status in statuses)
