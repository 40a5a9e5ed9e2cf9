"""The hook that runs the host's ``ldconfig`` over the container's libraries.

``ldconfig`` reads and writes an untrusted tree as root. It gets: a mount table of its own without any procfs below the
root (``/proc/1/root`` would lead out of every chroot), the container's root as its own, four capabilities, a fixed
environment, no open files, and two minutes. The host's program is executed, never one of the container. It writes to
``NAME~`` without looking what that is (a hard link, say), so its two files get fresh folders: the cache one in the
root, from which it is then put into place, the auxiliary cache an empty file system over its usual one.
"""

from __future__ import annotations

import os
import stat

from . import kernel
from .errors import HookError
from .root import ContainerRoot
from .state import ContainerState

TYPE_CHECKING = False  # typing itself would take a third of the time that a hook may need
if TYPE_CHECKING:
    from typing import Final, NoReturn

__all__ = ["update_ldcache"]

_CACHE: Final = "ld.so.cache"
_AUXILIARY: Final = "/var/cache/ldconfig"
_SECONDS: Final = 120
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_CAPABILITIES: Final = frozenset({1, 2, 3, 18})  # DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SYS_CHROOT
_CANDIDATES: Final = ("/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig")  # Ubuntu's is behind a script


def update_ldcache(state: ContainerState, folders: list[str], program: str) -> None:
    """Adds ``folders`` to the container's library path, makes soname links and renews its loader cache.

    An image without ``/etc/ld.so.cache`` (another C library) keeps none; it still gets the links.

    Args:
        state: the container.
        folders: directories of the container.
        program: the host's ldconfig; "" for the usual places.
    """
    for folder in folders:
        if not folder.startswith("/") or "\n" in folder:
            raise HookError(f"--folder {folder!r} is not an absolute path")
    ldconfig = program.removeprefix("@") or next((path for path in _CANDIDATES if os.access(path, os.X_OK)), "")
    if not ldconfig:
        raise HookError(f"the host has no ldconfig: {', '.join(_CANDIDATES)}")
    root = state.root()
    cached = root.kind("/etc/ld.so.cache") is not None
    if folders:
        text = "".join(f"{folder}\n" for folder in dict.fromkeys(folders)).encode()
        root.write(f"/etc/ld.so.conf.d/00-drakkar-{_digest(text):010x}.conf", text, 0o644)
    present = [folder for folder in dict.fromkeys(folders) if root.kind(folder) == stat.S_IFDIR]
    base = [ldconfig, "-r", f"/proc/self/fd/{root.fileno()}", "-f", "/etc/ld.so.conf"]
    if not cached:
        _run([*base, "-N", *present], root, state.root_path())
        return
    scratch = f".drakkar-{os.urandom(8).hex()}"
    os.mkdir(scratch, 0o700, dir_fd=root.fileno())
    fresh = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root.fileno())
    try:
        _run([*base, "-C", f"/{scratch}/{_CACHE}", *present], root, state.root_path())
        with os.fdopen(os.open(_CACHE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fresh), "rb") as file:
            root.write(f"/etc/{_CACHE}", file.read(), 0o644)
    finally:
        for name in os.listdir(fresh):
            os.unlink(name, dir_fd=fresh)
        os.rmdir(scratch, dir_fd=root.fileno())


def _digest(data: bytes) -> int:
    """A name for the file that two calls with the same folders share: 40 bits of FNV-1a."""
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % 2**64
    return value >> 24


def _run(arguments: list[str], root: ContainerRoot, path: str) -> None:
    child = os.fork()
    if child == 0:
        _confine_and_execute(arguments, root, os.path.realpath(path))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        why = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
        raise HookError(f"{arguments[0]} {why}")


def _confine_and_execute(arguments: list[str], root: ContainerRoot, path: str) -> NoReturn:
    import signal

    try:
        kernel.own_mounts()
        for point in _procfs_below(path):
            kernel.unmount(point)
        auxiliary = root.look(_AUXILIARY)
        if auxiliary is not None:
            kernel.mount("tmpfs", f"/proc/self/fd/{auxiliary}", "tmpfs", 0, "mode=0700")
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.set_inheritable(root.fileno(), True)
        os.chdir("/")
        os.umask(0o022)
        signal.alarm(_SECONDS)
        kernel.drop_capabilities(_CAPABILITIES)
        os.execve(arguments[0], arguments, _ENVIRONMENT)  # noqa: S606 - the host's own program
    except (OSError, HookError) as error:
        os.write(2, f"cannot run {arguments[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _procfs_below(path: str) -> list[str]:
    """Mount points of procfs below ``path``, the innermost first."""
    found = []
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            fields = line.split(b" ")
            kind = fields[fields.index(b"-") + 1]
            point = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))
            if kind == b"proc" and point.startswith(f"{path}/"):
                found.append(point)
    return sorted(found, key=len, reverse=True)
