"""Whether the nodes are ready: labels, taints, CDI in the runtime, the root of the NVIDIA driver, other allocators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from drakkar.evidence.captures import NodeCapture
from drakkar.evidence.snapshot import name_of, namespace_of
from drakkar.migration.context import release
from drakkar.migration.preflight.facts import ClusterFacts
from drakkar.migration.preflight.plan import NVIDIA, OURS, Plan
from drakkar.migration.preflight.results import FAILED, OK, UNKNOWN, WARNING, Result
from drakkar.scheduling.node_affinity import NodeAffinity
from drakkar.scheduling.taints import untolerated

Object = dict[str, Any]

DRIVER: Final = "gpu.nvidia.com"

_GPU_LABELS: Final = (
    "nvidia.com/gpu.present",
    "nvidia.com/gpu.product",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
_OPERATOR_ROOT: Final = "/run/nvidia/driver"

#: Runtimes by the scheme of their version: since when they can do CDI, since when it is on without configuration.
_RUNTIMES: Final[Mapping[str, tuple[tuple[int, int], tuple[int, int]]]] = {
    "containerd": ((1, 7), (2, 0)),
    "cri-o": ((1, 23), (1, 23)),
    "runc": ((1, 0), (1, 0)),  # the embedded cluster's kubelet edits the OCI bundle itself
}


def labels(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """Nodes that have GPUs, and on which of them the DaemonSet would run."""
    pod = plan.daemon_pod()
    affinity = NodeAffinity.parse(pod["spec"])
    everywhere = affinity.empty
    runs, with_gpus = 0, 0
    for node in facts.snapshot.all("Node"):
        node_labels = (node.get("metadata") or {}).get("labels") or {}
        matches = everywhere or affinity.matches(name_of(node), node_labels)
        has_gpus = any(node_labels.get(label, "false") not in ("", "false") for label in _GPU_LABELS)
        with_gpus += has_gpus
        if not matches:
            if has_gpus:
                yield Result(
                    "node-labels",
                    WARNING,
                    f"Node/{name_of(node)}",
                    f"{name_of(node)} has GPUs, but not the labels that the DaemonSet asks for",
                    "extend affinity or nodeSelector in the values, or label the node",
                )
            continue
        stopping = untolerated((node.get("spec") or {}).get("taints") or [], pod["spec"].get("tolerations") or [])
        if stopping is not None:
            yield Result(
                "node-labels",
                WARNING,
                f"Node/{name_of(node)}",
                f"{name_of(node)} has the taint {_taint(stopping)}, which the DaemonSet does not tolerate",
                "add a toleration to the values",
            )
            continue
        runs += 1
    if runs:
        yield Result("node-labels", OK, "nodes", f"the DaemonSet would run on {runs} of {_nodes(facts)} nodes")
    elif facts.snapshot.why_unread("nodes"):
        yield Result("node-labels", UNKNOWN, "nodes", f"nodes: {facts.snapshot.why_unread('nodes')}")
    else:
        yield Result(
            "node-labels",
            FAILED,
            "nodes",
            "the DaemonSet would run on no node" + ("" if with_gpus else ": no node is labelled as having NVIDIA GPUs"),
            "install node feature discovery, or label the nodes: kubectl label node NAME nvidia.com/gpu.present=true",
        )


def runtime(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """Whether each node's container runtime injects CDI devices, and reads the folder where they are written."""
    seen: dict[str, list[str]] = {}
    for node in _gpu_nodes(facts, plan):
        name = name_of(node)
        text = ((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion", "")
        capture = facts.snapshot.nodes.get(name)
        problem = _captured_problem(capture, plan.cdi_dir) if capture is not None else None
        if problem is not None:
            yield Result("runtime-cdi", FAILED, f"Node/{name}", f"{name}: {problem[0]}", problem[1])
            continue
        verdict = _by_version(text)
        if verdict is None or (verdict[0] != FAILED and capture is not None and capture.has("containerd.toml")):
            seen.setdefault(text, []).append(name)
        else:
            yield Result("runtime-cdi", verdict[0], f"Node/{name}", f"{name}: {verdict[1]}", verdict[2])
    for text, names in seen.items():
        yield Result("runtime-cdi", OK, text, f"{text} injects CDI devices on {', '.join(names)}")


def driver_root(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """Whether the NVIDIA driver is where the values say: on the host, or in the operator's driver container."""
    if plan.get("node", "simulatedMachine"):
        yield Result("driver-root", OK, "node.simulatedMachine", "the machine is simulated, no driver is needed")
        return
    value = "node.driverRoot" if plan.chart == OURS else "nvidiaDriverRoot"
    contained = {
        (pod.get("spec") or {}).get("nodeName", "")
        for pod in facts.snapshot.all("Pod")
        if "nvidia-driver-daemonset" in name_of(pod) and (pod.get("status") or {}).get("phase") == "Running"
    }
    root, wrong = plan.driver_root, False
    for node in _gpu_nodes(facts, plan):
        name = name_of(node)
        if name in contained and root != _OPERATOR_ROOT:
            wrong = True
            yield Result(
                "driver-root",
                FAILED,
                f"Node/{name}",
                f"on {name} the GPU Operator runs the driver in a container, but {value} is {root}",
                f"set {value} to {_OPERATOR_ROOT}",
            )
        elif contained and name not in contained and root == _OPERATOR_ROOT:
            wrong = True
            yield Result(
                "driver-root", WARNING, f"Node/{name}", f"no driver container of the GPU Operator runs on {name}"
            )
    if root == _OPERATOR_ROOT and not contained and not facts.snapshot.why_unread("pods"):
        wrong = True
        message = f"{value} is {root}, but no driver container of the GPU Operator runs in the cluster"
        yield Result("driver-root", FAILED, value, message, f"set {value} to /, or install the operator first")
    if not wrong:
        yield Result("driver-root", OK, value, f"the driver is expected at {root}; nothing speaks against it")


def other_allocators(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """A device plugin that offers GPUs of the same nodes: two allocators would hand one GPU out twice (KEP-5004)."""
    found = False
    plugins = [
        pod
        for pod in facts.snapshot.all("Pod")
        if re.search(r"nvidia-device-plugin|k8s-device-plugin", _images(pod) + " " + name_of(pod))
        and (pod.get("status") or {}).get("phase") in ("Running", "Pending")
    ]
    by_node = {(pod.get("spec") or {}).get("nodeName", ""): pod for pod in plugins}
    for node in _gpu_nodes(facts, plan):
        name = name_of(node)
        offered = (node.get("status") or {}).get("allocatable") or {}
        counts = {
            key: value
            for key, value in offered.items()
            if re.match(r"nvidia\.com/(gpu|mig-)", key) and str(value) not in ("0", "")
        }
        if counts or name in by_node:
            found = True
            pod = by_node.get(name)
            who = f", from pod {namespace_of(pod)}/{name_of(pod)}" if pod is not None else ""
            what = ", ".join(f"{key}: {value}" for key, value in counts.items()) or "a device plugin"
            yield Result(
                "other-allocator",
                FAILED if counts else WARNING,
                f"Node/{name}",
                f"{name} offers {what} beside the claims{who}: two allocators would hand out the same GPUs",
                "keep the device plugin off these nodes (label nvidia.com/gpu.deploy.device-plugin=false), drain them",
            )
    if not found:
        yield Result("other-allocator", OK, "nodes", "no device plugin offers the GPUs of these nodes")


def other_drivers(facts: ClusterFacts, plan: Plan) -> Iterator[Result]:
    """Another driver that serves gpu.nvidia.com already: a node can have one plugin of a name."""
    others = sorted(
        {
            f"{namespace_of(pod)}/{name_of(pod)}": (pod.get("spec") or {}).get("nodeName", "")
            for pod in facts.snapshot.all("Pod")
            if (pod.get("status") or {}).get("phase") == "Running" and _is_other_driver(pod, plan)
        }.items()
    )
    held = sum(
        any(result.get("driver") == DRIVER for result in _results(claim))
        for claim in facts.snapshot.all("ResourceClaim")
    )
    for pod, node in others:
        yield Result(
            "other-driver",
            FAILED,
            f"Pod/{pod}",
            f"{pod} serves {DRIVER} on {node} already; {held} claims are allocated",
            "remove that driver first (drakkar preflight uninstall), or take over node by node with --adopt",
        )
    if not others:
        yield Result("other-driver", OK, DRIVER, f"no other driver serves {DRIVER}")


def _is_other_driver(pod: Object, plan: Plan) -> bool:
    images = _images(pod)
    if plan.chart == OURS:
        return "dra-driver-nvidia-gpu" in images or "k8s-dra-driver-gpu" in images
    spec = pod.get("spec") or {}
    arguments = [word for one in spec.get("containers") or () for word in one.get("args") or ()]
    return plan.chart == NVIDIA and arguments[:2] == ["driver", "gpu"]


def _gpu_nodes(facts: ClusterFacts, plan: Plan) -> list[Object]:
    affinity = NodeAffinity.parse(plan.daemon_pod()["spec"])
    return [
        node
        for node in facts.snapshot.all("Node")
        if affinity.empty or affinity.matches(name_of(node), node["metadata"].get("labels") or {})
    ]


def _captured_problem(capture: NodeCapture, cdi_dir: str) -> tuple[str, str] | None:
    config = capture.containerd
    if config is None:
        return None
    plugins = config.get("plugins") or {}
    names = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
    section: Object = next((plugins[name] for name in names if isinstance(plugins.get(name), dict)), {})
    if section.get("enable_cdi") is False:
        return "containerd's enable_cdi is false", "set enable_cdi = true in containerd's configuration and restart it"
    folders = section.get("cdi_spec_dirs")
    if isinstance(folders, list) and folders and not any(_same_folder(str(one), cdi_dir) for one in folders):
        listed = ", ".join(map(str, folders))
        return (
            f"containerd reads CDI files from {listed}, the driver writes them to {cdi_dir}",
            f"add {cdi_dir} to cdi_spec_dirs, or set node.cdiDir to one of them",
        )
    return None


def _same_folder(one: str, other: str) -> bool:
    """/var/run is a link to /run on every system that has both."""
    return _run(one) == _run(other)


def _run(path: str) -> str:
    return re.sub(r"^/var/run(/|$)", r"/run\1", path.rstrip("/"))


def _by_version(text: str) -> tuple[str, str, str] | None:
    """Status, message and next step by the version alone; None if that runtime injects CDI as it is."""
    name, _, version = text.partition("://")
    numbers = release(version)[:2]
    if name == "docker":
        return FAILED, "Docker through cri-dockerd does not inject CDI devices", "use containerd 2 or CRI-O"
    if name not in _RUNTIMES or len(numbers) < 2:
        return UNKNOWN, f"whether {text or 'the runtime'} injects CDI devices is not known", ""
    able, on = _RUNTIMES[name]
    if numbers < able:
        return FAILED, f"{text} cannot inject CDI devices", f"upgrade to {name} {on[0]}.{on[1]} or newer"
    if numbers < on:
        return WARNING, f"{text} injects CDI devices only with enable_cdi = true", "check containerd's configuration"
    return None


def _images(pod: Object) -> str:
    spec = pod.get("spec") or {}
    return " ".join(str(one.get("image", "")) for one in spec.get("containers") or ())


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _taint(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _nodes(facts: ClusterFacts) -> int:
    return len(facts.snapshot.all("Node"))
