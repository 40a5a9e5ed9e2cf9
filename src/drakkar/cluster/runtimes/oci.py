"""From a container request to an OCI `config.json`, as a pure function.

Nothing here touches devices: the file that leaves this module denies every device, and whatever a container gets of
the hardware comes from CDI edits applied afterwards, so an injection that did not happen shows as a device that is
not there. The default capabilities and masked paths are those that containerd and CRI-O give a Kubernetes container.
Pods share the host's network name space here: their addresses are addresses of the loopback network.

OCI runtime specification 1.0.2 and later (runc 1.1 reads it).
"""

from __future__ import annotations

from typing import Any, Final

from drakkar.cluster.runtimes.images import Image
from drakkar.cluster.runtimes.runtime import ContainerRequest, Limits

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CAPABILITIES: Final = tuple(
    name
    for line in (
        "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE",
        "SYS_CHROOT KILL AUDIT_WRITE",
    )
    for name in line.split()
)
ALL_CAPABILITIES: Final = CAPABILITIES + tuple(
    name
    for line in (
        "AUDIT_CONTROL AUDIT_READ BLOCK_SUSPEND BPF CHECKPOINT_RESTORE DAC_READ_SEARCH IPC_LOCK IPC_OWNER LEASE",
        "LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE NET_ADMIN NET_BROADCAST PERFMON SYSLOG SYS_ADMIN SYS_BOOT",
        "SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM",
    )
    for name in line.split()
)

MASKED: Final = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
]
READ_ONLY: Final = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

_SYSTEM_MOUNTS: Final = (
    ("/proc", "proc", "proc", ["nosuid", "noexec", "nodev"]),
    ("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
    ("/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
    ("/dev/mqueue", "mqueue", "mqueue", ["nosuid", "noexec", "nodev"]),
    ("/dev/shm", "tmpfs", "shm", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),  # noqa: S108
    ("/sys", "sysfs", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
)
SYSTEM_MOUNT_TYPES: Final = frozenset(kind for _, kind, _, _ in _SYSTEM_MOUNTS)


def container_config(request: ContainerRequest, image: Image) -> dict[str, Any]:
    """The OCI configuration of one container before any CDI edit; `root.path` is `rootfs` inside the bundle."""
    # CDI may add to every list here, so each is a fresh one.
    mounts = [
        {"destination": destination, "type": kind, "source": source, "options": list(options)}
        for destination, kind, source, options in _SYSTEM_MOUNTS
    ]
    mounts += [_bind(mount.host_path, mount.container_path, mount) for mount in request.mounts]
    linux: dict[str, Any] = {
        "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
        "resources": {"devices": [{"allow": request.privileged, "access": "rwm"}]} | _limits(request.limits),
        "devices": [],
    }
    if not request.privileged:
        linux |= {"maskedPaths": list(MASKED), "readonlyPaths": list(READ_ONLY)}
    return {
        "ociVersion": "1.0.2",
        "process": process(request, image),
        "root": {"path": "rootfs", "readonly": request.read_only_root},
        "hostname": request.hostname[:63],
        "mounts": mounts,
        "annotations": dict(request.annotations),
        "linux": linux,
    }


def process(request: ContainerRequest, image: Image) -> dict[str, Any]:
    """The `process` object: arguments, environment, user and capabilities."""
    env = {"PATH": DEFAULT_PATH, "HOSTNAME": request.hostname} | dict(image.env) | dict(request.env)
    if request.tty:
        env.setdefault("TERM", "xterm")
    uid, gid, groups = image.uid, image.gid, request.user.groups
    if request.user.uid is not None:
        uid, gid = request.user.uid, 0
    if request.user.gid is not None:
        gid = request.user.gid
    capabilities = _capabilities(request)
    return {
        "terminal": request.tty,
        "user": {"uid": uid, "gid": gid, "additionalGids": sorted(set(groups) | ({gid} if gid else set()))},
        "args": arguments(request, image),
        "env": [f"{name}={value}" for name, value in env.items()],
        "cwd": request.working_dir or image.working_dir or "/",
        "capabilities": {
            kind: list(capabilities) for kind in (("bounding", "effective", "permitted") if uid == 0 else ("bounding",))
        },
        "noNewPrivileges": request.no_new_privileges,
    }


def arguments(request: ContainerRequest, image: Image) -> list[str]:
    """Kubernetes' rule: a command replaces entrypoint and arguments of the image, arguments replace only its own."""
    if request.command:
        return [*request.command, *request.args]
    if request.args:
        return [*image.entrypoint, *request.args]
    return [*image.entrypoint, *image.command]


def exec_process(config: dict[str, Any], command: list[str], *, tty: bool) -> dict[str, Any]:
    """The `process` object of a further process in the container that `config` describes."""
    base: dict[str, Any] = config["process"]
    env = list(base["env"])
    if tty and not any(entry.startswith("TERM=") for entry in env):
        env.append("TERM=xterm")
    return base | {"terminal": tty, "args": command, "env": env}


def _bind(source: Any, destination: str, mount: Any) -> dict[str, Any]:
    access = "ro" if mount.read_only else "rw"
    return {
        "destination": destination,
        "type": "bind",
        "source": str(source),
        "options": ["rbind", mount.propagation, access],
    }


def _capabilities(request: ContainerRequest) -> list[str]:
    if request.privileged:
        names = list(ALL_CAPABILITIES)
    else:
        added = [name.upper().removeprefix("CAP_") for name in request.capabilities_add]
        dropped = {name.upper().removeprefix("CAP_") for name in request.capabilities_drop}
        base = list(ALL_CAPABILITIES) if "ALL" in added else [] if "ALL" in dropped else list(CAPABILITIES)
        names = [name for name in dict.fromkeys([*base, *added]) if name != "ALL"]
        names = [name for name in names if name not in dropped or ("ALL" in dropped and name in added)]
    return [f"CAP_{name}" for name in names]


def _limits(limits: Limits) -> dict[str, Any]:
    # CPU requests get no weight. A kubelet gives a container without a request 2 of 1024 shares, which is right on a
    # machine that belongs to pods; here it would starve containers beside everything else that runs on this machine.
    result: dict[str, Any] = {}
    if limits.cpu_limit_milli:
        result["cpu"] = {"quota": max(1000, limits.cpu_limit_milli * 100), "period": 100_000}
    if limits.memory_limit:
        result["memory"] = {"limit": limits.memory_limit}
    return result
