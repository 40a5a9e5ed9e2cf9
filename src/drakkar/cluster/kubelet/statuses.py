"""Pod status from container states: phase, conditions and container statuses, in the kubelet's words.

Pure. The worker decides what happens; this module only says how it looks. Phases follow `getPhase`, conditions
`GeneratePodReadyCondition` and its siblings of the kubelet (v1.37), with `observedGeneration` (KEP-5067).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.container_state import ContainerState
from drakkar.cluster.kubelet.podspec import Pod, Spec

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TERMINAL: Final = frozenset({SUCCEEDED, FAILED})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the pod is: its own addresses (empty until its containers may start) and the node's."""

    host_ip: str
    pod_ip: str = ""


@dataclass(slots=True)
class Verdict:
    """What the worker knows beyond the containers: a reason to fail, and whether nothing will start again."""

    reason: str = ""
    message: str = ""
    failed: bool = False
    terminal: bool = False
    extra: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def pod_status(
    pod: Pod,
    states: Mapping[str, ContainerState],
    *,
    now: str,
    placement: Placement,
    verdict: Verdict,
    start_time: str,
    sandbox_ready: bool,
) -> dict[str, Any]:
    """The whole status as the API wants it. `verdict.extra` maps container names to `allocatedResourcesStatus`."""
    phase = pod_phase(pod, states, verdict)
    old = pod.get("status") or {}
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": _conditions(pod, states, phase, now, sandbox_ready),
        "hostIP": placement.host_ip,
        "hostIPs": [{"ip": placement.host_ip}],
        "startTime": start_time,
    }
    if "generation" in pod["metadata"]:
        status["observedGeneration"] = pod["metadata"]["generation"]
    if placement.pod_ip:
        status |= {"podIP": placement.pod_ip, "podIPs": [{"ip": placement.pod_ip}]}
    if verdict.reason:
        status |= {"reason": verdict.reason, "message": verdict.message}
    if podspec.init_containers(pod):
        status["initContainerStatuses"] = [
            _container_status(pod, spec, states[spec["name"]], verdict) for spec in podspec.init_containers(pod)
        ]
    status["containerStatuses"] = [
        _container_status(pod, spec, states[spec["name"]], verdict) for spec in podspec.containers(pod)
    ]
    ephemeral = [spec for spec in podspec.ephemeral_containers(pod) if spec["name"] in states]
    if ephemeral:
        status["ephemeralContainerStatuses"] = [
            _container_status(pod, spec, states[spec["name"]], verdict) for spec in ephemeral
        ]
    if "qosClass" in old:
        status["qosClass"] = old["qosClass"]
    return status


def pod_phase(pod: Pod, states: Mapping[str, ContainerState], verdict: Verdict) -> str:
    """Pending until initialised and started; then Running, until nothing runs and nothing will run again."""
    old = (pod.get("status") or {}).get("phase")
    if verdict.failed or old == FAILED:
        return FAILED
    if old == SUCCEEDED:
        return SUCCEEDED
    blocking, failed_init = 0, False
    for spec in podspec.init_containers(pod):
        state = states[spec["name"]]
        if podspec.is_sidecar(spec):
            if not state.started and not (state.ran and verdict.terminal):
                blocking += 1
        elif not state.succeeded:
            blocking += 1
            if state.terminated is not None and not podspec.should_restart(
                pod, spec, state.terminated.exit_code, init=True
            ):
                failed_init = True
    mains = [states[spec["name"]] for spec in podspec.containers(pod)]
    running = sum(1 for state in mains if state.running)
    if failed_init or (blocking and verdict.terminal):
        return FAILED
    if blocking and not any(state.ran for state in mains):
        return PENDING
    waiting = sum(1 for state in mains if not state.running and state.terminated is None and state.last is None)
    stopped = len(mains) - running - waiting
    if waiting and not verdict.terminal:
        return PENDING
    if running:
        return RUNNING
    if stopped == 0:
        return FAILED if verdict.terminal else PENDING
    return _ended_phase(pod, states, verdict)


def _ended_phase(pod: Pod, states: Mapping[str, ContainerState], verdict: Verdict) -> str:
    """No main container runs and each has ended at least once."""
    codes = []
    for spec in podspec.containers(pod):
        state = states[spec["name"]]
        end = state.terminated or state.last
        code = end.exit_code if end is not None else 1
        if not verdict.terminal and podspec.should_restart(pod, spec, code, init=False):
            return RUNNING
        codes.append(code)
    return SUCCEEDED if not any(codes) else FAILED


def _container_status(pod: Pod, spec: Spec, state: ContainerState, verdict: Verdict) -> dict[str, Any]:
    status: dict[str, Any] = {
        "name": spec["name"],
        "image": state.image or spec.get("image", ""),
        "imageID": state.image_id,
        "lastState": {"terminated": state.last.to_json()} if state.last is not None else {},
        "ready": state.ready or (state.init and not state.sidecar and state.succeeded),
        "restartCount": state.restart_count,
        "started": state.started,
        "state": state.state_json(),
    }
    if state.container_id:
        status["containerID"] = state.container_id
    resources = {key: value for key, value in (spec.get("resources") or {}).items() if key != "claims" and value}
    if state.running:
        status["resources"] = resources
        if "requests" in resources:
            status["allocatedResources"] = resources["requests"]
    mounts = [_volume_mount(mount) for mount in spec.get("volumeMounts") or ()]
    if mounts:
        status["volumeMounts"] = mounts
    health = verdict.extra.get(spec["name"])
    if health:
        status["allocatedResourcesStatus"] = health
    return status


def _volume_mount(mount: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"mountPath": mount["mountPath"], "name": mount["name"]}
    if mount.get("readOnly"):
        found |= {"readOnly": True, "recursiveReadOnly": mount.get("recursiveReadOnly") or "Disabled"}
    return found


def _conditions(
    pod: Pod, states: Mapping[str, ContainerState], phase: str, now: str, sandbox_ready: bool
) -> list[dict[str, Any]]:
    unready = [spec["name"] for spec in podspec.containers(pod) if not states[spec["name"]].ready]
    unready_sidecars = [
        spec["name"]
        for spec in podspec.init_containers(pod)
        if podspec.is_sidecar(spec) and not states[spec["name"]].ready
    ]
    containers_ready = _readiness(phase, unready_sidecars + unready)
    wanted = [
        ("PodReadyToStartContainers", sandbox_ready and phase not in TERMINAL, "", ""),
        ("Initialized", *_initialised(pod, states, phase)),
        ("Ready", *_ready(pod, containers_ready)),
        ("ContainersReady", *containers_ready),
    ]
    before = {condition["type"]: condition for condition in (pod.get("status") or {}).get("conditions") or ()}
    generation = pod["metadata"].get("generation")
    observed = {} if generation is None else {"observedGeneration": generation}

    def condition(kind: str, value: bool, reason: str = "", message: str = "") -> dict[str, Any]:
        return _condition(before.get(kind), kind, value, (reason, message), now) | observed

    found = [condition(*entry) for entry in wanted]
    known = {entry["type"] for entry in found}
    others = [entry for kind, entry in before.items() if kind not in known]
    if "PodScheduled" not in before:
        # A pod with spec.nodeName never saw the scheduler: the kubelet says that it is placed.
        others.insert(0, condition("PodScheduled", True))
    return found + [dict(entry) for entry in others]


def _initialised(pod: Pod, states: Mapping[str, ContainerState], phase: str) -> tuple[bool, str, str]:
    if phase == SUCCEEDED:
        return True, "PodCompleted", ""
    incomplete = []
    for spec in podspec.init_containers(pod):
        state = states[spec["name"]]
        done = state.started if podspec.is_sidecar(spec) else state.succeeded
        if not done:
            incomplete.append(spec["name"])
    if incomplete and not any(states[spec["name"]].ran for spec in podspec.containers(pod)):
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]"
    return True, "", ""


def _readiness(phase: str, unready: Sequence[str]) -> tuple[bool, str, str]:
    if phase == SUCCEEDED:
        return False, "PodCompleted", ""
    if phase == FAILED:
        return False, "PodFailed", ""
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""


def _ready(pod: Pod, containers_ready: tuple[bool, str, str]) -> tuple[bool, str, str]:
    if not containers_ready[0]:
        return containers_ready
    conditions = {entry["type"]: entry["status"] for entry in (pod.get("status") or {}).get("conditions") or ()}
    messages = []
    for gate in pod["spec"].get("readinessGates") or ():
        kind = gate["conditionType"]
        if kind not in conditions:
            messages.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif conditions[kind] != "True":
            messages.append(f'the status of pod readiness gate "{kind}" is not "True", but {conditions[kind]}')
    return (False, "ReadinessGatesNotReady", ", ".join(messages)) if messages else (True, "", "")


def _condition(old: Mapping[str, Any] | None, kind: str, value: bool, why: tuple[str, str], now: str) -> dict[str, Any]:
    status = "True" if value else "False"
    since = old["lastTransitionTime"] if old and old.get("status") == status and old.get("lastTransitionTime") else now
    condition: dict[str, Any] = {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": since,
    }
    # A strategic merge keeps what is not named: a reason that no longer holds has to be taken away.
    for name, text in zip(("reason", "message"), why, strict=True):
        if text:
            condition[name] = text
        elif old and old.get(name):
            condition[name] = None
    return condition
