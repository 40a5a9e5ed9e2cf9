"""What breaks the path of devices for many pods at once: driver, MIG and runtime changes, reboots, two allocators.

These are found from nodes and operands, not from the pods that suffer, and outrank what the pods show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from drakkar.diagnosis.situation import GPU_DRIVER, Situation, ready
from drakkar.diagnosis.verdict import UNDECIDED, Evidence, Finding
from drakkar.evidence.snapshot import message_of, name_of, namespace_of, reference

__all__ = ["findings", "two_allocators"]

Object = dict[str, Any]

_PAUSED: Final = "paused-for-driver-upgrade"
_SHOWN: Final = 4


def findings(situation: Situation) -> Iterator[Finding]:
    """Every lifecycle state that breaks the path of devices."""
    for detect in (
        _runtime_broken,
        _wrong_runtime_instance,
        _reboot_deadlock,
        _driver_in_use,
        _driver_silent,
        _paused_labels,
        _admission_storm,
        _mig_config,
        two_allocators,
    ):
        yield from detect(situation)


def _runtime_broken(situation: Situation) -> Iterator[Finding]:
    """containerd does not start with the configuration that the toolkit wrote."""
    broken: list[tuple[str, str]] = []
    for node, capture in situation.snapshot.nodes.items():
        lines = [line for line in capture.text("journal.txt").splitlines() if _CONFIG_ERROR.search(line)]
        if lines:
            broken.append((node, lines[-1].strip()))
    if not broken:
        return
    toolkit = next((d for d in situation.snapshot.all("DaemonSet") if "container-toolkit" in name_of(d)), None)
    evidence = [Evidence(f"{node}: {line}", f"{node} journal.txt") for node, line in broken]
    for node, _ in broken:
        state = situation.snapshot.get("Node", node)
        if state is not None and not ready(state):
            evidence.append(Evidence(f"node {node} is not ready", reference(state)))
    names = ", ".join(node for node, _ in broken)
    if len(broken) > 1 and toolkit is not None:
        yield Finding(
            "runtime-config-rollout",
            reference(toolkit),
            f"the rollout of {name_of(toolkit)} breaks containerd on every node it reaches: {names}",
            tuple(evidence),
            "stop the rollout; on the broken nodes remove the drop-in file and restart containerd",
        )
        return
    yield Finding(
        "runtime-config-invalid",
        f"Node/{broken[0][0]}",
        f"containerd on {names} does not start with its configuration: {broken[0][1]}",
        tuple(evidence),
        f"correct the file that the message names on {names} and restart containerd",
    )


_CONFIG_ERROR: Final = re.compile(
    r"containerd(?:\[\d+\])?: (?:containerd: )?(?:drop-in config version|failed to load TOML|invalid .*config)"
)


def _wrong_runtime_instance(situation: Situation) -> Iterator[Finding]:
    """The toolkit configured the host's containerd, the kubelet uses the distribution's own."""
    for node in situation.snapshot.all("Node"):
        name = name_of(node)
        version = ((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", "")
        if "rke2" not in version and "k3s" not in version:
            continue
        complaint = _missing_runtime(situation, name)
        if complaint is None:
            continue
        toolkit, path = _toolkit_path(situation)
        if toolkit is None or not path.startswith("/etc/containerd"):
            continue
        own = (
            "/var/lib/rancher/rke2/agent/etc/containerd"
            if "rke2" in version
            else "/var/lib/rancher/k3s/agent/etc/containerd"
        )
        capture = situation.snapshot.nodes.get(name)
        units = [
            line.strip() for line in (capture.text("units.txt").splitlines() if capture else []) if "containerd" in line
        ]
        yield Finding(
            "runtime-config-wrong-instance",
            reference(node),
            f"the toolkit configured {path} on {name}, but the kubelet uses the containerd of {version}, which reads"
            f" {own}",
            (
                complaint,
                Evidence(f"the toolkit writes to {path}", reference(toolkit)),
                Evidence(f"kubelet {version}", reference(node)),
                *(Evidence(line, f"{name} units.txt") for line in units),
            ),
            f"set the toolkit's CONTAINERD_CONFIG to {own}/config.toml.tmpl and CONTAINERD_SOCKET to"
            " /run/k3s/containerd/containerd.sock",
        )


def _missing_runtime(situation: Situation, node: str) -> Evidence | None:
    text = 'no runtime for "nvidia" is configured'
    for event in situation.snapshot.events:
        host = (event.get("source") or {}).get("host") or event.get("reportingInstance")
        about = event.get("involvedObject") or {}
        pod = situation.snapshot.by_uid(about.get("uid", ""))
        on_node = host == node or ((pod or {}).get("spec") or {}).get("nodeName") == node
        if on_node and text in message_of(event):
            return Evidence(message_of(event), f"event {event.get('reason')} of Pod/{about.get('name', '')} on {node}")
    return None


def _toolkit_path(situation: Situation) -> tuple[Object | None, str]:
    for daemon in situation.snapshot.all("DaemonSet"):
        if "container-toolkit" not in name_of(daemon):
            continue
        for volume in (daemon["spec"]["template"].get("spec") or {}).get("volumes") or ():
            if volume.get("name") == "containerd-config":
                return daemon, str((volume.get("hostPath") or {}).get("path", ""))
    return None, ""


def _reboot_deadlock(situation: Situation) -> Iterator[Finding]:
    """Terminating pods wait for the DRA driver, the driver waits for the GPU driver, which waits for the pods."""
    for node in situation.snapshot.all("Node"):
        name = name_of(node)
        pods = situation.snapshot.pods_on(name)
        ending = [pod for pod in pods if pod["metadata"].get("deletionTimestamp") and situation.claims_of(pod)]
        drivers = [pod for pod in pods if "nvidia-driver-daemonset" in name_of(pod) and not ready(pod)]
        plugins = [pod for pod in situation.plugin_pods(name) if not ready(pod)]
        capture = situation.snapshot.nodes.get(name)
        lines = capture.journal_lines("unprepare dynamic resources", "not registered") if capture is not None else []
        if not (ending and drivers and plugins and lines):
            continue
        logs = [
            Evidence(line, f"log of {key.pod}/{key.container}")
            for driver in drivers
            for key, text in situation.snapshot.logs_of(driver)
            for line in text.splitlines()[-1:]
        ]
        yield Finding(
            "reboot-deadlock",
            reference(node),
            f"on {name} pods {', '.join(map(name_of, ending))} cannot end without the DRA driver, which waits for the"
            f" GPU driver, whose k8s-driver-manager waits for those pods",
            (
                Evidence(lines[-1].strip(), f"{name} journal.txt"),
                *(
                    Evidence(
                        f"pod {name_of(pod)} is terminating since {pod['metadata']['deletionTimestamp']}",
                        reference(pod),
                    )
                    for pod in ending
                ),
                *(
                    Evidence(f"{name_of(pod)} waits in its init container k8s-driver-manager", reference(pod))
                    for pod in drivers
                ),
                *(Evidence(f"plugin pod {name_of(pod)} is not ready", reference(pod)) for pod in plugins),
                *logs,
            ),
            f"kubectl delete pod --force {' '.join(map(name_of, ending))}; then upgrade the driver manager to 0.12",
        )


def _driver_in_use(situation: Situation) -> Iterator[Finding]:
    """The driver container cannot load its module because workloads use the loaded one."""
    for pod in situation.snapshot.all("Pod"):
        if "nvidia-driver-daemonset" not in name_of(pod) or ready(pod):
            continue
        for key, text in situation.snapshot.logs_of(pod):
            lines = [line for word in _IN_USE for line in text.splitlines() if word in line]
            if not lines:
                continue
            node = (pod.get("spec") or {}).get("nodeName", "")
            users = [other for other in situation.snapshot.pods_on(node) if _uses_gpu(situation, other)]
            names = ", ".join(f"{namespace_of(user)}/{name_of(user)}" for user in users)
            yield Finding(
                "driver-init-blocked",
                f"Node/{node}",
                f"the driver container on {node} cannot unload the kernel module, {names or 'a process'} uses it",
                (
                    *(Evidence(line.strip(), f"log of {key.pod}/{key.container}") for line in lines[:2]),
                    *(
                        Evidence(f"pod {namespace_of(u)}/{name_of(u)} runs on {node} with a GPU", reference(u))
                        for u in users
                    ),
                ),
                f"kubectl cordon {node}; end {names or 'what uses /dev/nvidia*'}, then delete pod {name_of(pod)}",
            )
            return


def _driver_silent(situation: Situation) -> Iterator[Finding]:
    """The driver container fails again and again, and its log was not captured."""
    for pod in situation.snapshot.all("Pod"):
        if "nvidia-driver-daemonset" not in name_of(pod) or ready(pod):
            continue
        status = pod.get("status") or {}
        states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        failing = [state for state in states if state.get("restartCount")]
        if not failing or any(True for _ in situation.snapshot.logs_of(pod)):
            continue
        node = (pod.get("spec") or {}).get("nodeName", "")
        yield Finding(
            UNDECIDED,
            f"Node/{node}",
            f"the driver container on {node} has failed {failing[0]['restartCount']} times, and its log, which would"
            " say why, was not captured",
            (
                Evidence(f"{failing[0].get('name')}: {failing[0]['restartCount']} restarts", reference(pod)),
                Evidence(f"missing: pods/{namespace_of(pod)}/{name_of(pod)}/"),
            ),
            f"kubectl logs {name_of(pod)} -n {namespace_of(pod)} --all-containers --previous",
            "possible",
            boundary="lifecycle",
        )


_IN_USE: Final = ("driver is in use", "device or resource busy")


def _uses_gpu(situation: Situation, pod: Object) -> bool:
    if (pod.get("status") or {}).get("phase") != "Running":
        return False
    if any(use.allocation for use in situation.claims_of(pod)):
        return True
    return any("nvidia.com" in name for name in _extended(pod))


def _extended(pod: Object) -> set[str]:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return {name for c in containers for name in (c.get("resources") or {}).get("limits") or {} if "/" in name}


def _paused_labels(situation: Situation) -> Iterator[Finding]:
    """Operands stay away from a node because labels of an upgrade that is over were left behind."""
    upgrading = {"upgrade-required", "cordon-required", "drain-required", "pod-restart-required", "validation-required"}
    for node in situation.snapshot.all("Node"):
        labels = node["metadata"].get("labels") or {}
        paused = sorted(name for name, value in labels.items() if value == _PAUSED)
        state = labels.get("nvidia.com/gpu-driver-upgrade-state", "")
        if not paused or state in upgrading:
            continue
        name = name_of(node)
        drivers = [pod for pod in situation.snapshot.pods_on(name) if "nvidia-driver-daemonset" in name_of(pod)]
        if any(not ready(pod) for pod in drivers):
            continue
        yield Finding(
            "upgrade-labels-orphaned",
            reference(node),
            f"{name} still carries {len(paused)} labels with value {_PAUSED} although no upgrade is running"
            f" (state {state or 'absent'}), so the driver's operands stay away",
            (
                *(Evidence(f"{label}={_PAUSED}", f"{reference(node)} metadata.labels") for label in paused),
                Evidence(f"nvidia.com/gpu-driver-upgrade-state={state or 'absent'}", reference(node)),
                Evidence(f"plugin pods on {name}: {len(situation.plugin_pods(name))}"),
            ),
            f"kubectl label node {name} --overwrite " + " ".join(f"{label}=true" for label in paused),
        )


def _admission_storm(situation: Situation) -> Iterator[Finding]:
    """A controller makes pods faster than one bad node can reject them."""
    rejected: dict[tuple[str, str], list[Object]] = {}
    for pod in situation.snapshot.all("Pod"):
        status = pod.get("status") or {}
        if status.get("phase") == "Failed" and status.get("reason") == "UnexpectedAdmissionError":
            owner = next(
                (o.get("uid", "") for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), ""
            )
            rejected.setdefault(((pod.get("spec") or {}).get("nodeName", ""), owner), []).append(pod)
    for (node, owner), pods in rejected.items():
        if len(pods) < 3 or not owner:
            continue
        controller = situation.snapshot.by_uid(owner)
        label = reference(controller) if controller else f"owner {owner}"
        message = (pods[-1].get("status") or {}).get("message", "")
        yield Finding(
            "admission-storm",
            f"Node/{node}",
            f"{node} rejects every pod of {label} with UnexpectedAdmissionError and the controller keeps making new"
            f" ones ({len(pods)} seen): {message}",
            (
                Evidence(message, f"{reference(pods[-1])} status.message"),
                *(Evidence(f"{name_of(pod)} failed on {node}", reference(pod)) for pod in pods[:_SHOWN]),
            ),
            f"kubectl cordon {node} first, then repair its driver; delete the failed pods",
        )


def _mig_config(situation: Situation) -> Iterator[Finding]:
    """The MIG manager could not apply a layout, or never ends."""
    for node in situation.snapshot.all("Node"):
        labels = node["metadata"].get("labels") or {}
        state, wanted = labels.get("nvidia.com/mig.config.state"), labels.get("nvidia.com/mig.config", "")
        if state not in ("failed", "pending", "rebooting"):
            continue
        name = name_of(node)
        evidence = [
            Evidence(f"nvidia.com/mig.config={wanted}", reference(node)),
            Evidence(f"nvidia.com/mig.config.state={state}", reference(node)),
        ]
        error = ""
        for pod in situation.snapshot.pods_on(name):
            if "mig-manager" not in name_of(pod):
                continue
            for key, text in situation.snapshot.logs_of(pod):
                for line in text.splitlines():
                    if "level=error" in line or "level=fatal" in line or "Updating MIG config" in line:
                        evidence.append(Evidence(line.strip(), f"log of {key.pod}/{key.container}"))
                        error = error or (line.strip() if "level=error" in line else "")
        capture = situation.snapshot.nodes.get(name)
        if capture is not None and capture.gpus:
            evidence.append(
                Evidence(f"GPUs: {', '.join(gpu.product for gpu in capture.gpus)}", f"{name} nvidia-smi-L.txt")
            )
        if state == "failed":
            yield Finding(
                "mig-config-failed",
                reference(node),
                f"the MIG manager could not apply layout {wanted} on {name}" + (f": {_quoted(error)}" if error else ""),
                tuple(evidence),
                "with mixed GPU models the manager must resolve profiles per GPU: upgrade it, then set the label anew",
            )
        else:
            yield Finding(
                "mig-config-stuck",
                reference(node),
                f"the MIG manager has been {state} with layout {wanted} on {name}",
                tuple(evidence),
                f"look at the mig-manager pod on {name}: what still uses its GPUs?",
                "likely",
            )


def _quoted(line: str) -> str:
    match = re.search(r'msg="(.*?)(?:\\n)?"$', line)
    return match[1] if match else line


def two_allocators(situation: Situation) -> Iterator[Finding]:
    """A device plugin and a DRA driver offer the same GPUs of one node."""
    for node in situation.snapshot.all("Node"):
        name = name_of(node)
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        offered = {
            key: value for key, value in allocatable.items() if key.startswith("nvidia.com/") and value not in ("0", 0)
        }
        slices = [
            piece
            for piece in situation.slices_of(name, GPU_DRIVER)
            if any(
                ((d.get("attributes") or {}).get("type") or {}).get("string") == "gpu"
                for d in piece["spec"].get("devices") or ()
            )
        ]
        if not offered or not slices:
            continue
        shown = ", ".join(f"{key}: {value}" for key, value in offered.items())
        by_plugin = [
            pod
            for pod in situation.snapshot.pods_on(name)
            if any(key in offered for key in _extended(pod)) and not situation.claims_of(pod)
        ]
        by_claim = [
            pod for pod in situation.snapshot.pods_on(name) if any(use.allocation for use in situation.claims_of(pod))
        ]
        yield Finding(
            "allocator-conflict",
            reference(node),
            f"{name} offers its GPUs twice: as {shown} through a"
            f" device plugin and in slice {name_of(slices[0])} through {GPU_DRIVER}",
            (
                Evidence(
                    f"allocatable {shown}",
                    f"{reference(node)} status.allocatable",
                ),
                *(Evidence(f"slice {name_of(piece)} offers the same GPUs", reference(piece)) for piece in slices),
                *(
                    Evidence(f"pod {name_of(pod)} got a GPU from the device plugin", reference(pod))
                    for pod in by_plugin
                ),
                *(Evidence(f"pod {name_of(pod)} got a GPU through a claim", reference(pod)) for pod in by_claim),
                *_failing(situation, by_claim),
            ),
            f"choose one: set nvidia.com/gpu.deploy.device-plugin=false on {name}, or keep the DRA driver away",
            affects=frozenset(reference(pod) for pod in (*by_plugin, *by_claim)),
        )


def _failing(situation: Situation, pods: list[Object]) -> list[Evidence]:
    found = []
    for pod in pods:
        for key, text in situation.snapshot.logs_of(pod):
            lines = [line for line in text.splitlines() if re.search(r"error|out of memory", line, re.I)]
            if lines and not ready(pod):
                found.append(Evidence(lines[-1].strip(), f"log of {key.pod}/{key.container}"))
                break
    return found
