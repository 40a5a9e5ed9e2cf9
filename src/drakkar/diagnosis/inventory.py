"""Why devices are not offered at all: slices that are missing, empty, incomplete or untrue, drivers that do not run.

A node that has GPUs (by its labels or its capture) must have slices of the GPU driver that name them. Where it has
not, the state of the driver's plugin on that node, its logs, and what the hardware shows tell the cases apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from drakkar.diagnosis.funnel import requests_of
from drakkar.diagnosis.situation import GPU_DRIVER, ClaimUse, Situation, affected, ready
from drakkar.diagnosis.verdict import UNDECIDED, Evidence, Finding
from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.snapshot import name_of, namespace_of, reference

__all__ = ["for_pod", "nodes", "retained_claim"]

Object = dict[str, Any]

_CHECKPOINT: Final = re.compile(
    r"checkpoint.*(corrupt|checksum|unmarshal)|(corrupt|checksum|unmarshal).*checkpoint", re.I
)
_ROOT: Final = re.compile(r"libnvidia-ml\.so\.1|nvidia-smi.*not found|NVIDIA_DRIVER_ROOT|driver root", re.I)
_GATES: Final = re.compile(r"\b(DynamicMIG|MPSSupport|TimeSlicingSettings|PassthroughSupport|NVMLDeviceHealthCheck)\b")
_FATAL: Final = re.compile(r"^(?:F\d|E\d)|level=(?:fatal|error)|\bError:|panic", re.I)


def for_pod(situation: Situation, pod: Object, uses: list[ClaimUse]) -> Iterator[Finding]:
    """Nodes that would take a pending pod and whose devices are missing."""
    wanted = [request for use in uses if use.allocation is None for request in requests_of(use.devices)]
    if not wanted:
        return
    refusals = situation.refusals(pod)
    for finding in nodes(situation):
        kind, _, name = finding.subject.partition("/")
        if kind != "Node" or not refusals.get(name):
            yield _for(finding, affected(situation.snapshot, pod))
    if not any(published.key.driver == GPU_DRIVER for published in situation.devices):
        yield from _unexplained(situation, pod)
    if not situation.devices and not situation.snapshot.all("ResourceSlice"):
        yield Finding(
            "slice-never-published",
            reference(pod),
            "no driver publishes any device in this cluster: there is no ResourceSlice",
            (Evidence("there are no ResourceSlices"),),
            "install a DRA driver; kubectl get resourceslices must list devices",
            affects=affected(situation.snapshot, pod),
        )


def _unexplained(situation: Situation, pod: Object) -> Iterator[Finding]:
    """No GPU is published, and a plugin that should do it is not ready for a reason that only its log knows."""
    for node in situation.gpu_nodes:
        for plugin in situation.plugin_pods(name_of(node)):
            if ready(plugin) or any(True for _ in situation.snapshot.logs_of(plugin)) or not _offers_gpus(plugin):
                continue
            wanted = f"pods/{namespace_of(plugin)}/{name_of(plugin)}/"
            yield Finding(
                UNDECIDED,
                reference(node),
                f"{name_of(node)} has GPUs and publishes none; the driver's plugin there is not ready, and its log,"
                " which would say why, was not captured",
                (_state(plugin), Evidence(f"missing: {wanted}"), *_hardware(situation, name_of(node))),
                f"kubectl logs {name_of(plugin)} -n {namespace_of(plugin)} --all-containers --previous",
                "possible",
                affects=affected(situation.snapshot, pod),
                boundary="inventory",
            )
            return


def nodes(situation: Situation) -> Iterator[Finding]:
    """Every node or driver whose inventory is missing or untrue; worked out once, since many pods ask."""
    return iter(situation.once("inventory", lambda: tuple(_nodes(situation))))


def _nodes(situation: Situation) -> Iterator[Finding]:
    yield from _driver_root(situation)
    for node in situation.gpu_nodes:
        yield from _node(situation, node)
    yield from _incomplete_pools(situation)


def retained_claim(situation: Situation, claim: Object) -> Finding:
    """A claim that holds devices although nothing uses it."""
    results = ((claim["status"].get("allocation") or {}).get("devices") or {}).get("results") or ()
    held = ", ".join(f"{r.get('driver')}/{r.get('pool')}/{r.get('device')}" for r in results)
    return Finding(
        "claim-retained",
        reference(claim),
        f"claim {namespace_of(claim)}/{name_of(claim)} holds {held} although no pod uses it",
        (Evidence("reservedFor is empty and no pod names the claim", f"{reference(claim)} status.reservedFor"),),
        f"ask its owner, then kubectl delete resourceclaim {name_of(claim)} -n {namespace_of(claim)}",
    )


def _node(situation: Situation, node: Object) -> Iterator[Finding]:
    name = name_of(node)
    slices = situation.slices_of(name, GPU_DRIVER)
    plugins = [plugin for plugin in situation.plugin_pods(name) if _offers_gpus(plugin)]
    if any(piece["spec"].get("devices") for piece in slices):
        yield from _stale(situation, node, slices)
        return
    crash = next(_crashes(situation, node, plugins), None)
    if crash is not None:
        yield crash
    elif (rejected := next(_rejected(situation, node, plugins), None)) is not None:
        yield rejected
    elif slices:
        yield _empty(situation, node, slices, plugins)
    elif plugins and all(ready(plugin) for plugin in plugins):
        yield Finding(
            "slice-never-published",
            reference(node),
            f"the driver on {name} runs and is ready, but publishes no slice for the node",
            (Evidence(f"plugin pod {name_of(plugins[0])} is ready", reference(plugins[0])),
             Evidence(f"no ResourceSlice of {GPU_DRIVER} for {name}"), *_hardware(situation, name)),
            f"kubectl logs {name_of(plugins[0])} -n {namespace_of(plugins[0])}; may it create resourceslices?",
            "likely",
        )  # fmt: skip
    else:
        yield from _withdrawn(situation, node, plugins)


def _rejected(situation: Situation, node: Object, plugins: list[Object]) -> Iterator[Finding]:
    """The API server refuses what the driver publishes."""
    for plugin in plugins:
        for key, text in situation.snapshot.logs_of(plugin):
            lines = [line.strip() for line in text.splitlines() if _REFUSED.search(line)]
            if lines:
                yield Finding(
                    "slice-rejected",
                    reference(node),
                    f"the API server refuses the slices of the driver on {name_of(node)}: {lines[-1]}",
                    (Evidence(lines[-1], f"log of {key.pod}/{key.container}"), *_hardware(situation, name_of(node))),
                    "grant the driver resourceslices, or upgrade the driver to one that fits this server's version",
                )
                return


_REFUSED: Final = re.compile(r"resourceslices?\S* .*(is invalid|is forbidden|Unprocessable|forbidden:)", re.I)


def _withdrawn(situation: Situation, node: Object, plugins: list[Object]) -> Iterator[Finding]:
    """No slice and no ready driver: did the node ever offer devices?"""
    name = name_of(node)
    held = [key for key in situation.holders if (key.driver, key.pool) == (GPU_DRIVER, name)]
    capture = situation.snapshot.nodes.get(name)
    lines = capture.journal_lines("Deleted ResourceSlices", GPU_DRIVER) if capture is not None else []
    evidence = [Evidence(f"no ResourceSlice of {GPU_DRIVER} for {name}"), *_hardware(situation, name)]
    evidence += [_state(plugin) for plugin in plugins]
    if held or lines:
        evidence += [Evidence(f"{key} is still held by {name_of(situation.holders[key][0])}") for key in held[:3]]
        evidence += [Evidence(line.strip(), f"{name} journal.txt") for line in lines[-1:]]
        yield Finding(
            "slice-withdrawn",
            reference(node),
            f"{name} offers no devices any more: its slices went away with the driver",
            tuple(evidence),
            f"bring the driver of {GPU_DRIVER} on {name} back",
        )
    elif not _has_device_plugin(node) and not situation.snapshot.all("DaemonSet"):
        yield Finding(
            "slice-never-published",
            reference(node),
            f"{name} has GPUs by its labels, but no driver publishes a slice for it",
            tuple(evidence),
            f"is the DRA driver running on {name}?",
            "likely",
        )


def _offers_gpus(plugin: Object) -> bool:
    names = {container.get("name", "") for container in (plugin.get("spec") or {}).get("containers") or ()}
    return "gpus" in names or "compute-domains" not in names


def _has_device_plugin(node: Object) -> bool:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return any(key.startswith("nvidia.com/") for key in allocatable)


def _crashes(situation: Situation, node: Object, plugins: list[Object]) -> Iterator[Finding]:
    name = name_of(node)
    for plugin in plugins:
        if ready(plugin):
            continue
        for key, text in situation.snapshot.logs_of(plugin):
            lines = text.splitlines()
            checkpoint = next((line for line in reversed(lines) if _CHECKPOINT.search(line)), None)
            gate = next((match[1] for line in lines if (match := _GATES.search(line))), "")
            failure = next((line for line in reversed(lines) if _FATAL.search(line)), "")
            where = f"log of {key.pod}/{key.container}{' (previous)' if key.previous else ''}"
            if checkpoint is not None:
                yield Finding(
                    "driver-crash-checkpoint",
                    reference(node),
                    f"the driver on {name} cannot start, its checkpoint is unreadable: the node offers no devices",
                    (Evidence(checkpoint.strip(), where), _state(plugin), *_hardware(situation, name)),
                    f"move the checkpoint on {name} aside when its claims have ended, then restart {name_of(plugin)}",
                )
                return
            if gate and failure:
                yield Finding(
                    "driver-crash-gate",
                    reference(node),
                    f"the driver on {name} cannot start with feature gate {gate} on this hardware: {failure.strip()}",
                    (Evidence(failure.strip(), where), *_gate_settings(situation, plugin), _state(plugin),
                     *_hardware(situation, name)),
                    f"switch {gate} off for {name}, or use a node whose GPUs can be reset",
                )  # fmt: skip
                return


def _empty(situation: Situation, node: Object, slices: list[Object], plugins: list[Object]) -> Finding:
    name = name_of(node)
    evidence = [Evidence(f"slice {name_of(piece)} of {name} has no devices", reference(piece)) for piece in slices]
    evidence += [
        Evidence(f"plugin pod {name_of(plugin)} is ready since {_ready_since(plugin)}", reference(plugin))
        for plugin in plugins
    ]
    return Finding(
        "slice-empty",
        reference(node),
        f"{name} has GPUs, but the driver publishes an empty slice for it ({name_of(slices[0])})",
        (*evidence, *_hardware(situation, name), *_log_tail(situation, plugins)),
        f"restart the driver's plugin on {name} now that its GPUs are there",
    )


def _stale(situation: Situation, node: Object, slices: list[Object]) -> Iterator[Finding]:
    """Published MIG devices and GPUs against what the node's capture lists."""
    name = name_of(node)
    capture = situation.snapshot.nodes.get(name)
    gpus = capture.gpus if capture is not None else None
    if capture is None or gpus is None:
        yield from _silent(capture, node, slices)
        return
    published: list[str] = []
    profiles: list[str] = []
    for piece in slices:
        for device in piece["spec"].get("devices") or ():
            attributes = device.get("attributes") or {}
            if device.get("consumesCounters"):
                return  # partitions on demand are made when they are asked for
            kind = (attributes.get("type") or {}).get("string")
            if kind == "mig":
                profiles.append((attributes.get("profile") or {}).get("string", ""))
            elif kind == "gpu":
                published.append((attributes.get("uuid") or {}).get("string", ""))
    seen_profiles = [mig.profile for gpu in gpus for mig in gpu.mig_devices]
    whole = [gpu.uuid for gpu in gpus if not gpu.mig_devices]
    if profiles and sorted(profiles) != sorted(seen_profiles):
        yield Finding(
            "slice-stale",
            reference(node),
            f"{name} advertises MIG devices {_count(profiles)}, but has {_count(seen_profiles)}",
            (Evidence(f"slices advertise {_count(profiles)}", ", ".join(reference(piece) for piece in slices)),
             Evidence(f"nvidia-smi -L on {name} lists {_count(seen_profiles)}", f"{name} nvidia-smi-L.txt"),
             *_label(node, "nvidia.com/mig.config"), *_label(node, "nvidia.com/mig.config.state")),
            f"restart the driver's plugin on {name} so that it publishes the present layout",
        )  # fmt: skip
        return
    cut = {gpu.uuid: [mig.profile for mig in gpu.mig_devices] for gpu in gpus if gpu.mig_devices}
    now_cut = [uuid for uuid in published if uuid in cut]
    if now_cut:
        yield Finding(
            "slice-stale",
            reference(node),
            f"{name} advertises {', '.join(now_cut)} as a whole GPU, but it is cut into {_count(cut[now_cut[0]])}",
            (Evidence(f"slices advertise {', '.join(now_cut)} as a GPU", ", ".join(map(reference, slices))),
             *(Evidence(f"nvidia-smi -L on {name} lists {uuid} with {_count(cut[uuid])}", f"{name} nvidia-smi-L.txt")
               for uuid in now_cut),
             *_label(node, "nvidia.com/mig.config"), *_label(node, "nvidia.com/mig.config.state")),
            f"restart the driver's plugin on {name} so that it publishes the present layout",
        )  # fmt: skip
        return
    missing = [uuid for uuid in published if uuid and uuid not in whole]
    lines = capture.journal_lines("Xid") if capture is not None else []
    if missing and len(published) > len(whole):
        yield Finding(
            "device-missing",
            reference(node),
            f"{name} advertises {len(published)} GPUs, nvidia-smi lists {len(whole)}: {', '.join(missing)} is gone",
            (Evidence(f"published and not listed: {', '.join(missing)}", f"{name} nvidia-smi-L.txt"),
             *(Evidence(line.strip(), f"{name} journal.txt") for line in lines[-2:])),
            f"dmesg on {name} for XID 79; cordon the node, reset or replace the GPU",
        )  # fmt: skip


def _silent(capture: NodeCapture | None, node: Object, slices: list[Object]) -> Iterator[Finding]:
    """GPUs are advertised, and the kernel driver does not answer for any of them."""
    text = capture.text("nvidia-smi-L.txt") if capture is not None else ""
    words = next((line.strip() for line in text.splitlines() if _NO_DRIVER.search(line)), "")
    count = sum(len(piece["spec"].get("devices") or ()) for piece in slices)
    if words:
        yield Finding(
            "device-missing",
            reference(node),
            f"{name_of(node)} advertises {count} devices, and nvidia-smi reaches none of them: {words}",
            (
                Evidence(words, f"{name_of(node)} nvidia-smi-L.txt"),
                Evidence(f"{count} devices are advertised", ", ".join(map(reference, slices))),
            ),
            f"is the kernel module loaded on {name_of(node)}? lsmod | grep nvidia; dmesg | grep NVRM",
        )


_NO_DRIVER: Final = re.compile(r"couldn't communicate with the NVIDIA driver|Failed to initialize NVML")


def _incomplete_pools(situation: Situation) -> Iterator[Finding]:
    pools: dict[tuple[str, str], list[Object]] = {}
    for piece in situation.snapshot.all("ResourceSlice"):
        spec = piece.get("spec") or {}
        if spec.get("pool"):
            pools.setdefault((spec.get("driver", ""), spec["pool"].get("name", "")), []).append(piece)
    for (driver, pool), pieces in pools.items():
        newest = max((piece["spec"]["pool"].get("generation") or 0) for piece in pieces)
        current = [piece for piece in pieces if (piece["spec"]["pool"].get("generation") or 0) == newest]
        announced = max(piece["spec"]["pool"].get("resourceSliceCount") or 0 for piece in current)
        if len(current) < announced:
            node = current[0]["spec"].get("nodeName") or ""
            yield Finding(
                "slice-incomplete",
                f"Node/{node}" if node else reference(current[0]),
                f"pool {pool} of {driver} announces {announced} slices in generation {newest}, {len(current)} exist",
                tuple(Evidence(f"generation {newest}", reference(piece)) for piece in current),
                f"kubectl logs of the driver on {node or 'its node'}: what keeps it from writing the other slices?",
            )


def _driver_root(situation: Situation) -> Iterator[Finding]:
    """Plugins that wait in their init container for NVIDIA's libraries under another root."""
    for daemon in situation.plugin_sets:
        for plugin in situation.snapshot.owned_by(daemon, "Pod"):
            if ready(plugin):
                continue
            for key, text in situation.snapshot.logs_of(plugin):
                lines = [line for line in text.splitlines() if _ROOT.search(line)]
                if not lines or "init" not in key.container:
                    continue
                root = _environment(daemon, "NVIDIA_DRIVER_ROOT") or "/"
                node = (plugin.get("spec") or {}).get("nodeName", "")
                actual = _driver_container_root(situation, node)
                if actual is None or actual == root:
                    continue
                yield Finding(
                    "driver-root-wrong",
                    reference(daemon),
                    f"the plugin looks for NVIDIA's libraries under {root}, the driver on {node} is at {actual}"
                    " (chart value nvidiaDriverRoot)",
                    (
                        *(Evidence(line.strip(), f"log of {key.pod}/{key.container}") for line in lines[-3:]),
                        Evidence(f"NVIDIA_DRIVER_ROOT={root}", f"{reference(daemon)} spec.template"),
                        Evidence(f"the driver container on {node} installs under {actual}"),
                    ),
                    f"helm upgrade with --set nvidiaDriverRoot={actual}",
                )
                return


def _driver_container_root(situation: Situation, node: str) -> str | None:
    for pod in situation.snapshot.pods_on(node):
        if "nvidia-driver-daemonset" in name_of(pod):
            return "/run/nvidia/driver"
    capture = situation.snapshot.nodes.get(node)
    return "/run/nvidia/driver" if capture is not None and "/run/nvidia/driver" in capture.text("dev.txt") else None


def _environment(daemon: Object, name: str) -> str:
    spec = (daemon["spec"].get("template") or {}).get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for entry in container.get("env") or ():
            if entry.get("name") == name:
                return str(entry.get("value") or "")
    return ""


def _gate_settings(situation: Situation, plugin: Object) -> list[Evidence]:
    for container in (plugin.get("spec") or {}).get("containers") or ():
        for entry in container.get("env") or ():
            if entry.get("name") == "FEATURE_GATES" and entry.get("value"):
                return [Evidence(f"FEATURE_GATES={entry['value']}", f"{reference(plugin)} spec.containers")]
    return []


def _hardware(situation: Situation, node: str) -> list[Evidence]:
    capture = situation.snapshot.nodes.get(node)
    gpus = capture.gpus if capture is not None else None
    if gpus:
        return [
            Evidence(
                f"{node} has {len(gpus)} GPUs: {', '.join(gpu.product for gpu in gpus)}", f"{node} nvidia-smi-L.txt"
            )
        ]
    labels = (situation.snapshot.get("Node", node) or {}).get("metadata", {}).get("labels") or {}
    count = labels.get("nvidia.com/gpu.count")
    return [Evidence(f"label nvidia.com/gpu.count={count}", f"Node/{node}")] if count else []


def _label(node: Object, name: str) -> list[Evidence]:
    value = (node["metadata"].get("labels") or {}).get(name)
    return [Evidence(f"label {name}={value}", reference(node))] if value is not None else []


def _log_tail(situation: Situation, plugins: list[Object]) -> list[Evidence]:
    for plugin in plugins:
        for key, text in situation.snapshot.logs_of(plugin):
            lines = [line for line in text.splitlines() if re.search(r"device|gpu", line, re.I)]
            if lines:
                return [Evidence(lines[-1].strip(), f"log of {key.pod}/{key.container}")]
    return []


def _state(plugin: Object) -> Evidence:
    for status in (plugin.get("status") or {}).get("containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting or status.get("restartCount"):
            reason = waiting.get("reason") or "not ready"
            return Evidence(
                f"plugin pod {name_of(plugin)}: {reason}, {status.get('restartCount', 0)} restarts", reference(plugin)
            )
    return Evidence(f"plugin pod {name_of(plugin)} is not ready", reference(plugin))


def _ready_since(plugin: Object) -> str:
    for entry in (plugin.get("status") or {}).get("conditions") or ():
        if entry.get("type") == "Ready":
            return str(entry.get("lastTransitionTime", ""))
    return "?"


def _count(profiles: list[str]) -> str:
    counted = {profile: profiles.count(profile) for profile in dict.fromkeys(profiles)}
    return ", ".join(f"{number}×{profile}" for profile, number in counted.items()) or "none"


def _for(finding: Finding, references: frozenset[str]) -> Finding:
    return Finding(
        finding.cause, finding.subject, finding.sentence, finding.evidence, finding.next_step, finding.confidence,
        finding.rules_out, finding.affects | references, finding.boundary,
    )  # fmt: skip
