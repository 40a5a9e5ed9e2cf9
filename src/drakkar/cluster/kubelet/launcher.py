"""Start one container of a pod: from its spec to a request for the runtime, with the events a kubelet writes.

A failure never raises out of here: it becomes the container's state (CreateContainerConfigError, CreateContainerError,
or a run that ended with StartError and exit code 128, as containerd reports it), because the pod goes on without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from drakkar.cluster.kubelet import podspec
from drakkar.cluster.kubelet.claims import NodeClaims
from drakkar.cluster.kubelet.container_state import ContainerState, Terminated
from drakkar.cluster.kubelet.device_plugins import DevicePlugins
from drakkar.cluster.kubelet.environment import ConfigError, Downward, Sources, environment, expand
from drakkar.cluster.kubelet.podspec import Pod, Spec
from drakkar.cluster.kubelet.volumes import PodVolumes, TokenSource
from drakkar.cluster.runtimes.images import normalised
from drakkar.cluster.runtimes.runtime import ContainerError, ContainerRequest, Exit, Limits, Mount, Runtime, User
from drakkar.errors import DrakkarError
from drakkar.kube.chance import Chance
from drakkar.kube.client import Client
from drakkar.kube.clock import Clock
from drakkar.kube.quantity import Quantity

POD_UID: Final = "io.kubernetes.pod.uid"
POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
CONTAINER_NAME: Final = "io.kubernetes.container.name"
RESTART_COUNT: Final = "io.kubernetes.container.restartCount"
NODE_NAME: Final = "drakkar.dev/node"
START_ERROR_CODE: Final = 128
_MESSAGE_LIMIT: Final = 4096
_TERMINATION_LOG: Final = "/dev/termination-log"
_NOT_IN_FILE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


class Recorder(Protocol):
    """`kube.events.EventRecorder`."""

    def record(self, obj: dict[str, Any], type: str, reason: str, message: str) -> None: ...


@dataclass(slots=True)
class Node:
    """What pods of one node have in common."""

    name: str
    client: Client
    clock: Clock
    recorder: Recorder
    runtime: Runtime
    claims: NodeClaims
    devices: DevicePlugins
    sources: Sources
    tokens: TokenSource
    root: Path
    logs: Path
    address: str
    cdi_dirs: Sequence[Path] = ()
    chance: Chance = field(default_factory=Chance)
    allocatable: Mapping[str, str] = field(default_factory=dict)


def event(
    node: Node, pod: Pod, kind: str, reason: str, message: str, *, container: ContainerState | None = None
) -> None:
    """Record an event about the pod or, with its field path, about one of its containers."""
    about = dict(pod) | {"apiVersion": "v1", "kind": "Pod"}
    if container is not None:
        field_name = "initContainers" if container.init else "containers"
        if container.ephemeral:
            field_name = "ephemeralContainers"
        about["fieldPath"] = f"spec.{field_name}{{{container.name}}}"
    node.recorder.record(about, kind, reason, message)


def log_path(logs: Path, pod: Pod, container: str, restart: int) -> Path:
    """Where the log of one run lies, as below /var/log/pods."""
    metadata = pod["metadata"]
    return logs / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}" / container / f"{restart}.log"


async def launch(
    node: Node, pod: Pod, spec: Spec, state: ContainerState, *, volumes: PodVolumes, downward: Downward
) -> bool:
    """Create and start the container; `state` says afterwards what became of it. True if it runs."""
    restart = state.restart_count + 1 if state.id else state.restart_count
    event(
        node,
        pod,
        "Normal",
        "Pulled",
        f'Container image "{spec["image"]}" already present on machine and can be accessed by the pod',
        container=state,
    )
    try:
        request = await _request(node, pod, spec, restart, volumes=volumes, downward=downward)
    except (ConfigError, DrakkarError) as error:
        return _refused(node, pod, state, "CreateContainerConfigError", error.message)
    try:
        record = await node.runtime.create(request)
    except ContainerError as error:
        return _refused(node, pod, state, "CreateContainerError", error.message)
    previous = state.id
    state.image, state.image_id = normalised(spec["image"]), record.image_id
    event(node, pod, "Normal", "Created", "Container created", container=state)
    state.id, state.container_id = request.id, f"{node.runtime.name}://{request.id}"
    state.restart_count = restart
    try:
        await node.runtime.start(request.id)
    except ContainerError as error:
        now = node.clock.now()
        state.end(Terminated(START_ERROR_CODE, "StartError", state.container_id, None, now, error.message))
        event(node, pod, "Warning", "Failed", f"Error: {error.message}", container=state)
        await node.runtime.delete(request.id)
        return False
    finally:
        if previous:
            await node.runtime.delete(previous)
            log_path(node.logs, pod, spec["name"], restart - 2).unlink(missing_ok=True)
    state.run(node.clock.now())
    event(node, pod, "Normal", "Started", "Container started", container=state)
    return True


def ended(node: Node, pod: Pod, spec: Spec, state: ContainerState, exit: Exit, *, live: bool = True) -> None:
    """Take the end of a run into the state, with its termination message."""
    if not exit.known:
        reason, message = "ContainerStatusUnknown", "The container could not be located when the pod was terminated"
    else:
        reason = "OOMKilled" if exit.oom_killed else "Completed" if exit.code == 0 else "Error"
        message = termination_message(node, pod, spec, state, exit.code)
    finished = node.clock.now() if live else exit.finished_at
    state.end(Terminated(exit.code, reason, state.container_id, state.started_at, finished, message))


def termination_message(node: Node, pod: Pod, spec: Spec, state: ContainerState, code: int) -> str:
    """What the container left in its termination log, or the end of its log if it is to be taken instead."""
    try:
        text = _termination_file(node, pod, spec["name"]).read_bytes()[:_MESSAGE_LIMIT].decode(errors="replace")
    except OSError:
        text = ""
    if not text and code != 0 and spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        try:
            lines = log_path(node.logs, pod, spec["name"], state.restart_count).read_bytes()[-16384:].splitlines()
        except OSError:
            return ""
        parts = [line.split(b" ", 3)[-1].decode(errors="replace") for line in lines[-80:]]
        text = "\n".join(parts)[-2048:]
        text = text + "\n" if text else ""
    return text


async def _request(
    node: Node, pod: Pod, spec: Spec, restart: int, *, volumes: PodVolumes, downward: Downward
) -> ContainerRequest:
    handouts = node.devices.handouts(pod, spec)
    env = {**handouts.env, **await environment(spec, node.sources, downward)}

    def expanded(text: str) -> str:
        return expand(text, env)

    metadata = pod["metadata"]
    name = spec["name"]
    hostname = pod["spec"].get("hostname") or metadata["name"]
    context = dict(pod["spec"].get("securityContext") or {}) | dict(spec.get("securityContext") or {})
    capabilities = context.get("capabilities") or {}
    if context.get("runAsNonRoot") and context.get("runAsUser") == 0:
        raise ConfigError(
            f'container\'s runAsUser breaks non-root policy (pod: "{podspec.described(pod)}", container: {name})'
        )
    mounts = volumes.mounts(spec, expanded) + _own_mounts(node, pod, spec, hostname)
    mounts += [Mount(Path(host), container, read_only=only) for host, container, only in handouts.mounts]
    return ContainerRequest(
        id=_container_id(node, podspec.uid(pod), name),
        name=name,
        image=spec["image"],
        log=log_path(node.logs, pod, name, restart),
        command=[expanded(word) for word in spec.get("command") or ()],
        args=[expanded(word) for word in spec.get("args") or ()],
        env=env,
        working_dir=spec.get("workingDir") or "",
        mounts=mounts,
        cdi_devices=(*node.claims.cdi_devices(pod, spec), *handouts.cdi_devices),
        cdi_dirs=node.cdi_dirs,
        nodes=handouts.nodes,
        hostname=hostname[:63],
        user=User(
            context.get("runAsUser"),
            context.get("runAsGroup"),
            tuple(context.get("supplementalGroups") or ()) + ((context["fsGroup"],) if "fsGroup" in context else ()),
        ),
        limits=_limits(spec),
        privileged=bool(context.get("privileged")),
        read_only_root=bool(context.get("readOnlyRootFilesystem")),
        capabilities_add=capabilities.get("add") or (),
        capabilities_drop=capabilities.get("drop") or (),
        no_new_privileges=context.get("allowPrivilegeEscalation") is False,
        stdin=bool(spec.get("stdin")),
        stdin_once=bool(spec.get("stdinOnce")),
        tty=bool(spec.get("tty")),
        pod_labels=metadata.get("labels") or {},
        pod_annotations=metadata.get("annotations") or {},
        annotations={
            **handouts.annotations,
            NODE_NAME: node.name,
            POD_UID: metadata["uid"],
            POD_NAME: metadata["name"],
            POD_NAMESPACE: metadata["namespace"],
            CONTAINER_NAME: name,
            RESTART_COUNT: str(restart),
        },
    )


def _container_id(node: Node, pod: str, container: str) -> str:
    """64 hexadecimal digits, as containerd makes them."""
    return "".join(node.chance.uid("container", pod, container).replace("-", "") for _ in range(2))


def _own_mounts(node: Node, pod: Pod, spec: Spec, hostname: str) -> list[Mount]:
    """What the kubelet itself mounts: /etc/hosts and the termination log."""
    directory = node.root / "pods" / podspec.uid(pod)
    taken = {mount["mountPath"] for mount in spec.get("volumeMounts") or ()}
    found = []
    if "/etc/hosts" not in taken:
        hosts = directory / "etc-hosts"
        if not hosts.exists():
            hosts.parent.mkdir(parents=True, exist_ok=True)
            hosts.write_text(
                f"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
                f"127.0.0.1\t{hostname}\n"
            )
        found.append(Mount(hosts, "/etc/hosts"))
    path = spec.get("terminationMessagePath") or _TERMINATION_LOG
    if path not in taken:
        file = _termination_file(node, pod, spec["name"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        file.chmod(0o666)
        found.append(Mount(file, path))
    return found


def _termination_file(node: Node, pod: Pod, container: str) -> Path:
    name = _NOT_IN_FILE_NAME.sub("_", container)
    return node.root / "pods" / podspec.uid(pod) / "containers" / name / "termination-log"


def _limits(spec: Spec) -> Limits:
    limits = (spec.get("resources") or {}).get("limits") or {}
    cpu, memory = limits.get("cpu"), limits.get("memory")
    return Limits(
        Quantity.parse(cpu).milli_value() if cpu else None,
        Quantity.parse(memory).value() if memory else None,
    )


def _refused(node: Node, pod: Pod, state: ContainerState, reason: str, message: str) -> bool:
    state.wait(reason, message)
    state.backed_off = True
    event(node, pod, "Warning", "Failed", f"Error: {message}", container=state)
    return False
