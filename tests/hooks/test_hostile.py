"""Hooks against a root that changes under them, and against what only a kernel shows: mounts, procfs, ldconfig."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drakkar.hooks.errors import HookError
from drakkar.hooks.root import ContainerRoot
from tests.conftest import missing
from tests.hooks.conftest import Hook
from tests.hooks.trees import build, picture

_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_AT_FDCWD = -100


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[list[int]]:
    """Exchanges two names as fast as it can until the block ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    ended, count = threading.Event(), [0]

    def swap() -> None:
        while not ended.is_set():
            assert libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0
            count[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path]:
    """A root in which `lib` is a folder and `evil` a link to a folder outside, and that folder."""
    root, outside = tmp_path / "bundle" / "rootfs", tmp_path / "outside"
    build({"victim": "precious", "sub/victim": "precious"}, outside, outside)
    build({"lib/sub": {"dir": 0o755}, "evil": {"link": str(outside)}}, root, outside)
    (root.parent / "config.json").write_text('{"root": {"path": "rootfs"}}')
    return root, outside


def test_a_folder_swapped_for_a_link_never_leads_out(world: tuple[Path, Path]) -> None:
    root, outside = world
    far = picture(outside, times=True)
    container = ContainerRoot(str(root))
    switches = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with swapping(root / "lib", root / "evil") as count:
            for number in range(400):
                try:
                    container.link("t", f"/lib/sub/link{number % 7}")
                    container.write(f"/lib/sub/../file{number % 7}", b"text", 0o644)
                    container.write("/lib/victim", b"overwritten", 0o644)
                    container.names("/lib/sub")
                except (OSError, HookError):
                    continue
    finally:
        sys.setswitchinterval(switches)
    assert count[0] > 50
    assert picture(outside, times=True) == far


def test_both_programs_survive_the_swapping(world: tuple[Path, Path], hook: Hook) -> None:
    root, outside = world
    far = picture(outside, times=True)
    links = [part for number in range(200) for part in ("--link", f"t::/lib/sub/../sub/link{number}")]
    modes = [part for number in range(200) for part in ("--path", f"/lib/sub/{'../' * (number % 3)}victim")]
    state = {"bundle": str(root.parent)}
    with swapping(root / "lib", root / "evil") as count:
        for _ in range(4):
            hook(["create-symlinks", *links], state)
            hook(["chmod", "--mode", "777", *modes], state)
    assert count[0] > 50
    assert picture(outside, times=True) == far


def test_the_working_directory_and_the_environment_do_not_matter(world: tuple[Path, Path], hook: Hook) -> None:
    root, outside = world
    hostile = {"LD_LIBRARY_PATH": str(outside), "PYTHONPATH": str(outside), "PYTHONSTARTUP": "x", "PATH": str(outside)}
    (outside / "json.py").write_text("raise SystemExit('hijacked')")
    (outside / "ctypes.py").write_text("raise SystemExit('hijacked')")
    ended = hook(["create-symlinks", "--link", "t::/x"], {"bundle": str(root.parent)}, env=hostile, cwd=outside)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert str((root / "x").readlink()) == "t"


def in_own_mounts(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in a mount namespace of its own, where it may mount what it likes."""
    return subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-euc", script, "sh", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.root
def test_the_params_file_is_covered_read_only(program: list[str], tmp_path: Path) -> None:
    root, host = tmp_path / "bundle" / "rootfs", tmp_path / "host"
    text = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
    build({"proc/driver/nvidia/params": text}, root, root)
    build({"proc/driver/nvidia/params": text}, host, host)
    (root.parent / "config.json").write_text('{"root": {"path": "rootfs"}}')
    ended = in_own_mounts(
        'bundle=$1; host=$2; shift 2; echo "{\\"bundle\\": \\"$bundle\\"}" | "$@" --host-root "$host";'
        ' cd "$bundle/rootfs"; '
        "cat proc/driver/nvidia/params; (echo x > proc/driver/nvidia/params) 2>&1 || echo REFUSED; ls -A",
        *(str(root.parent), str(host), *program, "disable-device-node-modification"),
    )
    assert ended.returncode == 0, ended.stderr
    assert text.replace("Files: 1", "Files: 0") in ended.stdout
    assert "REFUSED" in ended.stdout
    assert ended.stdout.split()[-1] == "proc"
    assert (root / "proc/driver/nvidia/params").read_text() == text, "the mount was the namespace's own"


def library(folder: Path, soname: str, name: str) -> None:
    """A shared library, as a driver's."""
    if shutil.which("cc") is None:
        missing("compiler", "needs a C compiler: install it (Debian: apt-get install gcc)")
    folder.mkdir(parents=True, exist_ok=True)
    source = "int drakkar_test(void) { return 7; }"
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-x", "c", "-", "-o", folder / name]
    subprocess.run(command, input=source, text=True, check=True)


def cached(root: Path) -> str:
    """What the loader cache of a root knows."""
    shown = ["/sbin/ldconfig", "-r", str(root), "-C", "/etc/ld.so.cache", "-p"]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout


@pytest.mark.root
def test_the_loader_cache_knows_the_folder(hook: Hook, tmp_path: Path) -> None:
    root = tmp_path / "bundle" / "rootfs"
    library(root / "usr/lib/gpu", "libgpu.so.1", "libgpu.so.1.2.3")
    build({"etc/ld.so.cache": "", "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n"}, root, root)
    state = {"root": str(root)}
    folders = ["--folder", "/usr/lib/gpu", "--folder", "/missing", "--folder", "/usr/lib/gpu"]
    for _ in range(2):
        ended = hook(["update-ldcache", *folders], state)
        assert (ended.returncode, ended.stderr) == (0, "")
    assert "libgpu.so.1 (libc6,x86-64) => /usr/lib/gpu/libgpu.so.1" in cached(root) or "libgpu.so.1" in cached(root)
    assert str((root / "usr/lib/gpu/libgpu.so.1").readlink()) == "libgpu.so.1.2.3"
    (written,) = (root / "etc/ld.so.conf.d").iterdir()
    assert written.read_text() == "/usr/lib/gpu\n/missing\n"
    assert written.name == "00-drakkar-057148d7ee.conf", "the same name for both programs"


@pytest.mark.root
def test_an_image_without_a_loader_cache_gets_links_only(hook: Hook, tmp_path: Path) -> None:
    root = tmp_path / "rootfs"
    library(root / "usr/lib/gpu", "libgpu.so.1", "libgpu.so.1.2.3")
    assert hook(["update-ldcache", "--folder", "/usr/lib/gpu"], {"root": str(root)}).returncode == 0
    assert (root / "usr/lib/gpu/libgpu.so.1").is_symlink()
    assert not (root / "etc/ld.so.cache").exists()


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("etc-outside", {"etc": {"link": "${OUTSIDE}"}}),
        ("etc-climbs", {"etc": {"link": "../../../../../../../../../../../../${OUTSIDE}"}}),
        ("cache-hard-link", {"etc/ld.so.cache": {"hardlink": "victim"}, "etc/ld.so.cache~": {"hardlink": "victim"}}),
        ("cache-link", {"etc/ld.so.cache": "", "etc/ld.so.cache~": {"link": "${OUTSIDE}/victim"}}),
        ("folder-outside", {"etc/ld.so.cache": "", "usr/lib/gpu": {"link": "${OUTSIDE}"}}),
        ("conf-outside", {"etc/ld.so.cache": "", "etc/ld.so.conf.d": {"link": "${OUTSIDE}"}}),
        ("aux-cache", {"etc/ld.so.cache": "", "var/cache/ldconfig": {"link": "${OUTSIDE}"}}),
    ],
)
def test_ldconfig_writes_nothing_outside(name: str, tree: dict[str, object], hook: Hook, tmp_path: Path) -> None:
    root, outside = tmp_path / "rootfs", tmp_path / "outside"
    build({"victim": "precious", "ld.so.cache": "precious", "aux-cache": "precious"}, outside, outside)
    library(outside, "libgpu.so.1", "libgpu.so.1.2.3")
    filled = {
        path: {key: text.replace("${OUTSIDE}", str(outside)) for key, text in entry.items()}
        if isinstance(entry, dict)
        else entry
        for path, entry in tree.items()
    }
    build(filled, root, outside)
    far = picture(outside, times=True)
    hook(["update-ldcache", "--folder", "/usr/lib/gpu"], {"root": str(root)})
    assert picture(outside, times=True) == far


@pytest.mark.root
def test_ldconfig_does_not_see_the_way_out_through_proc(program: list[str], tmp_path: Path) -> None:
    root, outside = tmp_path / "rootfs", tmp_path / "outside"
    library(outside, "libgpu.so.1", "libgpu.so.1.2.3")
    build({"proc": {"dir": 0o755}, "usr": {"dir": 0o755}, "etc/ld.so.cache": ""}, root, outside)
    far = picture(outside, times=True)
    ended = in_own_mounts(
        'root=$1; outside=$2; shift 2; mount -t proc proc "$root/proc"; ln -s "/proc/$$/root$outside" "$root/usr/lib";'
        ' ls "$root/proc/$$/root$outside"; mkdir -p "$root$outside";'
        ' echo "{\\"root\\": \\"$root\\"}" | "$@"; ls "$root/proc" | grep -c "^$$\\$"',
        *(str(root), str(outside), *program, "update-ldcache", "--folder", "/usr/lib"),
    )
    assert ended.stdout == "libgpu.so.1.2.3\n1\n", f"procfs is gone only for ldconfig: {ended.stderr}"
    assert picture(outside, times=True) == far


@pytest.mark.root
def test_ldconfig_is_confined(hook: Hook, tmp_path: Path) -> None:
    root, shown = tmp_path / "rootfs", tmp_path / "shown"
    root.mkdir()
    script = tmp_path / "ldconfig"
    script.write_text(f"#!/bin/sh\n(env; grep -E 'CapBnd|NoNewPrivs' /proc/self/status; ls /proc/self/fd) > {shown}\n")
    script.chmod(0o755)
    assert hook(["update-ldcache", "--ldconfig-path", f"@{script}"], {"root": str(root)}).returncode == 0
    text = shown.read_text()
    assert "CapBnd:\t000000000004000e" in text
    assert "NoNewPrivs:\t1" in text
    variables = {line.partition("=")[0] for line in text.splitlines() if "=" in line}
    assert variables <= {"PATH", "LC_ALL", "PWD", "_", "SHLVL", "OLDPWD"}
    script.write_text("#!/bin/sh\nexit 3\n")
    assert "ended with status 3" in hook(["update-ldcache", "--ldconfig-path", str(script)], {"root": str(root)}).stderr
    missing_program = hook(["update-ldcache", "--ldconfig-path", "/nonexistent"], {"root": str(root)})
    assert missing_program.returncode == 1
    assert "cannot run /nonexistent: " in missing_program.stderr


NVML = """\
#include <stdio.h>
#include <string.h>
struct limits { const char *path; unsigned long long soft, hard; };
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    *handle = (void *)uuid;
    return strcmp(uuid, "GPU-9") ? 0 : 6;
}
#ifndef OLD
int nvmlDeviceSetMemoryLimits_v1(void *device, struct limits *limits) {
    fprintf(stderr, "%s %s %llu %llu\\n", (char *)device, limits->path, limits->soft, limits->hard);
    return 0;
}
#endif
"""


@pytest.mark.parametrize(
    ("variables", "soft", "hard"),
    [
        (["NVIDIA_GPU_MEMORY_LIMIT=1024"], 1 << 30, 1 << 30),
        (["NVIDIA_GPU_MEMORY_REQUEST=1"], 1 << 20, 2**64 - 1),
        (["NVIDIA_GPU_MEMORY_LIMIT=7", "NVIDIA_GPU_MEMORY_REQUEST=0", "NVIDIA_GPU_MEMORY_LIMIT=8"], 0, 8 << 20),
    ],
)
def test_limits_reach_the_driver(variables: list[str], soft: int, hard: int, hook: Hook, tmp_path: Path) -> None:
    ended = limited(hook, tmp_path, variables, ["GPU-1", "GPU-2"], [])
    assert ended.returncode == 0, ended.stderr
    group = tmp_path / "host/sys/fs/cgroup/kubepods/pod1"
    assert ended.stderr.splitlines() == [f"{gpu} {group} {soft} {hard}" for gpu in ("GPU-1", "GPU-2")]


OURS = ["/opt/drakkar-hook", "apply-cuda-memory-limits", "--driver-root", "/", "--gpu-id", "GPU-1", "--limit"]


@pytest.mark.parametrize(
    ("listed", "variables", "limit"),
    [
        ([[*OURS, "100"]], [], 100),
        ([[*OURS, "100"], [*OURS, "28"]], [], 128),  # two claims on one GPU
        ([[*OURS, "100"], [*(word.replace("GPU-1", "GPU-2") for word in OURS), "28"]], [], 100),
        ([[*OURS, "100"], ["/bin/other", "--gpu-id", "GPU-1", "--limit", "28"], [*OURS], "x", None, {}], [], 100),
        ([[*OURS, "100"]], ["NVIDIA_GPU_MEMORY_LIMIT=64"], 64),
        ([[*OURS, "100"]], ["NVIDIA_GPU_MEMORY_LIMIT=4096", "NVIDIA_GPU_MEMORY_REQUEST=100"], 100),
        ([[*OURS, str(2**44 - 1)], [*OURS, str(2**44 - 1)]], [], None),
        ([], [], 100),
        ("nothing", [], 100),
    ],
)
def test_shares_of_claims_add_up_and_the_container_can_only_take_less(
    listed: Any, variables: list[str], limit: int | None, hook: Hook, tmp_path: Path
) -> None:
    hooks = {"createRuntime": [{"args": words} for words in listed] if isinstance(listed, list) else listed}
    ended = limited(hook, tmp_path, variables, ["GPU-1"], [], more=["--limit", "100"], hooks=hooks)
    assert ended.returncode == 0, ended.stderr
    hard = 2**64 - 1 if limit is None else limit << 20
    assert ended.stderr.split()[-1] == str(hard)


def test_a_card_that_is_gone_and_a_driver_that_is_too_old(hook: Hook, tmp_path: Path) -> None:
    ended = limited(hook, tmp_path / "a", ["NVIDIA_GPU_MEMORY_LIMIT=1"], ["GPU-9"], [])
    assert (ended.returncode, "nvmlDeviceGetHandleByUUID GPU-9 failed with NVML code 6" in ended.stderr) == (1, True)
    ended = limited(hook, tmp_path / "b", ["NVIDIA_GPU_MEMORY_LIMIT=1"], ["GPU-1"], ["-DOLD"])
    assert (ended.returncode, "R615 or newer is needed" in ended.stderr) == (1, True)


def limited(
    hook: Hook,
    at: Path,
    variables: list[str],
    gpus: list[str],
    flags: list[str],
    *,
    more: Sequence[str] = (),
    hooks: Any = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the memory limits hook against a driver root whose NVML is compiled here."""
    if shutil.which("cc") is None:
        missing("compiler", "needs a C compiler: install it (Debian: apt-get install gcc)")
    driver = at / "driver" / "usr" / "lib64"
    driver.mkdir(parents=True)
    command = ["cc", *flags, "-shared", "-fPIC", "-x", "c", "-", "-o", driver / "libnvidia-ml.so.1"]
    subprocess.run(command, input=NVML, text=True, check=True)
    build({"sys/fs/cgroup/cgroup.controllers": "memory\n", "proc/7/cgroup": "0::/kubepods/pod1\n"}, at / "host", at)
    build({"config.json": json_of(variables, hooks)}, at / "bundle", at)
    options = ["--driver-root", str(at / "driver"), "--host-root", str(at / "host")]
    options += [*more, *(part for gpu in gpus for part in ("--gpu-id", gpu))]
    return hook(["apply-cuda-memory-limits", *options], {"bundle": str(at / "bundle"), "pid": 7})


def json_of(variables: list[str], hooks: Any) -> str:
    return json.dumps({"root": {"path": "rootfs"}, "process": {"env": variables}, "hooks": hooks})


def test_a_hook_starts_fast(world: tuple[Path, Path], hook: Hook) -> None:
    state = {"bundle": str(world[0].parent)}
    times = []
    for _ in range(8):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        hook(["create-symlinks", "--link", "t::/x"], state)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.080, "processor time; 40 ms on a quiet machine, see `python -m bench cdi`"


def test_the_package_needs_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; import drakkar.hooks.commands, drakkar.hooks.files, drakkar.hooks.ldcache, drakkar.hooks.limits,"
        " drakkar.hooks.params; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    shown = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True).stdout
    foreign = set(shown.split()) - set(sys.stdlib_module_names) - {"drakkar", "__main__"}
    assert {name for name in foreign if not name.startswith(("_", "sitecustomize"))} <= {"google"}  # a .pth of the venv
    own = subprocess.run(
        [sys.executable, "-I", "-c", script.replace("print(*{name.partition('.')[0]", "print(*{name")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rooms = {name for name in own.split() if name.startswith("drakkar")}
    assert all(name == "drakkar" or name.startswith("drakkar.hooks") for name in rooms), rooms
