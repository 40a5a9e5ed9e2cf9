"""A real Kubernetes on this machine, started and ended as one thing: etcd to kubelet, each a process with a log.

    with RealCluster(build()) as cluster:
        subprocess.run(["kubectl", "get", "nodes"], env=cluster.environment)

Starting takes some ten seconds. A program that ends or does not get ready is told with the end of its log. Ending goes
the other way round and by pid; containers, mounts and network links that a killed kubelet would leave are removed.
Needs root, runc, a static busybox and the CNI plugins.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from tools.realkube import images
from tools.realkube.certificates import Authority
from tools.realkube.parts import CNI_PLUGINS, PARTS, Layout, Part, environment, write_configuration

_START_LIMIT = 240.0
_END_LIMIT = 10.0
_LOOK_AGAIN = 0.05
_TAIL = 25

_USERS = {
    "admin": ("kubernetes-admin", ("system:masters",)),
    "controllers": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
}


class RealClusterError(RuntimeError):
    """A program of the cluster failed; the message ends with its log."""


def prerequisites() -> str:
    """What this machine lacks to run a real cluster, in one sentence; empty if nothing."""
    if os.name != "posix" or os.geteuid() != 0:
        return "a real Kubernetes needs root on Linux"
    if shutil.which("runc") is None:
        return "a real Kubernetes needs runc (Debian: apt-get install runc)"
    if not images.BUSYBOX.exists():
        return "a real Kubernetes needs a static busybox (Debian: apt-get install busybox-static)"
    if not (CNI_PLUGINS / "ptp").exists():
        return "a real Kubernetes needs CNI plugins (Debian: apt-get install containernetworking-plugins)"
    return ""


class RealCluster:
    """One cluster with one node; a context manager.

    Args:
        binaries: the folder that `tools.realkube.build.build` returns.
        node: the node's name.
        only: start these parts only (a driver's socket needs no kubelet); all by default.
        arguments: more arguments by part.
    """

    def __init__(
        self,
        binaries: Path,
        node: str = "gpu-node",
        *,
        only: tuple[str, ...] = (),
        arguments: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        self._arguments = arguments
        self.layout = Layout.make(Path(tempfile.mkdtemp(prefix="rk-")), binaries, node)  # short: sockets lie in it
        self.node = node
        self._parts = {part.name: part for part in PARTS if not only or part.name in only}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._authority = Authority(self.layout.certificates)
        self._tls = ssl._create_unverified_context()  # health endpoints of our own children

    # --- what one does with it --------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig("admin")

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which kubectl and drakkar talk to this cluster."""
        return environment(self.layout) | {"KUBECONFIG": str(self.kubeconfig)}

    def kubeconfig_for(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig of any user, told by a certificate."""
        path = self.layout.folder / f"user-{abs(hash((user, groups)))}.kubeconfig"
        return path if path.exists() else self._authority.kubeconfig(path, self.layout.server, user, groups)

    def pid(self, part: str) -> int:
        """The process of one part."""
        return self._running[part].pid

    def pids(self) -> dict[str, int]:
        """The process of every part that runs, by its name."""
        return {name: process.pid for name, process in self._running.items()}

    def start(self, name: str) -> None:
        """Starts one part and waits until it is ready. Raises `RealClusterError` with the end of its log."""
        part = self._parts[name]
        with self.layout.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [self.layout.binaries / name, *part.arguments(self.layout), *self._arguments.get(name, ())],
                env=environment(self.layout),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.layout.folder,
            )
        self._await(part)

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """Ends one part by signal and waits for it; SIGKILL after ten seconds."""
        process = self._running.pop(name, None)
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(_END_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, name: str, number: int = signal.SIGTERM) -> None:
        """Ends one part and starts it again."""
        self.end(name, number)
        self.start(name)

    def tail(self, name: str, lines: int = _TAIL) -> str:
        """The last lines of a log."""
        path = self.layout.log(name)
        text = path.read_text(errors="replace") if path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def crictl(self, *words: str, check: bool = True) -> str:
        """Runs crictl against this cluster's containerd; returns what it prints."""
        endpoint = f"unix://{self.layout.runtime_socket}"
        command = [str(self.layout.binaries / "crictl"), "--runtime-endpoint", endpoint, "--image-endpoint", endpoint]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise RealClusterError(f"crictl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    # --- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _begin(self) -> None:
        at = self.layout
        write_configuration(at)
        _mount_in_memory(at.cdi)  # /run of a node is a tmpfs, too
        self._authority.issue("server", "kube-apiserver", hosts=("127.0.0.1", "localhost", "kubernetes", "10.97.0.1"))
        self._authority.issue("api-to-kubelet", "kube-apiserver-kubelet-client", ("system:masters",))
        self._authority.service_account_key()
        for name, (user, groups) in _USERS.items():
            self._authority.kubeconfig(at.kubeconfig(name), at.server, user, groups)
        node = f"system:node:{at.node}"
        self._authority.kubeconfig(at.kubeconfig("kubelet"), at.server, node, ("system:nodes",))
        waiting = []
        if "containerd" in self._parts:
            waiting.append(_in_parallel(self._begin_runtime))
        for name in self._parts:
            if name != "containerd":
                if name == "kubelet":
                    for join in waiting:
                        join()
                self.start(name)
        for join in waiting:
            join()

    def _begin_runtime(self) -> None:
        self.start("containerd")
        for archive in images.write_images(self.layout.folder):
            command = [self.layout.binaries / "ctr", f"--address={self.layout.runtime_socket}", "--namespace=k8s.io"]
            done = subprocess.run(
                [*command, "images", "import", archive], capture_output=True, text=True, timeout=60, check=False
            )
            if done.returncode:
                raise RealClusterError(
                    f"cannot import {archive.name}: {done.stderr.strip()}\n{self.tail('containerd')}"
                )

    def _await(self, part: Part) -> None:
        target = part.ready(self.layout)
        end = time.monotonic() + _START_LIMIT
        process = self._running[part.name]
        while not self._answers(target):
            if process.poll() is not None:
                raise RealClusterError(f"{part.name} ended with {process.returncode}:\n{self.tail(part.name)}")
            if time.monotonic() > end:
                raise RealClusterError(f"{part.name} is not ready after {_START_LIMIT:.0f} s:\n{self.tail(part.name)}")
            time.sleep(_LOOK_AGAIN)

    def _answers(self, target: str) -> bool:
        if not target.startswith("http"):
            return Path(target).exists()
        try:
            with urllib.request.urlopen(target, timeout=2, context=self._tls) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _end(self) -> None:
        if "containerd" in self._running:
            self.end("kubelet")  # else it would start again what is being removed
            with contextlib.suppress(Exception):
                for sandbox in self.crictl("pods", "--quiet").split():
                    self.crictl("rmp", "--force", sandbox, check=False)
        for name in reversed(list(self._running)):
            self.end(name)
        _end_shims(self.layout)
        _unmount_below(self.layout.folder)
        shutil.rmtree(self.layout.folder, ignore_errors=True)


def _in_parallel(work: Callable[[], None]) -> Callable[[], None]:
    """Runs `work` on a thread; the function returned waits for it and raises what it raised."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> None:
        thread.join()
        if failure:
            raise failure[0]

    return join


def _end_shims(at: Layout) -> None:
    """containerd leaves its shims running by design; those of this cluster name its socket."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                if "containerd-shim" in line and f"{at.runtime_socket}" in line:
                    os.kill(int(entry.name), signal.SIGKILL)


def _mount_in_memory(folder: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "mode=755,size=64m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RealClusterError(f"cannot mount a tmpfs on {folder}: {done.stderr.strip()}")


def _unmount_below(folder: Path) -> None:
    with contextlib.suppress(OSError):
        points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for point in reversed(points):
            if point.startswith(f"{folder}/"):
                subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
