"""The six programs of a real cluster on one machine: how each is called, and when it is ready.

Everything listens on loopback on free ports, lies below one folder, and needs neither systemd nor a registry. The
kubelet takes a cgroup v1 host, too, since that is what many build machines are; disk and memory pressure are switched
off, since a full build machine is no reason to evict a test's pod.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.realkube import images

CNI_PLUGINS = Path("/usr/lib/cni")
SERVICE_RANGE = "10.97.0.0/24"
_PODS = "10.213.{}.0/24"

#: Plugins of containerd that nothing here uses.
_WITHOUT = (
    *(f"snapshotter.v1.{name}" for name in ("btrfs", "zfs", "devmapper", "blockfile", "erofs")),
    "nri.v1.nri",
    "tracing.processor.v1.otlp",
    "internal.v1.tracing",
)

#: What the kubelet would evict pods for.
_PRESSURES = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one cluster keeps what, and which ports it has."""

    folder: Path
    binaries: Path
    node: str
    ports: Mapping[str, int]

    @classmethod
    def make(cls, folder: Path, binaries: Path, node: str) -> Layout:
        """A layout in an empty folder, with ports that are free now."""
        names = ("etcd", "peer", "api", "controllers", "scheduler", "kubelet", "health")
        return cls(folder, binaries, node, dict(zip(names, free_ports(len(names)), strict=True)))

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def kubelet_root(self) -> Path:
        return self.folder / "kubelet"

    @property
    def plugins(self) -> Path:
        return self.kubelet_root / "plugins"

    @property
    def registry(self) -> Path:
        return self.kubelet_root / "plugins_registry"

    @property
    def cdi(self) -> Path:
        return self.folder / "cdi"

    @property
    def pod_logs(self) -> Path:
        return self.folder / "pod-logs"

    @property
    def runtime_socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def certificates(self) -> Path:
        return self.folder / "pki"

    def log(self, part: str) -> Path:
        """The log of one program."""
        return self.folder / f"{part}.log"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of the cluster's own users (admin, controllers, scheduler, kubelet)."""
        return self.folder / f"{user}.kubeconfig"


@dataclass(frozen=True, slots=True)
class Part:
    """One program: its command below `binaries`, and a URL (or a file) that says that it is ready."""

    name: str
    arguments: Callable[[Layout], list[str]]
    ready: Callable[[Layout], str]
    environment: Mapping[str, str] = field(default_factory=dict)


def _etcd(at: Layout) -> list[str]:
    client, peer = f"http://127.0.0.1:{at.ports['etcd']}", f"http://127.0.0.1:{at.ports['peer']}"
    return [
        f"--data-dir={at.folder}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(at: Layout) -> list[str]:
    pki = at.certificates
    return [
        f"--etcd-servers=http://127.0.0.1:{at.ports['etcd']}",
        f"--secure-port={at.ports['api']}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki}/server.crt",
        f"--tls-private-key-file={pki}/server.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/api-to-kubelet.crt",
        f"--kubelet-client-key={pki}/api-to-kubelet.key",
        f"--service-account-key-file={pki}/service-accounts.key",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--profiling=false",
    ]


def _controllers(at: Layout) -> list[str]:
    return [
        f"--kubeconfig={at.kubeconfig('controllers')}",
        f"--secure-port={at.ports['controllers']}",
        "--bind-address=127.0.0.1",
        f"--authentication-kubeconfig={at.kubeconfig('controllers')}",
        f"--authorization-kubeconfig={at.kubeconfig('controllers')}",
        "--leader-elect=false",
        f"--service-account-private-key-file={at.certificates}/service-accounts.key",
        f"--root-ca-file={at.certificates}/ca.crt",
        "--use-service-account-credentials",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def _scheduler(at: Layout) -> list[str]:
    return [
        f"--kubeconfig={at.kubeconfig('scheduler')}",
        f"--secure-port={at.ports['scheduler']}",
        "--bind-address=127.0.0.1",
        f"--authentication-kubeconfig={at.kubeconfig('scheduler')}",
        f"--authorization-kubeconfig={at.kubeconfig('scheduler')}",
        "--leader-elect=false",
    ]


def _containerd(at: Layout) -> list[str]:
    return [f"--config={at.folder}/containerd.toml", "--log-level=info"]


def _kubelet(at: Layout) -> list[str]:
    return [
        f"--config={at.folder}/kubelet.yaml",
        f"--kubeconfig={at.kubeconfig('kubelet')}",
        f"--hostname-override={at.node}",
        f"--root-dir={at.kubelet_root}",
        f"--cert-dir={at.folder}/kubelet-pki",
        "--v=2",
    ]


#: In the order in which they start; they end the other way round.
PARTS = (
    Part("etcd", _etcd, lambda at: f"http://127.0.0.1:{at.ports['etcd']}/readyz"),
    Part("containerd", _containerd, lambda at: str(at.runtime_socket)),
    Part("kube-apiserver", _api_server, lambda at: f"{at.server}/readyz"),
    Part(
        "kube-controller-manager",
        _controllers,
        lambda at: f"https://127.0.0.1:{at.ports['controllers']}/healthz",
    ),
    Part("kube-scheduler", _scheduler, lambda at: f"https://127.0.0.1:{at.ports['scheduler']}/readyz"),
    Part("kubelet", _kubelet, lambda at: f"http://127.0.0.1:{at.ports['health']}/healthz"),
)


def write_configuration(at: Layout) -> None:
    """The files that containerd, CNI and the kubelet read, and the folders they expect."""
    for folder in (at.cdi, at.plugins, at.registry, at.pod_logs, at.folder / "cni"):
        folder.mkdir(parents=True, exist_ok=True)
    (at.folder / "containerd.toml").write_text(_containerd_config(at))
    network = {
        "cniVersion": "1.0.0",
        "name": "realkube",
        "plugins": [{"type": "ptp", "ipam": _addresses(at)}],
    }
    (at.folder / "cni" / "10-realkube.conflist").write_text(json.dumps(network))
    resolve = at.folder / "resolv.conf"
    resolve.write_text("nameserver 127.0.0.1\n")
    (at.folder / "kubelet.yaml").write_text(json.dumps(_kubelet_config(at, resolve), indent=1))


def _addresses(at: Layout) -> dict[str, object]:
    subnet = _PODS.format(at.ports["kubelet"] % 250)
    return {"type": "host-local", "dataDir": str(at.folder / "addresses"), "ranges": [[{"subnet": subnet}]]}


def _containerd_config(at: Layout) -> str:
    return f"""version = 3
root = "{at.folder}/containerd"
state = "{at.folder}/containerd-state"
disabled_plugins = [{", ".join(f'"io.containerd.{name}"' for name in _WITHOUT)}]
[grpc]
  address = "{at.runtime_socket}"
[ttrpc]
  address = "{at.runtime_socket}.ttrpc"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["{at.cdi}"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{at.folder}/cni"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PAUSE}"
"""


def _kubelet_config(at: Layout, resolve: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": at.ports["kubelet"],
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": at.ports["health"],
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(at.certificates / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{at.runtime_socket}",
        "podLogsDir": str(at.pod_logs),
        "resolvConf": str(resolve),
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": dict.fromkeys(_PRESSURES, "0%"),
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        "clusterDomain": "cluster.local",
        "maxPods": 110,
    }


def environment(at: Layout) -> dict[str, str]:
    """The environment of every program: the shim and runc are found by PATH."""
    return os.environ | {"PATH": f"{at.binaries}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"}


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody has now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
